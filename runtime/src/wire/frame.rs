//! Length-prefixed frames on a QUIC stream.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use quinn::{RecvStream, SendStream};

use super::codec::encode_onto;
use super::{WireError, decode};

/// The longest frame, in bytes (64 MiB). What is larger is an object, not a frame.
pub const MAX_FRAME: usize = 64 << 20;

// Frames that are ready leave together; none waits for more.
const FLUSH_AT: usize = 64 << 10;
// A frame's length comes before it, as a little-endian u32.
const PREFIX: usize = 4;
// A length prefix is a claim, not a fact: memory is given as bytes arrive.
const GROW_BY: usize = 256 << 10;

/// Writes frames to a stream, many to one write.
pub struct FrameWriter {
    stream: SendStream,
    buffer: Vec<u8>,
}

impl FrameWriter {
    /// A writer to `stream`.
    pub fn new(stream: SendStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Adds a frame to the buffer; true when the buffer should be flushed before more are added.
    ///
    /// # Errors
    /// [`WireError::TooLong`] for a value of more than [`MAX_FRAME`] bytes: put it as an object.
    pub fn push<T: serde::Serialize>(&mut self, value: &T) -> Result<bool, WireError> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; PREFIX]);
        let written = encode_onto(value, &mut self.buffer);
        let len = self.buffer.len() - start - PREFIX;
        if written.is_err() || len > MAX_FRAME {
            self.buffer.truncate(start);
            written?;
            return Err(WireError::TooLong { len });
        }
        self.buffer[start..start + PREFIX].copy_from_slice(&(len as u32).to_le_bytes());
        Ok(self.buffer.len() >= FLUSH_AT)
    }

    /// Hands the buffered frames to the transport, waiting while its flow control is shut.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the stream or the connection is gone.
    pub async fn flush(&mut self) -> Result<(), WireError> {
        let result = self.stream.write_all(&self.buffer).await;
        self.buffer.clear();
        // A burst must not keep its memory for the life of the lane.
        self.buffer.shrink_to(4 * FLUSH_AT);
        result.map_err(WireError::closed)
    }

    /// As [`flush`](Self::flush), unless the peer takes less than 64 KiB in `patience`: then false, and the stream can
    /// only be [abandoned](Self::abandon).
    ///
    /// # Errors
    /// [`WireError::Closed`] when the stream or the connection is gone.
    pub async fn flush_within(&mut self, patience: Duration) -> Result<bool, WireError> {
        for piece in self.buffer.chunks(FLUSH_AT) {
            let Ok(written) = tokio::time::timeout(patience, self.stream.write_all(piece)).await
            else {
                return Ok(false);
            };
            written.map_err(WireError::closed)?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(4 * FLUSH_AT);
        Ok(true)
    }

    /// [`push`](Self::push) and [`flush`](Self::flush).
    ///
    /// # Errors
    /// Theirs.
    pub async fn send<T: serde::Serialize>(&mut self, value: &T) -> Result<(), WireError> {
        self.push(value)?;
        self.flush().await
    }

    /// Writes bytes outside of any frame (object contents, after their header frame).
    ///
    /// # Errors
    /// [`WireError::Closed`] when the stream or the connection is gone.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(WireError::closed)
    }

    /// Says that nothing more comes.
    pub fn finish(&mut self) {
        // An error means that the peer is gone already, which is as finished as can be.
        let _ = self.stream.finish();
    }

    /// Gives the stream up: the peer sees that it was broken off, not that it ended.
    pub fn abandon(&mut self) {
        // An error means that it has ended already.
        let _ = self.stream.reset(0u32.into());
    }

    /// Completes when the peer no longer wants what this side writes, or is gone.
    pub async fn stopped(&mut self) {
        let _ = self.stream.stopped().await;
    }
}

/// Reads frames from a stream. Not cancel safe: own it in one task.
pub struct FrameReader {
    stream: RecvStream,
    /// What has come and is not read yet: often many small frames at once.
    buffer: BytesMut,
    /// The longest frame that is read.
    longest: usize,
}

impl FrameReader {
    /// A reader of `stream`.
    pub fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            longest: MAX_FRAME,
        }
    }

    /// From now on no longer frame is read than of so many bytes.
    pub(super) fn limit(&mut self, longest: usize) {
        self.longest = longest.min(MAX_FRAME);
    }

    /// The next frame; `None` when the peer has finished.
    ///
    /// # Errors
    /// [`WireError::TooLong`] for a frame over [`MAX_FRAME`], [`WireError::Codec`] for bytes
    /// that are not a `T`, [`WireError::Closed`] when the connection is gone, [`WireError::Ended`] when the peer
    /// has ended it.
    pub async fn recv<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        loop {
            if let Some(prefix) = self.buffer.first_chunk::<PREFIX>() {
                let len = u32::from_le_bytes(*prefix) as usize;
                if len > self.longest {
                    return Err(WireError::TooLong { len });
                }
                if let Some(frame) = self.buffer.get(PREFIX..PREFIX + len) {
                    let value = decode(frame)?;
                    self.buffer.advance(PREFIX + len);
                    if self.buffer.is_empty() && self.buffer.capacity() > 4 * GROW_BY {
                        // A burst must not keep its memory for the life of the lane.
                        self.buffer = BytesMut::new();
                    }
                    return Ok(Some(value));
                }
            }
            let chunk = self.stream.read_chunk(GROW_BY, true).await;
            match chunk.map_err(|e| read_error(e.into()))? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk.bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(WireError::Closed("the stream ended within a frame".into())),
            }
        }
    }

    /// At most `most` bytes that belong to no frame, as they come; `None` when the peer has finished.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the connection is gone, [`WireError::Ended`] when the peer has ended it.
    pub async fn recv_some(&mut self, most: usize) -> Result<Option<Bytes>, WireError> {
        if !self.buffer.is_empty() {
            let ready = self.buffer.split_to(most.min(self.buffer.len()));
            return Ok(Some(ready.freeze()));
        }
        let chunk = self.stream.read_chunk(most, true).await;
        let chunk = chunk.map_err(|e| read_error(e.into()))?;
        Ok(chunk.map(|chunk| chunk.bytes))
    }

    /// Exactly `len` bytes that belong to no frame.
    ///
    /// # Errors
    /// [`WireError::Closed`] when fewer came.
    pub async fn recv_raw(&mut self, len: usize) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::with_capacity(len.min(GROW_BY));
        let ready = self.buffer.split_to(len.min(self.buffer.len()));
        bytes.extend_from_slice(&ready);
        while bytes.len() < len {
            let start = bytes.len();
            bytes.resize(len.min(start + GROW_BY), 0);
            self.stream
                .read_exact(&mut bytes[start..])
                .await
                .map_err(read_error)?;
        }
        Ok(bytes)
    }
}

fn read_error(e: quinn::ReadExactError) -> WireError {
    use quinn::{ConnectionError, ReadError, ReadExactError};
    match e {
        ReadExactError::ReadError(ReadError::ConnectionLost(
            ConnectionError::ApplicationClosed(close),
        )) => WireError::Ended(String::from_utf8_lossy(&close.reason).into_owned()),
        other => WireError::closed(other),
    }
}
