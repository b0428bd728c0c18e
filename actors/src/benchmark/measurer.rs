//! Who measures: a pool of benchmarks, or one of its members.

use corehold::{AskError, ElasticPool, Handle};
use serde::{Deserialize, Serialize};

use super::{Benchmark, BenchmarkError, Measure, Measured};

/// A measurement that was lost with its node is made again, by another member, at most so often.
const AGAIN: u32 = 8;

/// Who measures a kernel. It travels inside messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Measurer {
    /// Whichever member of a pool is free.
    Pool(ElasticPool<Benchmark>),
    /// This one: what is compared is measured on the same cores.
    One(Handle<Benchmark>),
}

impl Measurer {
    /// Has a kernel measured. Measurements of one group (`alike`) are made on one class of node, where the pool has
    /// members on several.
    ///
    /// # Errors
    /// The outer ones are the ask's: the pool is over, or the one that is to measure is gone. The inner ones are the
    /// benchmark's.
    pub async fn measure(
        &self,
        request: Measure,
        alike: Option<u64>,
    ) -> Result<Result<Measured, BenchmarkError>, AskError> {
        match self {
            Self::One(benchmark) => benchmark.ask(request).await,
            Self::Pool(pool) => {
                let ask = pool.ask(request).retry(AGAIN);
                match alike {
                    Some(group) => ask.alike(group).await,
                    None => ask.await,
                }
            }
        }
    }
}
