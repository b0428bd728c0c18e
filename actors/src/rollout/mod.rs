//! The rollout actor: it writes completions with the weights that it is pointed to.

use std::path::Path;
use std::sync::{Arc, Mutex};

use actix::ResponseFuture;
use corehold::prelude::*;

use crate::learner::{Published, Weights};
use crate::policy::{
    ModelConfig, Policy, PolicyError, Request, Sample, SamplingConfig, Tokenizer, generate_all,
};

/// Writes completions with the embedded backend (`tch` in this process).
#[derive(Serialize, Deserialize)]
pub struct Rollout {
    /// Threads of the tensor library.
    threads: u32,
    #[serde(skip)]
    loaded: Arc<Mutex<Option<Loaded>>>,
}

struct Loaded {
    version: u64,
    policy: Policy,
    tokenizer: Tokenizer,
}

impl Rollout {
    /// A rollout that computes with `threads` threads.
    pub fn new(threads: u32) -> Self {
        Self {
            threads,
            loaded: Arc::default(),
        }
    }
}

/// Why there are no completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum RolloutError {
    /// The weights are gone: their learner died. Publish them again.
    #[error("the weights could not be fetched: {0}")]
    Weights(corehold::ObjectError),
    /// The weights are not those of a policy, or the request does not fit it.
    #[error("{0}")]
    Policy(String),
}

/// Asks for groups of completions of one prompt.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<Written, RolloutError>")]
pub struct Generate {
    /// The weights to write with.
    pub published: Published,
    /// The prompt: text, special tokens spelled out.
    pub prompt: String,
    /// Groups wanted.
    pub groups: u32,
    /// Completions a group.
    pub group_size: u32,
    /// How they are drawn.
    pub sampling: SamplingConfig,
    /// Of the draws: the same seed and weights give the same completions.
    pub seed: u64,
    /// Texts that others wrote, to be put into tokens.
    pub guests: Vec<String>,
}

/// What was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    /// The version that wrote it.
    pub version: u64,
    /// The prompt's ids.
    pub prompt: Vec<u32>,
    /// The groups.
    pub groups: Vec<Vec<Completion>>,
    /// The texts that others wrote, as this policy's tokens, without log-probabilities.
    pub guests: Vec<Completion>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// A completion as text and as the tokens that were drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Completion {
    /// Its text, without special tokens and without the stop string that ended it.
    pub text: String,
    /// Its tokens.
    pub sample: Sample,
}

#[corehold::actor]
impl Actor for Rollout {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        tch::set_num_threads(self.threads.max(1) as i32);
    }
}

#[corehold::handler]
impl Handler<Generate> for Rollout {
    type Result = ResponseFuture<Result<Written, RolloutError>>;

    fn handle(&mut self, message: Generate, _: &mut Self::Context) -> Self::Result {
        let loaded = self.loaded.clone();
        let threads = self.threads.max(1) as i32;
        Box::pin(async move {
            let version = message.published.version;
            let known = {
                let loaded = loaded.lock().unwrap_or_else(|e| e.into_inner());
                loaded.as_ref().is_some_and(|l| l.version == version)
            };
            let weights = if known {
                None
            } else {
                let fetched = message.published.weights.get().await;
                Some(fetched.map_err(RolloutError::Weights)?)
            };
            let writing = actix_rt::task::spawn_blocking(move || {
                tch::set_num_threads(threads);
                let mut loaded = loaded.lock().unwrap_or_else(|e| e.into_inner());
                if let Some(weights) = weights {
                    *loaded = Some(Loaded::new(weights)?);
                }
                let loaded = loaded
                    .as_ref()
                    .ok_or_else(|| PolicyError::Request("no weights are loaded".into()))?;
                loaded.write(&message)
            });
            writing
                .await
                .map_err(|e| RolloutError::Policy(e.to_string()))?
                .map_err(|e: PolicyError| RolloutError::Policy(e.to_string()))
        })
    }
}

impl Loaded {
    fn new(weights: Weights) -> Result<Self, PolicyError> {
        let config = ModelConfig::parse(&weights.config, Path::new("config.json"))?;
        let mut policy = Policy::fresh(config, 0);
        policy.load_safetensors(&weights.safetensors)?;
        Ok(Self {
            version: weights.version,
            policy,
            tokenizer: Tokenizer::from_bytes(weights.tokenizer.as_bytes())?,
        })
    }

    fn write(&self, request: &Generate) -> Result<Written, PolicyError> {
        let start = std::time::Instant::now();
        let prompt = self.tokenizer.encode(&request.prompt)?;
        // One batch for all groups: a row costs little beside the step that carries it.
        let rows = (request.groups * request.group_size) as usize;
        let batch = Request {
            prompt: &prompt,
            n: rows,
            seed: request.seed,
        };
        let sampling = &request.sampling;
        let mut written = generate_all(&self.policy, Some(&self.tokenizer), &[batch], sampling)?;
        let samples = written.pop().unwrap_or_default();
        let mut groups = Vec::with_capacity(request.groups as usize);
        let mut samples = samples.into_iter();
        for _ in 0..request.groups {
            let group = samples.by_ref().take(request.group_size as usize);
            let group = group.map(|sample| {
                let text = self.tokenizer.decode(&sample.ids)?;
                let text = sampling.cut(&text).to_owned();
                Ok(Completion { text, sample })
            });
            groups.push(group.collect::<Result<_, PolicyError>>()?);
        }
        let guests = (request.guests.iter()).map(|text| self.guest(text, sampling.stop.first()));
        Ok(Written {
            version: self.version,
            prompt,
            groups,
            guests: guests.collect::<Result<_, _>>()?,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// A text as this policy would have written it: up to the stop string, or to its end token.
    fn guest(&self, text: &str, stop: Option<&String>) -> Result<Completion, PolicyError> {
        let ids = match stop {
            Some(stop) => self.tokenizer.encode(&format!("{text}{stop}"))?,
            None => {
                let mut ids = self.tokenizer.encode(text)?;
                ids.extend(self.policy.config().eos_token_ids.first());
                ids
            }
        };
        Ok(Completion {
            text: text.to_owned(),
            sample: Sample {
                ids,
                log_probs: Vec::new(),
                entropy: 0.0,
                finished: true,
            },
        })
    }
}
