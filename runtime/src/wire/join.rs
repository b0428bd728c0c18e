//! How a process that has no certificate of the cluster gets one.
//!
//! A *join token* names the cluster's CA by its fingerprint and has a secret that the head knows. The joiner connects without
//! a certificate, but goes on only where the other side proves to be signed by that CA; then it gives the secret and a
//! signing request. Its private key never leaves its machine. Whoever has no certificate can say nothing but this, to nobody but
//! a head, and only while that has a token to redeem ([`super::Endpoint::admit_strangers`]).

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::identity::{ALPN, IdentityError, SERVER_NAME, provider};
use super::{Connection, Opening, WireError};

const PREFIX: &str = "corehold";
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The SHA-256 of a CA's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// What lets a node in once, or for a while. It is shown to nobody by `{:?}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 16]);

impl Secret {
    /// A fresh one.
    pub fn draw() -> Self {
        Self(rand::random())
    }

    /// What the head keeps of it: nobody can join with that.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A join token, as an operator carries it from the head to a new node: `corehold-FINGERPRINT-SECRET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The CA to trust.
    pub ca: Fingerprint,
    /// What the head wants to see.
    pub secret: Secret,
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}-{}-{}", hex(&self.ca.0), hex(&self.secret.0))
    }
}

/// A text that is no join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no join token, or not the whole of one; `corehold token` prints one, which begins with `corehold-` and has 106 \
     characters"
)]
pub struct JoinTokenError;

impl FromStr for JoinToken {
    type Err = JoinTokenError;

    fn from_str(text: &str) -> Result<Self, JoinTokenError> {
        let mut parts = text.trim().split('-');
        let token = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(PREFIX), Some(ca), Some(secret), None) => unhex(ca).zip(unhex(secret)),
            _ => None,
        };
        let (ca, secret) = token.ok_or(JoinTokenError)?;
        Ok(Self {
            ca: Fingerprint(ca),
            secret: Secret(secret),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A process without a certificate wants one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Version of the frames that it speaks.
    pub protocol: u32,
    /// Its build.
    pub build: String,
    /// The token's secret.
    pub secret: Secret,
    /// The name that the node wants.
    pub name: String,
    /// A signing request (PKCS #10, DER) for its key.
    pub csr: Vec<u8>,
}

/// What a node needs to be one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// The CA's certificate.
    pub ca_pem: String,
    /// The node's, signed by that CA.
    pub cert_pem: String,
    /// The cluster's name.
    pub cluster: String,
    /// How long nodes go on without a head.
    pub head_lease: Duration,
    /// How long nodes drain that are told to end.
    pub drain: Duration,
}

/// Asks the head at `head` for a certificate.
///
/// # Errors
/// In words, with what to do: where it is out of reach, is not of the token's cluster, or refuses.
pub(crate) async fn ask_admission(
    head: SocketAddr,
    ca: Fingerprint,
    request: JoinRequest,
) -> Result<Admission, String> {
    let unknown = Arc::new(AtomicBool::new(false));
    let result = ask(head, ca, request, unknown.clone()).await;
    match result {
        Ok(answer) => answer,
        Err(_) if unknown.load(Ordering::Relaxed) => Err(format!(
            "{head} is not the head that this token is from (its CA has another fingerprint): check the address, or make \
             a token there with `corehold token`"
        )),
        Err(e @ WireError::Connect { .. }) => Err(format!(
            "{e}; is {head} the head's `listen` address, and can UDP reach it from here?"
        )),
        // The head's door is shut for all who have no certificate.
        Err(e) => Err(format!(
            "the head at {head} lets nobody in by a token now ({e}): this one is used, has expired, or was made before the \
             head started again; make another with `corehold token`"
        )),
    }
}

async fn ask(
    head: SocketAddr,
    ca: Fingerprint,
    request: JoinRequest,
    unknown: Arc<AtomicBool>,
) -> Result<Result<Admission, String>, WireError> {
    let refused = |why: String| WireError::Connect { addr: head, why };
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| refused(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { ca, unknown }))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let config = quinn::crypto::rustls::QuicClientConfig::try_from(config)
        .map_err(|e| refused(e.to_string()))?;
    let any: SocketAddr = match head {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let endpoint = quinn::Endpoint::client(any).map_err(|e| refused(e.to_string()))?;
    let config = quinn::ClientConfig::new(Arc::new(config));
    let connecting = endpoint
        .connect_with(config, head, SERVER_NAME)
        .map_err(|e| refused(e.to_string()))?;
    let inner = tokio::time::timeout(ANSWER_WITHIN, connecting)
        .await
        .map_err(|_| refused(format!("no answer within {ANSWER_WITHIN:?}")))?
        .map_err(|e| refused(e.to_string()))?;
    let connection = Connection::new(inner);
    let asked = async {
        let opening = Opening::Join(Box::new(request));
        let (_writer, mut reader) = connection.open(&opening).await?;
        let answer = reader.recv::<Result<Admission, String>>().await?;
        answer.ok_or_else(|| WireError::Closed("it said nothing".to_owned()))
    };
    let answer = tokio::time::timeout(ANSWER_WITHIN, asked).await;
    connection.close("done");
    answer.unwrap_or_else(|_| Err(WireError::Closed("it does not answer".to_owned())))
}

/// Trusts who is signed by the CA with this fingerprint, which the server sends along.
#[derive(Debug)]
struct Pinned {
    ca: Fingerprint,
    /// Set where there was none.
    unknown: Arc<AtomicBool>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = intermediates.iter().find(|c| Fingerprint::of(c) == self.ca);
        let Some(ca) = ca else {
            self.unknown.store(true, Ordering::Relaxed);
            return Err(rustls::CertificateError::UnknownIssuer.into());
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls13RequiredForQuic.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A key that was made here, and what asks for its certificate.
pub(crate) struct Applicant {
    pub key_pem: String,
    pub csr: Vec<u8>,
}

impl Applicant {
    pub(crate) fn new() -> Result<Self, IdentityError> {
        let tls = |e: rcgen::Error| IdentityError::Tls(e.to_string());
        let key = rcgen::KeyPair::generate().map_err(tls)?;
        let params = rcgen::CertificateParams::new(Vec::<String>::new()).map_err(tls)?;
        let csr = params.serialize_request(&key).map_err(tls)?;
        Ok(Self {
            key_pem: key.serialize_pem(),
            csr: csr.der().to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_is_read_as_it_was_written(ca: [u8; 32], secret: [u8; 16], cut in 0usize..106) {
            let token = JoinToken { ca: Fingerprint(ca), secret: Secret(secret) };
            let text = token.to_string();
            prop_assert_eq!(text.len(), 106);
            prop_assert_eq!(text.parse(), Ok(token.clone()));
            prop_assert_eq!(format!(" {text}\n").parse(), Ok(token));
            prop_assert_eq!(text[..cut].parse::<JoinToken>(), Err(JoinTokenError));
        }

        #[test]
        fn no_text_is_a_surprise(text: String) {
            prop_assert_eq!(text.parse::<JoinToken>(), Err(JoinTokenError));
        }
    }
}
