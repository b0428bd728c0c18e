//! `corehold scale`: the size of a pool, by order.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use corehold::entry;

use super::{Failure, out};

#[derive(Args)]
pub(super) struct Scale {
    /// The pool's name, as `corehold status` shows it
    pool: String,
    /// How many members; `auto`: as many as it chooses itself
    #[arg(value_parser = size)]
    size: Size,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
}

#[derive(Clone, Copy)]
struct Size(Option<u32>);

fn size(text: &str) -> Result<Size, String> {
    if text == "auto" {
        return Ok(Size(None));
    }
    let size = text.parse().map_err(|_| "a number of members, or auto")?;
    Ok(Size(Some(size)))
}

impl Scale {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        entry::scale(&self.cluster, &self.pool, self.size.0)?;
        let pool = &self.pool;
        match self.size.0 {
            Some(size) => out::line(format_args!(
                "pool {pool} gets {size} members, and stays so until `corehold scale {pool} auto`"
            ))?,
            None => out::line(format_args!("pool {pool} chooses its size again"))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
