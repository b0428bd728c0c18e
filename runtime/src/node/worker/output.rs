//! What a worker's process writes to its standard output and error: the lines of its actor's log.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::task::JoinHandle;

use crate::observe::ActorLog;

/// A line longer than this, in bytes, becomes several.
const LONGEST: usize = 8 << 10;
/// How long the pipes of a process that has ended are waited for. What it has started is killed by then; only without
/// cgroups may something hold them open.
const PATIENCE: Duration = Duration::from_millis(500);

/// The readers of a worker's output.
pub(super) struct Output(Vec<JoinHandle<()>>);

/// Begins to read.
pub(super) fn follow(child: &mut Child, log: &Arc<ActorLog>) -> Output {
    let mut readers = Vec::new();
    if let Some(out) = child.stdout.take() {
        readers.push(actix_rt::spawn(read(out, log.clone())));
    }
    if let Some(err) = child.stderr.take() {
        readers.push(actix_rt::spawn(read(err, log.clone())));
    }
    Output(readers)
}

impl Output {
    /// Waits until all is read that an ended process has written.
    pub(super) async fn finish(self) {
        for mut reader in self.0 {
            if tokio::time::timeout(PATIENCE, &mut reader).await.is_err() {
                reader.abort();
            }
        }
    }
}

async fn read(mut pipe: impl AsyncRead + Unpin, log: Arc<ActorLog>) {
    let mut line = Vec::new();
    let mut chunk = [0; 4 << 10];
    loop {
        let read = pipe.read(&mut chunk).await.unwrap_or(0);
        for byte in &chunk[..read] {
            match byte {
                b'\n' => put(&mut line, &log),
                _ => line.push(*byte),
            }
            if line.len() >= LONGEST {
                put(&mut line, &log);
            }
        }
        if read == 0 {
            if !line.is_empty() {
                put(&mut line, &log);
            }
            return;
        }
    }
}

fn put(line: &mut Vec<u8>, log: &ActorLog) {
    log.write(&String::from_utf8_lossy(line));
    line.clear();
}
