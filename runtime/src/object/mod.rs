//! Large values: they are kept where they were made and fetched by whoever needs them, on streams of
//! their own, so that no lane waits behind them.

mod reference;
mod store;

pub use reference::{ObjectError, ObjectRef, put};

pub(crate) use store::{Store, serve as serve_object};
