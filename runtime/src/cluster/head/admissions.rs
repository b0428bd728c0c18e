//! Nodes that join by a token: who is given a certificate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Head;
use crate::build_id::build_id;
use crate::cluster::ClusterConfig;
use crate::cluster::config::is_name;
use crate::cluster::tokens::Tokens;
use crate::control::Response;
use crate::process::Stranger;
use crate::wire::{Admission, Fingerprint, Identity, JoinRequest, JoinToken, PROTOCOL, Secret};

// Hosts that were cloned have one name: the second one must not take the place of the first.
const PROMISED_FOR: Duration = Duration::from_secs(30);

/// What a head needs to let nodes in.
pub(super) struct Admissions {
    tokens: Tokens,
    keys: PathBuf,
    ca: Fingerprint,
    head_lease: Duration,
    drain: Duration,
    /// Of the nodes in the cluster's file.
    names: Vec<String>,
    /// Names of nodes that were let in a moment ago and may not have joined yet, and until when they are kept for those.
    promised: BTreeMap<String, Duration>,
    /// Tokens of nodes that are launched: the digest of each one's secret, and the only name that it lets in.
    reserved: BTreeMap<[u8; 32], String>,
    /// Whether those without a certificate can connect.
    open: bool,
}

impl Admissions {
    pub(super) fn new(config: &ClusterConfig, keys: PathBuf, ca: Fingerprint) -> Self {
        Self {
            tokens: Tokens::default(),
            keys,
            ca,
            head_lease: config.head_lease,
            drain: config.drain,
            names: {
                let elastic = config.elastic_nodes();
                let all = config.nodes.iter().chain(&elastic);
                all.map(|n| n.name.clone()).collect()
            },
            promised: BTreeMap::new(),
            reserved: BTreeMap::new(),
            open: false,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.tokens.next_deadline()
    }
}

impl Head<'_> {
    /// Makes a token for an operator.
    pub(super) fn make_token(&mut self, expires: Duration, uses: u32) -> Result<Response, String> {
        let token = self.new_token(expires, uses)?;
        tracing::info!(?expires, uses, "made a join token");
        Ok(Response::Token {
            text: token.to_string(),
            head: self.process.address,
        })
    }

    /// Makes the token of a node that is being launched.
    pub(super) fn launch_token(
        &mut self,
        name: &str,
        valid: Duration,
    ) -> Result<JoinToken, String> {
        self.revoke_launch_token(name);
        let token = self.new_token(valid, 1)?;
        let digest = token.secret.digest();
        self.admissions.reserved.insert(digest, name.to_owned());
        Ok(token)
    }

    /// The launch is over that it was made for.
    pub(super) fn revoke_launch_token(&mut self, name: &str) {
        let Admissions {
            tokens, reserved, ..
        } = &mut self.admissions;
        for (digest, _) in reserved.extract_if(.., |_, only| only == name) {
            tokens.revoke(&digest);
        }
        self.watch_door();
    }

    fn new_token(&mut self, expires: Duration, uses: u32) -> Result<JoinToken, String> {
        if !self.admissions.keys.join("ca.key").exists() {
            let keys = self.admissions.keys.display();
            return Err(format!(
                "{keys} has no `ca.key`, so this head can let nobody in: put the cluster's own there, or copy the keys to \
                 the new node by hand"
            ));
        }
        let (now, secret) = (self.now(), Secret::draw());
        let made = self
            .admissions
            .tokens
            .make(secret.digest(), now + expires, uses, now);
        made.map_err(|e| e.to_string())?;
        self.watch_door();
        let ca = self.admissions.ca;
        Ok(JoinToken { ca, secret })
    }

    /// The door is open for strangers while there is a token that lets one in.
    pub(super) fn watch_door(&mut self) {
        let now = self.now();
        self.admissions.tokens.poll(now);
        let open = self.admissions.tokens.any();
        if self.admissions.open != open {
            self.admissions.open = open;
            self.process.endpoint.admit_strangers(open);
        }
    }

    /// Somebody wants a certificate.
    pub(super) fn admit(&mut self, stranger: Stranger) {
        let Stranger {
            request,
            mut writer,
            from,
        } = stranger;
        let name = request.name.clone();
        let answer = self.admission(request, from);
        match &answer {
            Ok(_) => tracing::info!(%name, %from, "let a node in by its token"),
            Err(why) => tracing::warn!(%why, %from, "did not let a node in"),
        }
        self.watch_door();
        self.process.wire.spawn(async move {
            // An error means that it has gone.
            if writer.send(&answer).await.is_ok() {
                writer.finish();
                writer.stopped().await;
            }
        });
    }

    fn admission(&mut self, request: JoinRequest, from: SocketAddr) -> Result<Admission, String> {
        let JoinRequest {
            protocol,
            build,
            secret,
            name,
            csr,
        } = request;
        let now = self.now();
        // Before it hears anything of the cluster.
        let (secret, tokens) = (secret.digest(), &mut self.admissions.tokens);
        tokens.check(&secret, now).map_err(|e| e.to_string())?;
        let ours = build_id();
        if (protocol, &build) != (PROTOCOL, &ours) {
            return Err(format!(
                "this node is build {build}, the cluster runs build {ours}: start the node with the cluster's own build \
                 (the token stays valid)"
            ));
        }
        if !is_name(&name) {
            return Err(format!(
                "`{name}` cannot be a node's name; use 1 to 63 letters, digits, `.`, `_`, `-`, first a letter or digit \
                 (`--name`)"
            ));
        }
        self.admissions.promised.retain(|_, until| *until > now);
        let only = self.admissions.reserved.get(&secret);
        if only.is_some_and(|only| *only != name) {
            return Err(
                "this token was made for a node that is being launched, of another name".to_owned(),
            );
        }
        let others =
            self.admissions.promised.contains_key(&name) || self.admissions.names.contains(&name);
        let member = self.state.membership().by_name(&name).is_some();
        if member || (only.is_none() && others) {
            return Err(format!(
                "the cluster has a node `{name}` already; give this one another name with `--name` (the token stays valid)"
            ));
        }
        let signed = Identity::sign(&self.admissions.keys, &csr);
        let (ca_pem, cert_pem) = signed.map_err(|e| e.to_string())?;
        let tokens = &mut self.admissions.tokens;
        tokens.redeem(&secret, now).map_err(|e| e.to_string())?;
        tracing::debug!(%from, %name, "signed a certificate");
        self.admissions.promised.insert(name, now + PROMISED_FOR);
        Ok(Admission {
            ca_pem,
            cert_pem,
            cluster: self.name.clone(),
            head_lease: self.admissions.head_lease,
            drain: self.admissions.drain,
        })
    }
}
