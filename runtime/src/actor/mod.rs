//! What a user writes: actors and the handles to them.

mod ask;
mod chain;
mod error;
mod execute;
mod gate;
mod group;
mod handle;
mod host;
mod lane;
mod local;
mod mailbox;
mod pool;
mod registry;
mod replies;
mod save;
mod spawn;
mod stream;
mod turns;
mod vitals;
mod waiting;

pub use ask::{Ask, Tell};
pub use error::{AskError, Fate};
pub use group::{Bundle, PlacementGroup, ReserveGroup};
pub use handle::Handle;
pub use host::{ActorEnv, current};
pub use pool::{ElasticPool, Member, Pool, PoolAsk, StartPool};
pub use registry::{Accepts, ActorType, Method, Outcome, RemoteActor, RemoteMessage, type_names};
pub use replies::{AskerGone, Replies, ReplySender};
pub use save::save;
pub use spawn::{DEFAULT_MAILBOX, Spawn};
pub use stream::{ReplyStream, StreamMessage};

pub(crate) use host::{Exit, Host};
pub use lane::LaneOpening;
pub(crate) use lane::{Lanes, SETTLED, Sessions, serve as serve_lane};
pub(crate) use pool::Callers;
pub(crate) use registry::message_name;
pub(crate) use vitals::Vitals;
