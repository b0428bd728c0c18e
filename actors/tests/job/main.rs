//! The job as a user has it: the built program, real nodes, kill -9, ctrl-C.
//!
//! Every case holds core 1, so they take turns; on a machine without a second core or without root they say
//! that they are skipped.
#![cfg(feature = "torch")]

mod bad_input;
mod cluster;
mod compare;
mod cut_short;
mod pool;
mod pretrained;
mod run;

use cluster::{JobCluster, skip};
