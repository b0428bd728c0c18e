"""Reads a request from standard input and answers with one line of JSON, computed by transformers and peft."""
import json
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
request = json.load(sys.stdin)
answer = {}


def load(folder, adapter=None):
    model, told = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {key: sorted(map(str, value)) for key, value in told.items() if value}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    if adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    return model.eval()


@torch.no_grad()
def measure(model, case):
    ids = torch.tensor([case["ids"]])
    found = {"logits": model(ids).logits[0, -1].tolist()}
    if case.get("new"):
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, repetition_penalty=1.0, max_new_tokens=case["new"])
        found["greedy"] = out[0, ids.shape[1] :].tolist()
    return found


if "convert" in request:
    source, target = request["convert"]["file"], request["convert"]["to"]
    folder, name = source.rsplit("/", 1)
    source_model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16)
    # The same weights in a model that does not remember having been quantized.
    config = source_model.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(source_model.state_dict())
    model.save_pretrained(target, max_shard_size="100MB")
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)

answer["models"] = []
for entry in request.get("models", []):
    model = load(entry["folder"], entry.get("adapter"))
    cases = entry.get("cases", [])
    if "chats" in entry:
        tokenizer = AutoTokenizer.from_pretrained(entry["folder"])
        for messages in entry["chats"]:
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            cases.append({"ids": ids, "new": entry["new"], "text": text})
    answer["models"].append([case | measure(model, case) for case in cases])

if "chat" in request:
    chat = request["chat"]
    tokenizer = AutoTokenizer.from_pretrained(chat["folder"])
    tokenizer.bos_token, tokenizer.eos_token = chat["bos_token"], chat["eos_token"]
    answer["chat"] = []
    for template in chat["templates"]:
        for messages in chat["conversations"]:
            for prompt in (False, True):
                try:
                    text = tokenizer.apply_chat_template(
                        messages, chat_template=template, add_generation_prompt=prompt, tokenize=False
                    )
                except Exception as error:
                    text = f"refused: {error}"
                answer["chat"].append(text)

if "warpers" in request:
    answer["warpers"] = []
    for case in request["warpers"]:
        steps = LogitsProcessorList()
        if case["repetition_penalty"]:
            steps.append(RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
        steps.append(TemperatureLogitsWarper(case["temperature"]))
        if case["top_k"]:
            steps.append(TopKLogitsWarper(case["top_k"]))
        if case["top_p"]:
            steps.append(TopPLogitsWarper(case["top_p"]))
        if case["min_p"]:
            steps.append(MinPLogitsWarper(case["min_p"]))
        logits = torch.tensor([case["logits"]], dtype=torch.float32)
        seen = torch.tensor([case["seen"]], dtype=torch.long)
        answer["warpers"].append(torch.softmax(steps(seen, logits)[0].double(), -1).tolist())

print(json.dumps(answer))
