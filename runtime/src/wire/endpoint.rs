//! The QUIC endpoint of a process: one UDP port, mutual TLS, connections by address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::identity::SERVER_NAME;
use super::socket::Counted;
use super::{CodecError, FrameReader, FrameWriter, Identity, IdentityError, Opening, reset};

// A dead peer is noticed by silence (a killed process says nothing): well within the 5 s promised.
const IDLE_TIMEOUT: Duration = Duration::from_millis(3_000);
const KEEP_ALIVE: Duration = Duration::from_millis(700);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
// Streams a peer may hold open at once: one for each of its actors' lanes and objects in flight. Each that may be costs
// memory, so a connection begins with few and is allowed more as they are used.
const FIRST_STREAMS: u32 = 256;
const MOST_STREAMS: u32 = 1 << 18;
// The longest frame of a peer that has no certificate: a signing request and a name.
const STRANGERS_FRAME: usize = 16 << 10;
// What one lane may have in flight before its sender waits.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// What goes wrong between two processes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WireError {
    /// The UDP socket could not be had.
    #[error(
        "cannot listen on UDP {addr}: {why}; choose another `listen` address in cluster.toml, or stop what uses it"
    )]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        why: String,
    },
    /// No connection came about.
    #[error("cannot connect to {addr}: {why}")]
    Connect {
        /// The peer.
        addr: SocketAddr,
        /// What TLS or QUIC said.
        why: String,
    },
    /// The stream or its connection ended.
    #[error("connection closed: {0}")]
    Closed(String),
    /// The peer ended the connection on purpose.
    #[error("the peer ended the connection: {0}")]
    Ended(String),
    /// A frame that is longer than any may be.
    #[error(
        "a frame of {len} bytes is over the limit of {} bytes; put large values as objects",
        super::MAX_FRAME
    )]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Bytes that are not what they should be.
    #[error("{0}")]
    Codec(Arc<CodecError>),
    /// Keys.
    #[error("{0}")]
    Identity(Arc<IdentityError>),
}

impl WireError {
    pub(super) fn closed(e: impl std::fmt::Display) -> Self {
        Self::Closed(e.to_string())
    }
}

impl From<CodecError> for WireError {
    fn from(e: CodecError) -> Self {
        Self::Codec(Arc::new(e))
    }
}

impl From<IdentityError> for WireError {
    fn from(e: IdentityError) -> Self {
        Self::Identity(Arc::new(e))
    }
}

/// A process's place on the network. Cheap to clone.
#[derive(Clone)]
pub struct Endpoint {
    inner: quinn::Endpoint,
    client: quinn::ClientConfig,
    /// For those with a certificate, and for all.
    servers: [quinn::ServerConfig; 2],
    connections: Arc<Mutex<HashMap<SocketAddr, Slot>>>,
}

// One attempt an address at a time: callers that come meanwhile wait for it.
type Slot = Arc<tokio::sync::Mutex<Option<Connection>>>;

impl Endpoint {
    /// Listens on `addr` (port 0: any). Call it on the wire's runtime.
    ///
    /// # Errors
    /// [`WireError::Bind`] where the port is taken, [`WireError::Identity`] for unusable keys.
    pub fn bind(addr: SocketAddr, identity: &Identity) -> Result<Self, WireError> {
        let tls = |e: &dyn std::fmt::Display| WireError::from(IdentityError::Tls(e.to_string()));
        let mut transport = quinn::TransportConfig::default();
        let idle = IDLE_TIMEOUT.try_into().map_err(|e| tls(&e))?;
        transport
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(KEEP_ALIVE))
            .max_concurrent_bidi_streams(FIRST_STREAMS.into())
            .max_concurrent_uni_streams(0u32.into())
            .stream_receive_window(STREAM_WINDOW.into())
            .receive_window(CONNECTION_WINDOW.into())
            .send_window(u64::from(CONNECTION_WINDOW));
        let transport = Arc::new(transport);

        let server = |strangers: bool| {
            let config = identity.server_config(strangers)?;
            let config =
                quinn::crypto::rustls::QuicServerConfig::try_from(config).map_err(|e| tls(&e))?;
            let mut server = quinn::ServerConfig::with_crypto(Arc::new(config));
            server.transport_config(transport.clone());
            Ok::<_, WireError>(server)
        };
        let servers = [server(false)?, server(true)?];
        let client = quinn::crypto::rustls::QuicClientConfig::try_from(identity.client_config()?)
            .map_err(|e| tls(&e))?;
        let mut client = quinn::ClientConfig::new(Arc::new(client));
        client.transport_config(transport.clone());

        let taken = |e: std::io::Error| WireError::Bind {
            addr,
            why: e.to_string(),
        };
        let socket = std::net::UdpSocket::bind(addr).map_err(taken)?;
        let config = reset::endpoint_config(identity, socket.local_addr().map_err(taken)?);
        let runtime: Arc<dyn quinn::Runtime> = Arc::new(quinn::TokioRuntime);
        let socket = Counted(runtime.wrap_udp_socket(socket).map_err(taken)?);
        let socket = Arc::new(socket);
        let inner = quinn::Endpoint::new_with_abstract_socket(
            config,
            Some(servers[0].clone()),
            socket,
            runtime,
        )
        .map_err(taken)?;
        Ok(Self {
            inner,
            client,
            servers,
            connections: Arc::default(),
        })
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// [`WireError::Closed`] after [`close`](Self::close).
    pub fn local_addr(&self) -> Result<SocketAddr, WireError> {
        self.inner.local_addr().map_err(WireError::closed)
    }

    /// Lets in who has no certificate, or nobody such from now on: [`Connection::is_stranger`].
    pub fn admit_strangers(&self, on: bool) {
        let config = self.servers[usize::from(on)].clone();
        self.inner.set_server_config(Some(config));
    }

    /// The next peer that knocks; `None` once the endpoint is closed. Finish the handshake in a
    /// task of its own, so that a slow peer holds up no other.
    pub async fn accept(&self) -> Option<Handshake> {
        Some(Handshake {
            inner: self.inner.accept().await?,
        })
    }

    /// The connection to `addr`: the one that is open, else a new one.
    ///
    /// # Errors
    /// [`WireError::Connect`] where nobody answers in time or TLS refuses.
    pub async fn connect(&self, addr: SocketAddr) -> Result<Connection, WireError> {
        let slot = {
            let mut connections = self.connections.lock().expect("no panic while held");
            // Addresses of the dead do not pile up over a long life.
            if connections.len() > 1_024 {
                connections
                    .retain(|_, slot| slot.try_lock().is_err() || Arc::strong_count(slot) > 1);
            }
            connections.entry(addr).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref()
            && connection.inner.close_reason().is_none()
        {
            return Ok(connection.clone());
        }
        let refused = |why: String| WireError::Connect { addr, why };
        let connecting = self
            .inner
            .connect_with(self.client.clone(), addr, SERVER_NAME)
            .map_err(|e| refused(e.to_string()))?;
        let inner = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| refused(format!("no answer within {CONNECT_TIMEOUT:?}")))?
            .map_err(|e| refused(e.to_string()))?;
        let connection = Connection { inner };
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Ends the connection to `addr`, so that whoever waits on it is told at once.
    pub fn disconnect(&self, addr: SocketAddr, why: &str) {
        let slot = self
            .connections
            .lock()
            .expect("no panic while held")
            .remove(&addr);
        if let Some(slot) = slot
            && let Ok(slot) = slot.try_lock()
            && let Some(connection) = slot.as_ref()
        {
            connection.close(why);
        }
    }

    /// Ends every connection and lets the peers know, waiting briefly for the words to leave.
    pub async fn close(&self, why: &str) {
        self.inner.close(0u32.into(), why.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(300), self.inner.wait_idle()).await;
    }
}

/// A peer that has not proved yet who it is.
pub struct Handshake {
    inner: quinn::Incoming,
}

impl Handshake {
    /// The connection, where the peer has a certificate of this cluster's CA; else a log line.
    pub async fn finish(self) -> Option<Connection> {
        let from = self.inner.remote_address();
        match self.inner.await {
            Ok(inner) => Some(Connection { inner }),
            Err(e) => {
                tracing::warn!(%from, error = %e, "refused a connection");
                None
            }
        }
    }
}

/// A connection to one peer process. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    inner: quinn::Connection,
}

/// A conversation that a peer has begun.
pub struct Incoming {
    /// What it is for.
    pub opening: Opening,
    /// This side's words.
    pub writer: FrameWriter,
    /// The peer's words.
    pub reader: FrameReader,
}

impl Connection {
    pub(super) fn new(inner: quinn::Connection) -> Self {
        Self { inner }
    }

    /// Whether the peer has shown no certificate: it may join, and nothing else.
    pub fn is_stranger(&self) -> bool {
        self.inner.peer_identity().is_none()
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// Begins a conversation.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the connection is gone.
    pub async fn open(&self, opening: &Opening) -> Result<(FrameWriter, FrameReader), WireError> {
        let (send, recv) = self.inner.open_bi().await.map_err(WireError::closed)?;
        let mut writer = FrameWriter::new(send);
        writer.send(opening).await?;
        Ok((writer, FrameReader::new(recv)))
    }

    /// The next stream that the peer opens; its opening is read by [`Accepted::opening`], so
    /// that a peer which says nothing holds up no other stream. `None` when the connection ends.
    pub async fn accept(&self) -> Option<Accepted> {
        let (send, recv) = self.inner.accept_bi().await.ok()?;
        Some(Accepted {
            writer: FrameWriter::new(send),
            reader: FrameReader::new(recv),
        })
    }

    /// Lets the peer have twice as many streams as `open`, if that is more than it may have.
    pub fn make_room(&self, open: u32) {
        let may_have = open.saturating_mul(2).next_power_of_two();
        if may_have > FIRST_STREAMS {
            let may_have = may_have.min(MOST_STREAMS);
            self.inner.set_max_concurrent_bi_streams(may_have.into());
        }
    }

    /// Ends it.
    pub fn close(&self, why: &str) {
        self.inner.close(0u32.into(), why.as_bytes());
    }

    /// Completes when the connection has ended, with the reason.
    pub async fn closed(&self) -> String {
        self.inner.closed().await.to_string()
    }
}

/// A stream whose purpose is not known yet.
pub struct Accepted {
    writer: FrameWriter,
    reader: FrameReader,
}

impl Accepted {
    /// From a peer that nobody knows: it may say little.
    pub fn of_stranger(mut self) -> Self {
        self.reader.limit(STRANGERS_FRAME);
        self
    }

    /// Reads what the stream is for.
    ///
    /// # Errors
    /// [`WireError::Codec`] for garbage, [`WireError::Closed`] for a stream that ended first or
    /// said nothing for too long.
    pub async fn opening(mut self) -> Result<Incoming, WireError> {
        let opening = tokio::time::timeout(CONNECT_TIMEOUT, self.reader.recv())
            .await
            .map_err(|_| WireError::Closed("the stream said nothing".into()))??
            .ok_or_else(|| WireError::Closed("the stream ended before its first frame".into()))?;
        Ok(Incoming {
            opening,
            writer: self.writer,
            reader: self.reader,
        })
    }
}
