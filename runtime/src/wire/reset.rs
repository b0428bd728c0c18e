//! How a process that has been started again tells its peers that it knows nothing of their connections.
//!
//! A killed process says nothing, so its peers wait for silence. When another one has taken its address, it answers
//! what comes on old connections with a stateless reset (RFC 9000, section 10.3). It can do so without knowing them because
//! the token of each is made from its id and a key that outlives the process: derived from the node's private key and
//! the address, so that no other address gives tokens away that are good for this one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use ring::hmac;

use super::Identity;

// Every peer of a head that comes back is to be told at once. A reset is smaller than what it answers, so nobody gains
// by asking for them.
const BETWEEN_RESETS: Duration = Duration::from_micros(100);

/// The configuration of the endpoint at `address`: its tokens are the same in every process that is ever there.
pub(super) fn endpoint_config(identity: &Identity, address: SocketAddr) -> EndpointConfig {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, identity.secret());
    let key = hmac::sign(
        &secret,
        format!("corehold reset tokens of {address}").as_bytes(),
    );
    let tokens = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
    let mut config = EndpointConfig::new(Arc::new(tokens));
    config
        .min_reset_interval(BETWEEN_RESETS)
        .cid_generator(|| Box::new(Ids));
    config
}

/// Random ids. Those of quinn carry a checksum under a key that each process draws anew, and one that fails it gets no
/// answer.
struct Ids;

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&rand::random::<[u8; 8]>())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
