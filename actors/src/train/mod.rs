//! The training job around the actors: what it is told (job file, reward), what it
//! keeps (run record), and what it shows (progress, curve, report).

pub mod archive;
pub mod curve;
pub mod emitter;
pub mod job;
pub mod progress;
pub mod record;
pub mod report;
pub mod reward;
#[cfg(feature = "torch")]
pub mod run;
pub mod summary;
