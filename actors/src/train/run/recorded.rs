//! The rates of an earlier run, for a job that measures nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::RunError;
use crate::benchmark::Recorded;
use crate::kernel::{Kernel, Problem};
use crate::train::record::Record;
use crate::verifier::hash_of;

/// The rates of the run whose folder is `dir`: of what its steps measured, and of its corpus.
pub(super) fn rates(dir: &Path, problem: &Problem) -> Result<Recorded, RunError> {
    let record = Record::open(dir)?;
    let mut rates = BTreeMap::new();
    for row in record.corpus()? {
        let code = Kernel::from_body(problem, &row.body).code;
        let fastest = row.gflops.iter().copied().fold(0.0, f64::max);
        rates.insert(hash_of(&code), fastest);
    }
    rates.extend(record.rates()?);
    Recorded::new(rates).ok_or_else(|| RunError::NothingRecorded(dir.to_owned()))
}
