//! Which drivers are there: what a driver owns ends when it is gone.
//!
//! Sans-I/O: events and the time go in, the drivers that are gone for good come out.
//!
//! Invariants:
//! - DR-1: a driver that leaves in good order is gone at once; one whose connection ended is gone
//!   [`Grace::reconnect_within`] later, if it does not come again.
//! - DR-2: after the head's restart every driver that owns something has [`Grace::after_restart`] to come again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long drivers may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grace {
    /// Time to connect again after a connection that ended.
    pub reconnect_within: Duration,
    /// Time to connect again after the head's restart.
    pub after_restart: Duration,
}

impl Default for Grace {
    /// 2 s, and 10 s after the head's restart.
    fn default() -> Self {
        Grace {
            reconnect_within: Duration::from_secs(2),
            after_restart: Duration::from_secs(10),
        }
    }
}

/// What happens to drivers. A driver is named by the id that it drew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// It connected.
    Joined(u64),
    /// Its connection ended.
    Disconnected(u64),
    /// It is done.
    Left(u64),
}

/// The drivers. Those that are connected need no entry: nothing is due for them.
#[derive(Debug)]
pub(super) struct Drivers {
    grace: Grace,
    /// When those are given up that are away.
    away: BTreeMap<u64, Duration>,
}

impl Drivers {
    pub(super) fn new(grace: Grace) -> Self {
        Drivers {
            grace,
            away: BTreeMap::new(),
        }
    }

    /// The head has restarted: these own something.
    pub(super) fn restore(grace: Grace, owners: impl Iterator<Item = u64>, now: Duration) -> Self {
        let until = now + grace.after_restart;
        Drivers {
            grace,
            away: owners.map(|driver| (driver, until)).collect(),
        }
    }

    /// Takes an event in; true if the driver is gone by it.
    pub(super) fn handle(&mut self, event: DriverEvent, now: Duration) -> bool {
        match event {
            DriverEvent::Joined(driver) => {
                self.away.remove(&driver);
                false
            }
            DriverEvent::Disconnected(driver) => {
                self.away
                    .entry(driver)
                    .or_insert(now + self.grace.reconnect_within);
                false
            }
            DriverEvent::Left(driver) => {
                self.away.remove(&driver);
                true
            }
        }
    }

    /// Those that are given up now.
    pub(super) fn poll(&mut self, now: Duration) -> Vec<u64> {
        let gone: Vec<u64> = self
            .away
            .iter()
            .filter(|&(_, &until)| until <= now)
            .map(|(&driver, _)| driver)
            .collect();
        for driver in &gone {
            self.away.remove(driver);
        }
        gone
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.away.values().min().copied()
    }
}
