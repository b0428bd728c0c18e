//! A program's way from a process that runs it to a node.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::{OnceCell, mpsc};

use super::cache::hash_of;
use super::{Digest, Executable, ProgramError, ProgramHeader, ProgramRequest, Programs};
use crate::build_id::build_id;
use crate::wire::{Endpoint, FrameReader, FrameWriter, Opening, WireError};

/// Bytes that are read, sent and written at once.
const CHUNK: usize = 1 << 20;
/// Chunks that wait to be sent.
const AHEAD: usize = 4;
/// This process's program, also when its file has been replaced since.
const OWN: &str = "/proc/self/exe";

/// This process's program: its hash and length. Nobody can write to it while it runs.
async fn own() -> Result<(Digest, u64), String> {
    static KNOWN: OnceCell<(Digest, u64)> = OnceCell::const_new();
    let hash = || async {
        let hashed = tokio::task::spawn_blocking(|| hash_of(Path::new(OWN))).await;
        hashed.map_err(io::Error::other)?
    };
    let known = KNOWN.get_or_try_init(hash).await;
    known
        .copied()
        .map_err(|e| format!("its file cannot be read: {e}"))
}

/// Sends this process's program to a peer that asked for it.
pub(crate) async fn serve(request: ProgramRequest, mut writer: FrameWriter) {
    if let Err(e) = send(&request, &mut writer).await {
        tracing::debug!(error = %e, "the sending of this program broke off");
        // So that the peer does not take what it has for all.
        return writer.abandon();
    }
    writer.finish();
    writer.stopped().await;
}

async fn send(request: &ProgramRequest, writer: &mut FrameWriter) -> Result<(), WireError> {
    let ours = build_id();
    let known = if request.build == ours {
        own().await
    } else {
        Err(format!("it runs build {ours}"))
    };
    let (sha256, len) = match known {
        Ok(known) => known,
        Err(why) => return writer.send(&ProgramHeader::Missing { why }).await,
    };
    if request.have.contains(&sha256) {
        return writer.send(&ProgramHeader::Held(sha256)).await;
    }
    writer.send(&ProgramHeader::Sent { sha256, len }).await?;
    let (chunks, mut ready) = mpsc::channel::<io::Result<Vec<u8>>>(AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut file = match File::open(OWN) {
            Ok(file) => file,
            Err(e) => return drop(chunks.blocking_send(Err(e))),
        };
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = (&mut file).take(CHUNK as u64).read_to_end(&mut chunk);
            let chunk = match read {
                Ok(0) => return,
                Ok(_) => Ok(chunk),
                Err(e) => Err(e),
            };
            // An error means that the peer is gone.
            if chunk.is_err() | chunks.blocking_send(chunk).is_err() {
                return;
            }
        }
    });
    while let Some(chunk) = ready.recv().await {
        let chunk = chunk.map_err(|e| WireError::Closed(format!("{OWN}: {e}")))?;
        writer.send_raw(&chunk).await?;
    }
    Ok(())
}

/// The program of this build: from `programs`, if it is there and is what the first of `from` that answers runs,
/// else from that. What is there serves, too, when none of them answers.
pub(crate) async fn obtain(
    endpoint: &Endpoint,
    programs: &Arc<Programs>,
    build: &str,
    from: &[SocketAddr],
) -> Result<Executable, ProgramError> {
    let turn = programs.turn(build);
    let _turn = turn.lock().await;
    let have = blocking(programs, {
        let build = build.to_owned();
        move |programs| programs.held(&build)
    })
    .await
    .unwrap_or_default();
    let mut error = ProgramError::nowhere(build, "none of its processes is there", None);
    for &address in from {
        match ask(endpoint, programs, build, &have, address).await {
            Ok(executable) => return Ok(executable),
            Err(e) => {
                tracing::warn!(error = %e, "no program from there");
                error = e;
            }
        }
    }
    match (&error, have.first()) {
        (ProgramError::Nowhere { .. }, Some(&sha256)) => programs.open(build, sha256).ok_or(error),
        _ => Err(error),
    }
}

async fn ask(
    endpoint: &Endpoint,
    programs: &Arc<Programs>,
    build: &str,
    have: &[Digest],
    from: SocketAddr,
) -> Result<Executable, ProgramError> {
    let lost = |e: WireError| ProgramError::nowhere(build, e, Some(from));
    let connection = endpoint.connect(from).await.map_err(lost)?;
    let request = ProgramRequest {
        build: build.to_owned(),
        have: have.to_vec(),
    };
    let opened = connection.open(&Opening::Program(request)).await;
    let (_writer, mut reader) = opened.map_err(lost)?;
    match reader.recv::<ProgramHeader>().await.map_err(lost)? {
        Some(ProgramHeader::Held(sha256)) if have.contains(&sha256) => {
            let gone = || ProgramError::nowhere(build, "what was here is gone", Some(from));
            programs.open(build, sha256).ok_or_else(gone)
        }
        Some(ProgramHeader::Sent { sha256, len }) => {
            tracing::info!(%build, %from, len, %sha256, "a program comes in");
            take(programs, build, from, sha256, len, &mut reader).await
        }
        Some(ProgramHeader::Missing { why }) => Err(ProgramError::nowhere(build, why, Some(from))),
        _ => Err(ProgramError::nowhere(
            build,
            "it does not answer what was asked",
            Some(from),
        )),
    }
}

/// The program's bytes, written by a thread that may wait for the disk.
async fn take(
    programs: &Arc<Programs>,
    build: &str,
    from: SocketAddr,
    sha256: Digest,
    len: u64,
    reader: &mut FrameReader,
) -> Result<Executable, ProgramError> {
    let (chunks, mut coming) = mpsc::channel::<Vec<u8>>(AHEAD);
    let writing = tokio::task::spawn_blocking({
        let (programs, build) = (programs.clone(), build.to_owned());
        move || {
            let mut receiving = programs.receive(&build, &from.to_string(), sha256, len)?;
            while let Some(chunk) = coming.blocking_recv() {
                receiving.write(&chunk)?;
            }
            receiving.finish()
        }
    });
    let (mut left, mut piece) = (len, Vec::new());
    while left > 0 {
        match reader.recv_some(left.min(CHUNK as u64) as usize).await {
            Ok(Some(bytes)) => {
                left -= bytes.len() as u64;
                piece.extend_from_slice(&bytes);
            }
            Ok(None) => break,
            Err(e) => {
                tracing::warn!(%from, error = %e, "a program's transfer broke off");
                break;
            }
        }
        // An error means that the writer cannot write, and says so at its end.
        if piece.len() >= CHUNK && chunks.send(std::mem::take(&mut piece)).await.is_err() {
            break;
        }
    }
    if !piece.is_empty() {
        let _ = chunks.send(piece).await;
    }
    drop(chunks);
    let broken = |e| ProgramError::nowhere(build, e, Some(from));
    writing.await.map_err(broken)?
}

async fn blocking<T: Send + 'static>(
    programs: &Arc<Programs>,
    work: impl FnOnce(&Programs) -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    let programs = programs.clone();
    tokio::task::spawn_blocking(move || work(&programs)).await
}
