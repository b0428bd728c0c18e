//! Why a message got no reply, and what became of it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What became of a message that got no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It never left this process.
    NotSent,
    /// No handler saw it, and none will.
    NotDelivered,
    /// It reached its handler, or may have: the handler may have run, wholly or in part.
    MaybeExecuted,
}

impl Fate {
    /// The one of two attempts that a caller has to reckon with.
    pub(crate) fn worse(self, other: Fate) -> Fate {
        match (self, other) {
            (Fate::MaybeExecuted, _) | (_, Fate::MaybeExecuted) => Fate::MaybeExecuted,
            (Fate::NotDelivered, _) | (_, Fate::NotDelivered) => Fate::NotDelivered,
            (Fate::NotSent, Fate::NotSent) => Fate::NotSent,
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fate::NotSent => "the message was not sent",
            Fate::NotDelivered => "the message was not delivered",
            Fate::MaybeExecuted => "the message may have been executed",
        })
    }
}

/// Why a message got no reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum AskError {
    /// The actor ended.
    #[error("{actor} died ({cause}){}; {fate}", if *.restarting { " and is being restarted" } else { "" })]
    ActorDied {
        /// Its id and type.
        actor: String,
        /// Whether its restart policy brings it back: then asking again makes sense.
        restarting: bool,
        /// Its death's cause, as its node told it.
        cause: String,
        /// What became of the message.
        fate: Fate,
    },
    /// The process or machine that hosts the actor is gone or out of reach.
    #[error("lost the node of {actor} ({why}); {fate}")]
    NodeLost {
        /// The actor.
        actor: String,
        /// What the transport or the head said.
        why: String,
        /// What became of the message.
        fate: Fate,
    },
    /// The time given by `.timeout()` has passed.
    #[error("no reply from {actor} within {after:?}; {fate}")]
    Timeout {
        /// The actor.
        actor: String,
        /// The time given.
        after: Duration,
        /// What became of the message.
        fate: Fate,
    },
    /// The runtime of this process is shutting down.
    #[error("cancelled: this process is shutting down")]
    Cancelled,
    /// The message or the reply could not be turned into bytes or back.
    #[error("{0}")]
    Codec(String),
    /// The actor's build has no handler for the message.
    #[error("{actor} has no handler for {message}; put #[corehold::handler] on its impl")]
    NoHandler {
        /// The actor.
        actor: String,
        /// The message's type.
        message: String,
    },
    /// The handler ran and ended without a reply: its response type dropped the sender.
    #[error("a handler of {actor} ended without a reply; the message was executed")]
    NoReply {
        /// The actor.
        actor: String,
    },
    /// The actor belongs to a program of another build: its types are not those of this one, whatever their names.
    #[error(
        "actor {actor} is of another program (build {theirs}) than this one (build {ours}): only programs of one build \
         can talk to each other; ask it from the program that spawned it"
    )]
    OtherProgram {
        /// The actor.
        actor: String,
        /// The build that it is of.
        theirs: String,
        /// The build of this process.
        ours: String,
    },
    /// A handler asks an actor that waits for that handler: itself, or one that has asked it, perhaps over others.
    #[error(
        "asking {actor} would wait for ever: it is at work on what led to this ask ({ring}) and begins nothing else \
         before that is done; declare it #[corehold::actor(concurrency = n)], tell instead of asking, or ask in a \
         future that the handler does not wait for (ctx.spawn)"
    )]
    Deadlock {
        /// The actor.
        actor: String,
        /// Who waits for whom, from the first asker to the actor.
        ring: String,
    },
    /// The pool has ended: its owner, or who had it end.
    #[error("pool {pool} is over: {why}; the message was not sent")]
    PoolOver {
        /// Its id.
        pool: String,
        /// Why.
        why: String,
    },
    /// The head could not be asked where the actor is.
    #[error("cannot reach the head: {0}; is the cluster up? (`corehold status`)")]
    HeadLost(String),
}

impl AskError {
    pub(crate) fn other_program(actor: impl fmt::Display, build: String) -> Self {
        AskError::OtherProgram {
            actor: actor.to_string(),
            theirs: build,
            ours: crate::build_id(),
        }
    }

    /// What became of the message.
    pub fn fate(&self) -> Fate {
        match self {
            AskError::ActorDied { fate, .. }
            | AskError::NodeLost { fate, .. }
            | AskError::Timeout { fate, .. } => *fate,
            AskError::NoHandler { .. } => Fate::NotDelivered,
            AskError::Deadlock { .. }
            | AskError::HeadLost(_)
            | AskError::OtherProgram { .. }
            | AskError::PoolOver { .. } => Fate::NotSent,
            AskError::Cancelled | AskError::Codec(_) | AskError::NoReply { .. } => {
                Fate::MaybeExecuted
            }
        }
    }

    /// Its kind in one word, as metrics name it: `timeout`, `actor_died` ...
    pub fn kind(&self) -> &'static str {
        match self {
            AskError::ActorDied { .. } => "actor_died",
            AskError::NodeLost { .. } => "node_lost",
            AskError::Timeout { .. } => "timeout",
            AskError::Cancelled => "cancelled",
            AskError::Codec(_) => "codec",
            AskError::NoHandler { .. } => "no_handler",
            AskError::NoReply { .. } => "no_reply",
            AskError::OtherProgram { .. } => "other_program",
            AskError::Deadlock { .. } => "deadlock",
            AskError::PoolOver { .. } => "pool_over",
            AskError::HeadLost(_) => "head_lost",
        }
    }

    /// Whether the actor may answer when asked again (it restarts, or its node may come back).
    pub fn may_retry(&self) -> bool {
        matches!(
            self,
            AskError::NodeLost { .. }
                | AskError::ActorDied {
                    restarting: true,
                    ..
                }
        )
    }
}
