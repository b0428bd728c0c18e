//! Chat templates by themselves; `transformers.rs` compares them with transformers' own rendering.
use corehold_actors::policy::{ChatMessage, ChatTemplate, PolicyError};

use super::copy_of;

/// What real templates do, each in a few lines: a name, and the template.
pub const TEMPLATES: [(&str, &str); 6] = [
    (
        "a system prompt of its own, and blanks trimmed",
        "{%- if messages[0]['role'] == 'system' -%}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' -}}
{%- else -%}
    {{- '<|im_start|>system\\nYou write C.<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if (message.role == 'user') or (message.role == 'system' and not loop.first) or (message.role == 'assistant' and not message.tool_calls) -%}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}",
    ),
    (
        "tokens of begin and end, methods of strings, slices, a namespace",
        "{{ bos_token }}{% set ns = namespace(system='', n=0) %}
{% if messages[0].role == 'system' %}
  {% set ns.system = messages[0].content.strip() %}
  {% set rest = messages[1:] %}
{% else %}
  {% set rest = messages %}
{% endif %}
{% for m in rest %}
  {% set ns.n = ns.n + 1 %}
[{{ ns.n }}/{{ rest | length }}] {{ m.role.upper() }}{% if loop.index0 == 0 and ns.system %} <<{{ ns.system }}>>{% endif %}: {{ m['content'] | trim }}{{ eos_token if m.role == 'assistant' else '' }}
{% endfor %}
{{ rest[-1].content.split('n')[0] }}|{{ rest[-1].content.startswith('DG') }}|{{ 'a,b'.replace(',', ';').title() }}",
    ),
    (
        "tools, JSON, dictionaries and tests",
        "{% if tools is not none and tools is defined %}tools{% endif %}
{% set d = {'b': [1, 2.5, true, none], 'a': 'é \\\"<x>\\\" & \\'y\\''} %}
{{ d | tojson }}
{{ d | tojson(indent=2) }}
{% for key, value in d.items() %}{{ key }}={{ value is string }},{% endfor %}
{{ d.get('c', 'none') }} {{ 'b' in d }} {{ messages | map(attribute='role') | join('+') }} {{ messages is iterable }}
{% if documents %}documents{% endif %}{{ unknown_thing is defined }}",
    ),
    (
        "marks of what the assistant says, loop controls, macros",
        "{% macro say(who, what='-') %}<{{ who }}>{{ what }}</{{ who }}>{% endmacro %}
{% for m in messages %}
{% if m.role == 'tool' %}{% continue %}{% endif %}
{% if loop.index > 9 %}{% break %}{% endif %}
{% if m.role == 'assistant' %}
{% generation %}
{{ say(m.role, m.content) }}
{% endgeneration %}
{%- else %}
{{ say(who=m.role) }}
{%- endif %}

{% endfor %}",
    ),
    (
        "the year of now",
        "{{ strftime_now('%Y') }}{% if strftime_now is defined %} {{ strftime_now('%d %b') | length }}{% endif %}",
    ),
    (
        "turns are checked",
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns!') }}{% endif %}{{ m.content }}{% endfor %}",
    ),
];

/// Conversations for them.
pub fn conversations() -> Vec<Vec<ChatMessage>> {
    let user = ChatMessage::new("user", "DGEMM, n=256\n");
    let assistant = ChatMessage::new("assistant", " for (;;) {} // é \"q\" <&>");
    let system = ChatMessage::new("system", " Write fast C.\n");
    vec![
        vec![user.clone()],
        vec![system, user.clone()],
        vec![user.clone(), assistant, user],
    ]
}

/// The template with the tokens that `transformers.rs` gives its tokenizer.
pub fn template(source: &str) -> ChatTemplate {
    let special = [("bos_token", "<|im_start|>"), ("eos_token", "<|im_end|>")];
    let special = special.map(|(name, token)| (name.to_owned(), token.to_owned()));
    ChatTemplate::new(source, special.into(), "the test").unwrap()
}

#[test]
fn a_refusal_has_the_templates_own_words() {
    let turns = template(TEMPLATES[5].1);
    let wrong = [ChatMessage::new("assistant", "x")];
    let error = turns.render(&wrong, true).unwrap_err();
    assert!(matches!(error, PolicyError::Template { .. }), "{error:?}");
    assert!(
        error.to_string().contains("Roles must take turns!"),
        "{error}"
    );
    assert!(error.to_string().contains("the test"), "{error}");
}

#[test]
fn a_broken_template_is_named_when_it_is_read() {
    let dir = copy_of("tied");
    std::fs::write(dir.path().join("chat_template.jinja"), "{% for m in %}").unwrap();
    let error = ChatTemplate::load(dir.path()).unwrap_err();
    assert!(error.to_string().contains("chat_template.jinja"), "{error}");
}

#[test]
fn the_template_may_be_in_the_tokenizers_configuration() {
    let dir = copy_of("tied");
    std::fs::remove_file(dir.path().join("chat_template.jinja")).unwrap();
    assert!(ChatTemplate::load(dir.path()).unwrap().is_none());
    let path = dir.path().join("tokenizer_config.json");
    for template in [
        serde_json::json!("{{ messages[0].content }}{{ eos_token }}"),
        serde_json::json!([
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"},
        ]),
    ] {
        let config = serde_json::json!({
            "chat_template": template, "eos_token": {"content": "<|im_end|>", "special": true}
        });
        std::fs::write(&path, config.to_string()).unwrap();
        let template = ChatTemplate::load(dir.path()).unwrap().unwrap();
        let text = template.render(&[ChatMessage::new("user", "x")], true);
        assert_eq!(text.unwrap(), "x<|im_end|>");
    }
}
