//! `tokenizer_config.json`: special tokens and the chat template, beside a `tokenizer.json`.
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::PolicyError;

/// The file's name.
pub(super) const FILE: &str = "tokenizer_config.json";

/// What the file says; all of it empty where there is no file.
#[derive(Debug, Default)]
pub(super) struct TokenizerConfig {
    /// Tokens by id that `tokenizer.json` may lack.
    pub added: BTreeMap<u32, AddedToken>,
    /// `bos_token`, `eos_token`, `pad_token`, `unk_token` and the like, by that name.
    pub special: BTreeMap<String, String>,
    /// The chat template, unless it is a file of its own.
    pub chat_template: Option<String>,
}

impl TokenizerConfig {
    pub fn read(dir: &Path) -> Result<Self, PolicyError> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(PolicyError::io("read", &path)(error)),
        };
        let reject = |reason: String| PolicyError::Config {
            path: path.clone(),
            reason,
        };
        let json: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| reject(error.to_string()))?;
        Ok(Self {
            added: added(&json).map_err(reject)?,
            special: special(&json),
            chat_template: template(&json).map_err(reject)?,
        })
    }
}

fn added(json: &Map<String, Value>) -> Result<BTreeMap<u32, AddedToken>, String> {
    let Some(tokens) = json.get("added_tokens_decoder").and_then(Value::as_object) else {
        return Ok(BTreeMap::new());
    };
    let one = |(id, token): (&String, &Value)| {
        let flag = |key: &str| token[key] == Value::Bool(true);
        let content = token["content"]
            .as_str()
            .ok_or_else(|| format!("the added token {id} has no content"))?;
        let id = id
            .parse()
            .map_err(|_| format!("`{id}` in added_tokens_decoder is no token id"))?;
        let token = AddedToken::from(content, flag("special"))
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .normalized(flag("normalized"))
            .single_word(flag("single_word"));
        Ok((id, token))
    };
    tokens.iter().map(one).collect()
}

/// A token is a string, or an object with its text in `content`.
fn special(json: &Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| {
        let text = value.as_str().or_else(|| value["content"].as_str());
        text.map(str::to_owned)
    };
    let tokens = json.iter().filter(|(key, _)| key.ends_with("_token"));
    tokens
        .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
        .collect()
}

/// One template, or several with names, of which `default` is meant.
fn template(json: &Map<String, Value>) -> Result<Option<String>, String> {
    match json.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(named)) => {
            let found = named.iter().find(|one| one["name"] == "default");
            let text = found.and_then(|one| one["template"].as_str());
            let text = text.ok_or("none of the chat templates is called `default`")?;
            Ok(Some(text.to_owned()))
        }
        Some(other) => Err(format!("chat_template is {other}")),
    }
}
