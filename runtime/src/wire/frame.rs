//! Length-prefixed frames on a QUIC stream.

use std::time::Duration;

use quinn::{RecvStream, SendStream};

use super::{WireError, decode, encode};

/// The longest frame, in bytes (64 MiB). What is larger is an object, not a frame.
pub const MAX_FRAME: usize = 64 << 20;

// Frames that are ready leave together; none waits for more.
const FLUSH_AT: usize = 64 << 10;
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
        let bytes = encode(value)?;
        if bytes.len() > MAX_FRAME {
            return Err(WireError::TooLong { len: bytes.len() });
        }
        self.buffer
            .extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&bytes);
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
    /// only be [aborted](Self::abort).
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

    /// Ends the stream at once: what has not been sent is not.
    pub fn abort(&mut self) {
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
}

impl FrameReader {
    /// A reader of `stream`.
    pub fn new(stream: RecvStream) -> Self {
        Self { stream }
    }

    /// The next frame; `None` when the peer has finished.
    ///
    /// # Errors
    /// [`WireError::TooLong`] for a frame over [`MAX_FRAME`], [`WireError::Codec`] for bytes
    /// that are not a `T`, [`WireError::Closed`] when the connection is gone.
    pub async fn recv<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        let mut prefix = [0u8; 4];
        match self.stream.read_exact(&mut prefix).await {
            Ok(()) => {}
            Err(quinn::ReadExactError::FinishedEarly(0)) => return Ok(None),
            Err(e) => return Err(WireError::closed(e)),
        }
        let len = u32::from_le_bytes(prefix) as usize;
        if len > MAX_FRAME {
            return Err(WireError::TooLong { len });
        }
        Ok(Some(decode(&self.recv_raw(len).await?)?))
    }

    /// Exactly `len` bytes that belong to no frame.
    ///
    /// # Errors
    /// [`WireError::Closed`] when fewer came.
    pub async fn recv_raw(&mut self, len: usize) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::with_capacity(len.min(GROW_BY));
        while bytes.len() < len {
            let start = bytes.len();
            bytes.resize(len.min(start + GROW_BY), 0);
            self.stream
                .read_exact(&mut bytes[start..])
                .await
                .map_err(WireError::closed)?;
        }
        Ok(bytes)
    }
}
