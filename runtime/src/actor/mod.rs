//! What a user writes: actors and the handles to them.

mod ask;
mod error;
mod group;
mod handle;
mod host;
mod lane;
mod registry;
mod spawn;

pub use ask::{Ask, Tell};
pub use error::{AskError, Fate};
pub use group::{Bundle, PlacementGroup, ReserveGroup};
pub use handle::Handle;
pub use host::{ActorEnv, current};
pub use registry::{Accepts, ActorType, Method, RemoteActor, RemoteMessage, type_names};
pub use spawn::{DEFAULT_MAILBOX, Spawn};

pub(crate) use host::{Exit, Host};
pub(crate) use lane::{Lanes, serve as serve_lane};
