//! Placement groups: room for several actors, reserved all at once or not at all.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::{Demand, GroupRequest, LabelRule, LabelTest, Milli, Owner, Strategy};
use crate::control::{Request, Response};
use crate::error::{Error, Result};
use crate::ids::GroupId;
use crate::process::Process;

/// What one bundle of a placement group reserves on its node.
#[derive(Clone, Debug)]
#[must_use = "a bundle is a part of a placement group"]
pub struct Bundle {
    demand: std::result::Result<Demand, String>,
}

impl Default for Bundle {
    fn default() -> Self {
        Self::new()
    }
}

impl Bundle {
    /// One that reserves nothing yet.
    pub fn new() -> Self {
        Self {
            demand: Ok(Demand::default()),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Demand)) -> Self {
        if let Ok(demand) = &mut self.demand {
            change(demand);
        }
        self
    }

    fn amount(self, what: &str, amount: f64, set: impl FnOnce(&mut Demand, Milli)) -> Self {
        match Milli::try_from(amount) {
            Ok(amount) => self.with(|demand| set(demand, amount)),
            Err(e) => Self {
                demand: Err(format!("{what}: {e}")),
            },
        }
    }

    /// Shared cores; fractions count.
    pub fn cpus(self, cpus: f64) -> Self {
        self.amount("cpus", cpus, |demand, cpus| demand.cpus = cpus)
    }

    /// Memory in bytes.
    pub fn memory(self, bytes: u64) -> Self {
        self.with(|demand| demand.memory = bytes)
    }

    /// GPUs: so many whole ones, or a fraction of one.
    pub fn gpus(self, gpus: f64) -> Self {
        let bundle = self.amount("gpus", gpus, |demand, gpus| demand.gpus = gpus);
        let flaw = bundle.demand.as_ref().ok().and_then(Demand::flaw);
        match flaw {
            Some(flaw) => Self { demand: Err(flaw) },
            None => bundle,
        }
    }

    /// Whole cores of one NUMA node, for actors in the bundle to hold.
    pub fn hold_cores(self, cores: u32) -> Self {
        self.with(|demand| demand.held_cores = cores)
    }

    /// A custom resource.
    pub fn resource(self, name: impl Into<String>, amount: f64) -> Self {
        let name = name.into();
        self.amount(&name.clone(), amount, |demand, amount| {
            demand.custom.insert(name, amount);
        })
    }

    /// Only on a node whose label `key` is `value`.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.label_where(key, LabelTest::Equals(value.into()))
    }

    /// Only on a node whose label `key` passes `test`.
    pub fn label_where(self, key: impl Into<String>, test: LabelTest) -> Self {
        let key = key.into();
        self.with(|demand| demand.labels.push(LabelRule { key, test }))
    }
}

/// A placement group to be; end it with [`reserve`](Self::reserve).
#[must_use = "a placement group is made by `.reserve().await`"]
pub struct ReserveGroup {
    owner: Owner,
    strategy: Strategy,
    bundles: Vec<Bundle>,
    within: Option<Duration>,
}

impl ReserveGroup {
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            owner,
            strategy: Strategy::default(),
            bundles: Vec::new(),
            within: None,
        }
    }

    /// One bundle more.
    pub fn bundle(mut self, bundle: Bundle) -> Self {
        self.bundles.push(bundle);
        self
    }

    /// So many bundles more, all alike.
    pub fn bundles(mut self, count: usize, bundle: &Bundle) -> Self {
        self.bundles.extend((0..count).map(|_| bundle.clone()));
        self
    }

    /// How the bundles lie to each other (default [`Strategy::Pack`]).
    pub fn strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// How long it may wait for its places before it fails (default 5 minutes), each time: when a node with a
    /// bundle is lost, the group waits again, and ends if it waits in vain.
    pub fn place_within(self, patience: Duration) -> Self {
        let within = Some(patience);
        Self { within, ..self }
    }

    /// It outlives the driver that reserves it; end it with [`PlacementGroup::end`].
    pub fn detached(self) -> Self {
        let owner = Owner::Detached;
        Self { owner, ..self }
    }

    /// Reserves all bundles, or none; returns when they are reserved. A group whose wait is given up (this future
    /// is dropped) ends.
    ///
    /// # Errors
    /// [`Error::Group`] says why, node by node, when it can't be or did not come to be in time.
    pub async fn reserve(self) -> Result<PlacementGroup> {
        let demands = self.bundles.into_iter().map(|bundle| bundle.demand);
        let bundles = demands.collect::<std::result::Result<Vec<_>, String>>();
        let bundles = bundles.map_err(Error::Misuse)?;
        let group = PlacementGroup {
            id: GroupId(rand::random()),
            bundles: bundles.len() as u32,
        };
        let request = GroupRequest {
            group: group.id,
            owner: self.owner,
            strategy: self.strategy,
            bundles,
            place_within: self.within,
        };
        let process = Process::current()?;
        let mut given_up = EndUnlessKept(Some(group.id));
        let answer = process.head.request(Request::Reserve(Box::new(request)));
        let answer = answer.await?;
        given_up.0 = None;
        match answer {
            Ok(Response::Done) => Ok(group),
            Ok(other) => Err(Error::Group(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::Group(why)),
        }
    }
}

struct EndUnlessKept(Option<GroupId>);

impl Drop for EndUnlessKept {
    fn drop(&mut self) {
        if let (Some(group), Ok(process)) = (self.0, Process::current()) {
            let wire = process.wire.clone();
            wire.spawn(async move {
                // Without a head there is no group either.
                let _ = process.head.request(Request::EndGroup { group }).await;
            });
        }
    }
}

/// Room on nodes that is reserved for actors: spawn them with [`Spawn::in_bundle`](super::Spawn::in_bundle). It
/// travels inside messages, and keeps nothing alive: the group ends with its owner or by [`end`](Self::end).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroup {
    id: GroupId,
    bundles: u32,
}

impl PlacementGroup {
    /// Its id, by which `corehold why` knows it.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// How many bundles it has; they are numbered from 0.
    pub fn bundles(&self) -> u32 {
        self.bundles
    }

    /// Ends it, and the actors in it; back when they are dead. What it had is free then.
    ///
    /// # Errors
    /// When the head is out of reach, or an actor does not end, as [`Cluster::stop`](crate::Cluster::stop) says.
    pub async fn end(&self) -> Result<()> {
        let request = Request::EndGroup { group: self.id };
        let answer = Process::current()?.head.request(request).await?;
        answer.map(|_| ()).map_err(Error::Refused)
    }
}
