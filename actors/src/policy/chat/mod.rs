//! Chat templates: from messages to the text that an instruct model was trained on.
//!
//! They are Jinja with what transformers adds to it (its documentation, "Writing a chat template"): blocks are trimmed,
//! strings and lists have Python's methods, and there are `raise_exception`, `strftime_now`, a `tojson` that writes as
//! Python does, `break` and `continue`, and the block `generation`.
mod clock;
mod python_json;

use std::collections::BTreeMap;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat;
use serde::{Deserialize, Serialize};

use super::PolicyError;
use super::tokenizer_config::{self, TokenizerConfig};

const FILE: &str = "chat_template.jinja";
const NAME: &str = "chat";

/// Who says what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// "system", "user" or "assistant".
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A message of `role`.
    pub fn new(role: &str, content: &str) -> Self {
        Self {
            role: role.to_owned(),
            content: content.to_owned(),
        }
    }
}

/// A model's chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// `bos_token` and the like.
    special: Vec<(String, String)>,
    source: String,
    origin: String,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja` of a model's folder, else the template in its `tokenizer_config.json`; `None` if it
    /// has neither.
    ///
    /// # Errors
    /// A file can't be read, or the template is no valid one.
    pub fn load(dir: &Path) -> Result<Option<Self>, PolicyError> {
        let config = TokenizerConfig::read(dir)?;
        let path = dir.join(FILE);
        let (source, origin) = match std::fs::read_to_string(&path) {
            Ok(source) => (source, path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let Some(source) = config.chat_template else {
                    return Ok(None);
                };
                (source, dir.join(tokenizer_config::FILE))
            }
            Err(error) => return Err(PolicyError::io("read", &path)(error)),
        };
        let special = config.special.into_iter().collect();
        Self::new(&source, special, &origin.display().to_string()).map(Some)
    }

    /// A template from its text. `special` are tokens by the names that templates use, such as `bos_token`; `origin` is
    /// shown in errors.
    pub fn new(
        source: &str,
        special: Vec<(String, String)>,
        origin: &str,
    ) -> Result<Self, PolicyError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| failed(origin, &error))?);
        environment.set_unknown_method_callback(python_method);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", tojson);
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(|error| failed(origin, &error))?;
        Ok(Self {
            environment,
            special,
            source: source.to_owned(),
            origin: origin.to_owned(),
        })
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the assistant is to begin.
    ///
    /// # Errors
    /// The template refuses these messages (roles that don't take turns, say) or is wrong.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
    ) -> Result<String, PolicyError> {
        let messages = messages.iter().map(|message| {
            let (role, content) = (message.role.as_str(), message.content.as_str());
            Value::from(BTreeMap::from([
                ("role", Value::from(role)),
                ("content", Value::from(content)),
            ]))
        });
        let given = [
            ("messages", Value::from(messages.collect::<Vec<_>>())),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        let special = self.special.iter();
        let special = special.map(|(name, token)| (name.clone(), Value::from(token.as_str())));
        let context: BTreeMap<String, Value> = (given.into_iter())
            .map(|(name, value)| (name.to_owned(), value))
            .chain(special)
            .collect();
        let template = self.environment.get_template(NAME);
        template
            .and_then(|template| template.render(context))
            .map_err(|error| failed(&self.origin, &error))
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }
}

fn failed(origin: &str, error: &Error) -> PolicyError {
    PolicyError::Template {
        origin: origin.to_owned(),
        reason: format!("{error:#}"),
    }
}

/// The methods of Python's strings, lists and dictionaries.
fn python_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match (method, value.as_str(), arguments) {
        // The library's own begins a word after blanks only.
        ("title", Some(text), []) => Ok(Value::from(title(text))),
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

/// Every letter after something that is none is a capital one, and no other.
fn title(text: &str) -> String {
    let mut inside = false;
    let mut titled = String::with_capacity(text.len());
    for character in text.chars() {
        if inside {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        inside = character.is_alphabetic();
    }
    titled
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    clock::now(format).map_err(|reason| Error::new(ErrorKind::InvalidOperation, reason))
}

/// As Python's `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let text = python_json::dump(value, indent);
    let text = text.map_err(|reason| Error::new(ErrorKind::BadSerialization, reason))?;
    Ok(Value::from_safe_string(text))
}

/// `{% generation %}` marks what the assistant says, for masks; as text it is nothing.
fn without_generation_blocks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(length) = rest[at..].find("%}") else {
            break;
        };
        let tag = &rest[at + 2..at + length];
        let word = tag.trim_matches(['-', '+']).trim();
        text.push_str(&rest[..at]);
        if matches!(word, "generation" | "endgeneration") {
            // A block that does nothing trims the blanks around it as this one would.
            let left = if tag.starts_with('-') { "-" } else { "" };
            let right = if tag.ends_with('-') { "-" } else { "" };
            let same = if word == "generation" {
                "if true"
            } else {
                "endif"
            };
            text.push_str(&format!("{{%{left} {same} {right}%}}"));
        } else {
            text.push_str(&rest[at..at + length + 2]);
        }
        rest = &rest[at + length + 2..];
    }
    text.push_str(rest);
    text
}
