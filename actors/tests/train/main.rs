//! The parts of the training job around the actors, through their public API.

mod curve;
mod disk_full;
mod job;
mod killed;
mod progress;
mod record;
mod report;
mod reward;
mod support;
