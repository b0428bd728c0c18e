//! The learner actor: it keeps the policy, trains it, and publishes its weights.
//!
//! Its state is in its folder after every update, so that a killed learner comes back where it was: an update
//! that was asked for twice is made once.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use actix::ResponseFuture;
use corehold::prelude::*;

use super::weights::{Published, Weights};
use super::{Budget, Group, GrpoConfig, Learner, UpdateStats, WarmStartProgress, WarmStartStats};
use tch::{Device, Kind};

use crate::policy::{END_OF_TEXT, ModelConfig, Policy, Pretrained, Tokenizer, copy_small_files};

/// Trains a policy.
#[derive(Serialize, Deserialize)]
pub struct LearnerActor {
    config: GrpoConfig,
    /// Where its state is kept.
    folder: PathBuf,
    /// Threads of the tensor library.
    threads: u32,
    #[serde(skip)]
    state: Arc<Mutex<State>>,
    #[serde(skip)]
    progress: Arc<Mutex<Option<WarmStartProgress>>>,
}

#[derive(Default)]
struct State {
    learner: Option<(Learner, Tokenizer)>,
    published: Option<Published>,
    /// Kept while rollouts may still read them: the last two versions.
    kept: Vec<Published>,
}

impl LearnerActor {
    /// A learner whose state is kept in `folder`.
    pub fn new(config: GrpoConfig, folder: PathBuf, threads: u32) -> Self {
        Self {
            config,
            folder,
            threads,
            state: Arc::default(),
            progress: Arc::default(),
        }
    }

    /// Runs `work` on the state, away from the actor's thread, which goes on to answer.
    fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut State, &Work) -> Result<T, TrainError> + Send + 'static,
    ) -> ResponseFuture<Result<T, TrainError>> {
        let state = self.state.clone();
        let how = Work {
            config: self.config.clone(),
            folder: self.folder.clone(),
            progress: self.progress.clone(),
        };
        let threads = self.threads.max(1) as i32;
        Box::pin(async move {
            let working = actix_rt::task::spawn_blocking(move || {
                tch::set_num_threads(threads);
                work(&mut lock(&state), &how)
            });
            working
                .await
                .map_err(|e| TrainError::Policy(e.to_string()))?
        })
    }
}

struct Work {
    config: GrpoConfig,
    folder: PathBuf,
    progress: Arc<Mutex<Option<WarmStartProgress>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held is reported by the task that panicked; the state is what the last
    // whole update left.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Why the learner did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum TrainError {
    /// There is no policy yet: neither a warm start nor a checkpoint.
    #[error("the learner has no policy yet: it wants a warm start or a checkpoint")]
    NoPolicy,
    /// A step that does not follow on the last one.
    #[error("update {asked} does not follow on update {last}; its checkpoint is of another run")]
    OutOfOrder {
        /// The update asked for, from 1.
        asked: u64,
        /// The last one made.
        last: u64,
    },
    /// The model, the tokenizer or the checkpoint.
    #[error("{0}")]
    Policy(String),
}

fn failed(e: impl std::fmt::Display) -> TrainError {
    TrainError::Policy(e.to_string())
}

/// Starts the embedded policy on a corpus: a tokenizer and weights of its own. A learner that has a checkpoint
/// forgets it.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<WarmStartStats, TrainError>")]
pub struct WarmStart {
    /// The kernels' bodies.
    pub corpus: Vec<String>,
    /// The prompt's special token, spelled out.
    pub prompt: String,
    /// The model's shape; `vocab` below decides its vocabulary.
    pub shape: ModelShape,
    /// Entries of the tokenizer at most.
    pub vocab: u32,
    /// How long.
    pub time: Duration,
}

/// Starts with the model of a Hugging Face folder, trained in f32. A learner that has a checkpoint forgets it.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<Adopted, TrainError>")]
pub struct Adopt {
    /// The folder, as the learner's node sees it.
    pub folder: PathBuf,
}

/// What was adopted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adopted {
    /// Parameters of the model.
    pub parameters: u64,
    /// Longest sequence in tokens.
    pub context: u64,
}

/// The shape of an embedded policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub width: u32,
    /// Decoder layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of the feed-forward block.
    pub feed_forward: u32,
    /// Longest sequence in tokens.
    pub context: u32,
}

/// Asks how far a warm start is; `None` before its first step.
#[derive(Clone, Copy, Debug, Message, Serialize, Deserialize)]
#[rtype(result = "Option<WarmStartProgress>")]
pub struct GetWarmStartProgress;

/// Trains one step on groups of samples. Update `number` counts from 1; asked twice, it is made once.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<UpdateStats, TrainError>")]
pub struct Update {
    /// Which update of the run.
    pub number: u64,
    /// What was written, and what it earned.
    pub groups: Vec<Group>,
    /// Weight of the policy's entropy in this update, in nats a token: it changes over a run.
    pub entropy_bonus: f64,
}

/// Asks for the weights of now, as an object.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[rtype(result = "Result<Published, TrainError>")]
pub struct Publish;

/// Writes the policy in Hugging Face form.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<(), TrainError>")]
pub struct Export {
    /// The folder to write.
    pub folder: PathBuf,
}

// It tells how far it is while it works.
#[corehold::actor(concurrency = 8)]
impl Actor for LearnerActor {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<WarmStart> for LearnerActor {
    type Result = ResponseFuture<Result<WarmStartStats, TrainError>>;

    fn handle(&mut self, message: WarmStart, _: &mut Self::Context) -> Self::Result {
        self.work(move |state, how| {
            let prompts = [message.prompt.as_str()];
            let tokenizer = Tokenizer::train(&message.corpus, message.vocab as usize, &prompts)
                .map_err(failed)?;
            let shape = message.shape;
            let config = ModelConfig {
                hidden_size: shape.width as usize,
                intermediate_size: shape.feed_forward as usize,
                num_hidden_layers: shape.layers as usize,
                num_attention_heads: shape.heads as usize,
                num_key_value_heads: shape.kv_heads as usize,
                max_position_embeddings: shape.context as usize,
                ..ModelConfig::embedded(tokenizer.vocab_size())
            };
            let mut learner =
                Learner::new(Policy::fresh(config, how.config.seed), how.config.clone());
            let sequences: Vec<Vec<u32>> = message
                .corpus
                .iter()
                .map(|body| {
                    let mut ids = tokenizer.encode(&format!("{}{body}", message.prompt))?;
                    ids.push(END_OF_TEXT);
                    Ok(ids)
                })
                .collect::<Result<_, crate::policy::PolicyError>>()
                .map_err(failed)?;
            let stats = learner
                .warm_start(&sequences, Budget::Time(message.time), &mut |p| {
                    *lock(&how.progress) = Some(*p);
                    ControlFlow::Continue(())
                })
                .map_err(failed)?;
            state.published = None;
            state.kept.clear();
            save(&learner, &tokenizer, &how.folder)?;
            state.learner = Some((learner, tokenizer));
            Ok(stats)
        })
    }
}

#[corehold::handler]
impl Handler<Adopt> for LearnerActor {
    type Result = ResponseFuture<Result<Adopted, TrainError>>;

    fn handle(&mut self, message: Adopt, _: &mut Self::Context) -> Self::Result {
        self.work(move |state, how| {
            let model = Pretrained::load(&message.folder, Kind::Float, Device::Cpu);
            let model = model.map_err(failed)?;
            let adopted = Adopted {
                parameters: model.policy.model().parameters().numel() as u64,
                context: model.policy.config().max_position_embeddings as u64,
            };
            model.save_small_files(&how.folder).map_err(failed)?;
            let Pretrained {
                policy, tokenizer, ..
            } = model;
            let learner = Learner::new(policy, how.config.clone());
            state.published = None;
            state.kept.clear();
            save(&learner, &tokenizer, &how.folder)?;
            state.learner = Some((learner, tokenizer));
            Ok(adopted)
        })
    }
}

#[corehold::handler]
impl Handler<GetWarmStartProgress> for LearnerActor {
    type Result = Option<WarmStartProgress>;

    fn handle(&mut self, _: GetWarmStartProgress, _: &mut Self::Context) -> Self::Result {
        *lock(&self.progress)
    }
}

#[corehold::handler]
impl Handler<Update> for LearnerActor {
    type Result = ResponseFuture<Result<UpdateStats, TrainError>>;

    fn handle(&mut self, message: Update, _: &mut Self::Context) -> Self::Result {
        self.work(move |state, how| {
            let (learner, tokenizer) = state.restored(how)?;
            let last = learner.updates();
            if message.number == last {
                // It was made, and its reply was lost.
                return read_stats(&how.folder);
            }
            if message.number != last + 1 {
                return Err(TrainError::OutOfOrder {
                    asked: message.number,
                    last,
                });
            }
            learner.set_config(GrpoConfig {
                entropy_coefficient: message.entropy_bonus,
                ..how.config.clone()
            });
            let stats = learner.update(&message.groups).map_err(failed)?;
            // The statistics first: a checkpoint says that its update is wholly done.
            write_stats(&how.folder, &stats)?;
            save(learner, tokenizer, &how.folder)?;
            state.published = None;
            Ok(stats)
        })
    }
}

#[corehold::handler]
impl Handler<Publish> for LearnerActor {
    type Result = ResponseFuture<Result<Published, TrainError>>;

    fn handle(&mut self, _: Publish, _: &mut Self::Context) -> Self::Result {
        self.work(|state, how| {
            if let Some(published) = &state.published {
                return Ok(published.clone());
            }
            let (learner, tokenizer) = state.restored(how)?;
            let weights = Weights {
                version: learner.updates(),
                config: learner.policy().config().to_json().to_string(),
                tokenizer: tokenizer.to_json().map_err(failed)?,
                safetensors: learner.policy().to_safetensors(),
            };
            let published = Published {
                version: weights.version,
                weights: corehold::put(&weights).map_err(failed)?,
            };
            state.published = Some(published.clone());
            state.kept.push(published.clone());
            if state.kept.len() > KEPT {
                state.kept.remove(0);
            }
            Ok(published)
        })
    }
}

// Versions that a rollout may still be reading: the one before, and the one in hand.
const KEPT: usize = 3;

#[corehold::handler]
impl Handler<Export> for LearnerActor {
    type Result = ResponseFuture<Result<(), TrainError>>;

    fn handle(&mut self, message: Export, _: &mut Self::Context) -> Self::Result {
        self.work(move |state, how| {
            let (learner, tokenizer) = state.restored(how)?;
            // First, so that the model's own generation_config.json is the one that stays.
            learner.policy().save(&message.folder).map_err(failed)?;
            tokenizer.save(&message.folder).map_err(failed)?;
            copy_small_files(&how.folder, &message.folder).map_err(failed)
        })
    }
}

impl State {
    /// The learner: in memory, else from its checkpoint.
    fn restored(&mut self, how: &Work) -> Result<(&mut Learner, &mut Tokenizer), TrainError> {
        if self.learner.is_none() {
            let folder = checkpoint(&how.folder);
            if !folder.exists() {
                return Err(TrainError::NoPolicy);
            }
            let learner = Learner::restore(&folder).map_err(failed)?;
            let tokenizer = Tokenizer::load(&how.folder).map_err(failed)?;
            self.learner = Some((learner, tokenizer));
        }
        let (learner, tokenizer) = self.learner.as_mut().ok_or(TrainError::NoPolicy)?;
        Ok((learner, tokenizer))
    }
}

fn checkpoint(folder: &Path) -> PathBuf {
    folder.join("checkpoint")
}

fn save(learner: &Learner, tokenizer: &Tokenizer, folder: &Path) -> Result<(), TrainError> {
    // The tokenizer never changes after the warm start; it must be there before the checkpoint is.
    tokenizer.save(folder).map_err(failed)?;
    learner.save(&checkpoint(folder)).map_err(failed)
}

const STATS: &str = "last_update.json";

fn write_stats(folder: &Path, stats: &UpdateStats) -> Result<(), TrainError> {
    let text = serde_json::to_string(stats).map_err(failed)?;
    let (path, temporary) = (folder.join(STATS), folder.join("last_update.json.tmp"));
    std::fs::write(&temporary, text)
        .and_then(|()| std::fs::rename(&temporary, &path))
        .map_err(|e| TrainError::Policy(format!("{}: {e}", path.display())))
}

fn read_stats(folder: &Path) -> Result<UpdateStats, TrainError> {
    let path = folder.join(STATS);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| TrainError::Policy(format!("{}: {e}", path.display())))?;
    serde_json::from_str(&text).map_err(failed)
}
