//! Join tokens: what lets a node in that has no certificate yet.
//!
//! Sans-I/O: digests of secrets and the time go in. They are not written down: a head that starts again has none.
//!
//! Invariants:
//! - TK-1: a token admits at most as many nodes as it was made for, and none from its expiry on.
//! - TK-2: a token that was ever made and not forgotten is refused for what became of it, any other as unknown.
//! - TK-3: the table is bounded: [`MOST`] that are valid, and as many that are over.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most tokens that are valid at once.
pub const MOST: usize = 256;

type Digest = [u8; 32];

/// Why a token does not let a node in, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// It was never made here.
    #[error(
        "the head does not know this token: it was made before the head started again, or for another cluster; make \
         another with `corehold token`"
    )]
    Unknown,
    /// Its time is over.
    #[error(
        "this token has expired; make another with `corehold token`, which stays valid for longer with `--expires 24h`"
    )]
    Expired,
    /// It has let in as many as it was made for.
    #[error(
        "this token is used: it has let in as many nodes as it was made for; make another with `corehold token`, for more \
         nodes with `--uses N`"
    )]
    Used,
    /// It was taken back.
    #[error(
        "this token was taken back: the launch that it was made for is over; a launched node needs no token of yours, and for \
         another make one with `corehold token`"
    )]
    Revoked,
}

/// There are too many that are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST} join tokens are valid already: use one of them, or wait until some have expired")]
pub struct TooManyTokens;

#[derive(Debug)]
struct Valid {
    until: Duration,
    uses: u32,
}

/// The tokens of a head.
#[derive(Debug, Default)]
pub struct Tokens {
    valid: BTreeMap<Digest, Valid>,
    over: VecDeque<(Digest, TokenRefused)>,
}

impl Tokens {
    /// Makes one valid for `uses` nodes, until `until`.
    ///
    /// # Errors
    /// [`TooManyTokens`].
    pub fn make(
        &mut self,
        digest: Digest,
        until: Duration,
        uses: u32,
        now: Duration,
    ) -> Result<(), TooManyTokens> {
        self.poll(now);
        if self.valid.len() >= MOST {
            return Err(TooManyTokens);
        }
        self.valid.insert(digest, Valid { until, uses });
        Ok(())
    }

    /// Whether the token would let a node in.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check(&mut self, digest: &Digest, now: Duration) -> Result<(), TokenRefused> {
        self.poll(now);
        if self.valid.contains_key(digest) {
            return Ok(());
        }
        let over = self.over.iter().find(|(known, _)| known == digest);
        Err(over.map_or(TokenRefused::Unknown, |(_, why)| *why))
    }

    /// Uses a token up, once.
    ///
    /// # Errors
    /// Why it lets nobody in.
    pub fn redeem(&mut self, digest: &Digest, now: Duration) -> Result<(), TokenRefused> {
        self.check(digest, now)?;
        if let Some(token) = self.valid.get_mut(digest) {
            token.uses = token.uses.saturating_sub(1);
            if token.uses == 0 {
                self.end(*digest, TokenRefused::Used);
            }
        }
        Ok(())
    }

    /// Takes one back, if it is valid still.
    pub fn revoke(&mut self, digest: &Digest) {
        if self.valid.contains_key(digest) {
            self.end(*digest, TokenRefused::Revoked);
        }
    }

    /// Whether any is valid.
    pub fn any(&self) -> bool {
        !self.valid.is_empty()
    }

    /// Lets time pass: call it at [`Tokens::next_deadline`] or later.
    pub fn poll(&mut self, now: Duration) {
        let due = self.valid.iter().filter(|(_, token)| token.until <= now);
        for digest in due.map(|(digest, _)| *digest).collect::<Vec<_>>() {
            self.end(digest, TokenRefused::Expired);
        }
    }

    /// When the next one expires.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.valid.values().map(|token| token.until).min()
    }

    fn end(&mut self, digest: Digest, why: TokenRefused) {
        self.valid.remove(&digest);
        if self.over.len() == MOST {
            self.over.pop_front();
        }
        self.over.push_back((digest, why));
    }
}
