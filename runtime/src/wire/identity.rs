//! Who may speak on the wire: a certificate authority of the cluster's own, and a certificate a process.
//!
//! Both sides of every connection prove that this CA signed them (TLS 1.3, mutual). Nothing listens without it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::join::Fingerprint;

/// The name that every certificate of a cluster carries: the CA says who belongs, not the name.
pub(super) const SERVER_NAME: &str = "corehold.cluster";

pub(super) const ALPN: &[u8] = b"corehold/1";

/// Keys that could not be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file could not be read or written.
    #[error("{}: {source}; check the folder's owner and free space, or run `corehold keys`", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A private key that others than its owner can read.
    #[error("{}: mode {mode:o} lets others read a private key; run `chmod 600 {}`", path.display(), path.display())]
    Exposed {
        /// The key file.
        path: PathBuf,
        /// Its mode bits.
        mode: u32,
    },
    /// A file that holds no certificate or key.
    #[error("{}: {why}; remove the folder and run `corehold keys` to make new keys", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificates could not be generated or loaded into TLS.
    #[error("certificates: {0}")]
    Tls(String),
}

/// A process's certificate and key, and the CA that it trusts.
pub struct Identity {
    ca: CertificateDer<'static>,
    cert: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads the keys in `dir`, making them first where the folder has none. Private keys
    /// get mode 0600; the folder 0700.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn load_or_create(dir: &Path) -> Result<Self, IdentityError> {
        if !dir.join("ca.pem").exists() {
            Self::create(dir)?;
        }
        Self::load(dir)
    }

    /// Reads the keys in `dir`.
    ///
    /// # Errors
    /// [`IdentityError::Io`] where one is missing, [`IdentityError::Exposed`] where others can read a
    /// private key, [`IdentityError::Malformed`] where a file holds something else.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        let cert = |name: &str| {
            let path = dir.join(name);
            let pem = read(&path)?;
            CertificateDer::from_pem_slice(&pem).map_err(|e| malformed(&path, e))
        };
        let key_path = dir.join("node.key");
        let pem = read(&key_path)?;
        refuse_exposed(&key_path)?;
        Ok(Self {
            ca: cert("ca.pem")?,
            cert: cert("node.pem")?,
            key: PrivateKeyDer::from_pem_slice(&pem).map_err(|e| malformed(&key_path, e))?,
        })
    }

    /// Makes a CA and a certificate signed by it in `dir`, replacing what is there.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn create(dir: &Path) -> Result<(), IdentityError> {
        make_folder(dir)?;
        let tls = |e: rcgen::Error| IdentityError::Tls(e.to_string());

        let ca_key = KeyPair::generate().map_err(tls)?;
        let mut ca = CertificateParams::new(Vec::<String>::new()).map_err(tls)?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name
            .push(DnType::CommonName, "corehold cluster CA");
        let ca_cert = ca.self_signed(&ca_key).map_err(tls)?;

        let key = KeyPair::generate().map_err(tls)?;
        let node = process_params().map_err(tls)?;
        let issuer = Issuer::from_params(&ca, &ca_key);
        let cert = node.signed_by(&key, &issuer).map_err(tls)?;

        write(&dir.join("ca.key"), &ca_key.serialize_pem(), 0o600)?;
        write(&dir.join("node.key"), &key.serialize_pem(), 0o600)?;
        write(&dir.join("node.pem"), &cert.pem(), 0o644)?;
        // Last: its presence says that the set is whole.
        write(&dir.join("ca.pem"), &ca_cert.pem(), 0o644)
    }

    /// Signs the key of a signing request (PKCS #10, DER) with the CA's key in `dir`; gives the CA's certificate and the
    /// new one, as PEM. Nothing else that the request says is taken over.
    ///
    /// # Errors
    /// Where the folder has no CA's key, as on nodes that joined, or the request is none.
    pub fn sign(dir: &Path, request: &[u8]) -> Result<(String, String), IdentityError> {
        let tls = |e: rcgen::Error| IdentityError::Tls(e.to_string());
        let text = |name: &str| {
            let path = dir.join(name);
            String::from_utf8(read(&path)?).map_err(|e| malformed(&path, e))
        };
        let (ca_pem, key_pem) = (text("ca.pem")?, text("ca.key")?);
        refuse_exposed(&dir.join("ca.key"))?;
        let key = KeyPair::from_pem(&key_pem).map_err(tls)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key).map_err(tls)?;
        let request = CertificateSigningRequestParams::from_der(&request.into()).map_err(tls)?;
        let cert = process_params().map_err(tls)?;
        let cert = cert.signed_by(&request.public_key, &issuer).map_err(tls)?;
        Ok((ca_pem, cert.pem()))
    }

    /// Writes the keys of a process that was let in to `dir`; there is no CA's key among them.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn store(dir: &Path, ca: &str, cert: &str, key: &str) -> Result<(), IdentityError> {
        make_folder(dir)?;
        write(&dir.join("node.key"), key, 0o600)?;
        write(&dir.join("node.pem"), cert, 0o644)?;
        // Last: its presence says that the set is whole.
        write(&dir.join("ca.pem"), ca, 0o644)
    }

    /// The CA that it trusts.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.ca)
    }

    /// For who listens; with `strangers` also to those who have no certificate.
    pub(super) fn server_config(
        &self,
        strangers: bool,
    ) -> Result<rustls::ServerConfig, IdentityError> {
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(self.roots()?),
            provider(),
        );
        let verifier = match strangers {
            true => verifier.allow_unauthenticated(),
            false => verifier,
        };
        let verifier = verifier
            .build()
            .map_err(|e| IdentityError::Tls(e.to_string()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls_error)?
            .with_client_cert_verifier(verifier)
            // With the CA: who joins by a token knows only its fingerprint.
            .with_single_cert(
                vec![self.cert.clone(), self.ca.clone()],
                self.key.clone_key(),
            )
            .map_err(tls_error)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    pub(super) fn client_config(&self) -> Result<rustls::ClientConfig, IdentityError> {
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls_error)?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(vec![self.cert.clone()], self.key.clone_key())
            .map_err(tls_error)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// What only who has the private key knows.
    pub(super) fn secret(&self) -> &[u8] {
        self.key.secret_der()
    }

    fn roots(&self) -> Result<rustls::RootCertStore, IdentityError> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.clone()).map_err(tls_error)?;
        Ok(roots)
    }
}

pub(super) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn make_folder(dir: &Path) -> Result<(), IdentityError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| IdentityError::Io {
            path: dir.to_owned(),
            source,
        })
}

/// What a process's certificate says.
fn process_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "corehold process");
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok(params)
}

fn tls_error(e: rustls::Error) -> IdentityError {
    IdentityError::Tls(e.to_string())
}

fn malformed(path: &Path, e: impl std::fmt::Display) -> IdentityError {
    IdentityError::Malformed {
        path: path.to_owned(),
        why: e.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|source| IdentityError::Io {
        path: path.to_owned(),
        source,
    })
}

fn refuse_exposed(path: &Path) -> Result<(), IdentityError> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path)
        .map_err(|source| IdentityError::Io {
            path: path.to_owned(),
            source,
        })?
        .permissions()
        .mode()
        & 0o777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

// The mode is set when the file is made: a key is never readable by others, not for an instant.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let io = |source| IdentityError::Io {
        path: path.to_owned(),
        source,
    };
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)?;
    file.sync_all().map_err(io)
}
