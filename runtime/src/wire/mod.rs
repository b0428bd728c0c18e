//! Bytes between processes: codec, frames, QUIC endpoints, identity.
//!
//! One connection between two processes; every conversation on it is a bidirectional
//! stream that begins with an [`Opening`] and goes on in length-prefixed frames.

mod codec;
mod endpoint;
mod frame;
mod identity;
mod join;
mod reset;
pub mod session;
mod socket;

pub use codec::{CodecError, decode, encode};
pub use endpoint::{Accepted, Connection, Endpoint, Handshake, Incoming, WireError};
pub use frame::{FrameReader, FrameWriter, MAX_FRAME};
pub use identity::{Identity, IdentityError};
pub use join::{Admission, Fingerprint, JoinRequest, JoinToken, JoinTokenError, Secret};
pub(crate) use join::{Applicant, ask_admission};

use serde::{Deserialize, Serialize};

use crate::build_id::{RUNTIME_ID, build_id};
use crate::ids::ObjectId;

/// The first frame of every stream: what it is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Opening {
    /// A process introduces itself to the head; control messages follow, both ways.
    Control(Box<Hello>),
    /// Calls of one caller process to one actor; replies come back on the same stream.
    Lane(crate::actor::LaneOpening),
    /// Asks for the bytes of one object.
    Object(ObjectId),
    /// Asks for the program that this process runs.
    Program(crate::program::ProgramRequest),
    /// To a driver: what its actors on this node log.
    Logs {
        /// The node's name.
        node: String,
    },
    /// Asks what the process has seen of itself; questions and answers follow, in turn.
    Observe,
    /// To a head, by who has no certificate: asks for one. The answer is an [`Admission`] or why not.
    Join(Box<JoinRequest>),
}

/// How a process introduces itself. The layout of this struct, and that [`Opening::Control`] is the first variant, must
/// never change: builds that share nothing else must be able to refuse each other in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the frames that follow; a different one is refused.
    pub protocol: u32,
    /// Which build this is ([`crate::build_id`]).
    pub build_id: String,
    /// The id of its runtime's sources and, encoded, what it wants to be: to be read only where the runtime is the
    /// same. See [`Hello::of`].
    pub role: Vec<u8>,
}

impl Hello {
    /// How this process introduces itself as `role`.
    ///
    /// # Errors
    /// Where the role refuses to be serialised.
    pub fn of<R: Serialize>(role: &R) -> Result<Self, CodecError> {
        let role = encode(role)?;
        Ok(Self {
            protocol: PROTOCOL,
            build_id: build_id(),
            role: encode(&(RUNTIME_ID, role))?,
        })
    }

    /// The id of the peer's runtime, and its encoded role.
    ///
    /// # Errors
    /// Where it is neither.
    pub(crate) fn introduction(&self) -> Result<(String, Vec<u8>), CodecError> {
        decode(&self.role)
    }
}

/// The version of the frames. It changes when an old peer would misread a new one.
pub const PROTOCOL: u32 = 6;
