//! Corehold: a Ray-like actor runtime in which CPU cores are a resource that can be held.
#![deny(missing_docs)]

pub mod isolate;
