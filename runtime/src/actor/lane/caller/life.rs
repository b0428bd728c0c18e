//! A lane's session with one life of its actor, over as many connections as it takes.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{Connection, Ended};
use super::run::Runner;
use crate::actor::lane::LaneOpening;
use crate::control::Location;
use crate::process::AfterLife;
use crate::wire::session::{Limits, Session};
use crate::wire::{FrameReader, FrameWriter, Opening, WireError};

// Waits between attempts to connect.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
// Before the head is asked again after it could not be reached.
const HEAD_AGAIN: Duration = Duration::from_secs(1);

/// How a life ends for its callers.
pub(super) enum Over {
    /// Its process said so, and why.
    Gone(String),
    /// The head said so while the connection was gone (`why`), and what it knows.
    Lost {
        why: String,
        after: Option<AfterLife>,
    },
    /// The session's patience has ended, or its peer has forgotten it.
    GivenUp(String),
    /// Nothing was under way when the connection ended: where the actor is, is asked anew.
    Moved,
}

pub(super) struct Life<'a> {
    runner: &'a mut Runner,
    location: Location,
    pub(super) session: u64,
    replaces: Option<u64>,
    epoch: u32,
    began: Instant,
}

/// What the head says of the end of a life.
type End = Pin<Box<dyn Future<Output = Option<AfterLife>> + Send>>;

impl<'a> Life<'a> {
    pub(super) fn new(runner: &'a mut Runner, location: Location, replaces: Option<u64>) -> Self {
        Self {
            runner,
            location,
            session: rand::random(),
            replaces,
            epoch: 0,
            began: Instant::now(),
        }
    }

    pub(super) async fn run(&mut self) -> Over {
        let limits = Limits::default();
        let mut why = "it was never reached".to_owned();
        let mut wait = FIRST_WAIT;
        // Asked of the head once in a life, when a connection is gone.
        let mut end: Option<End> = None;
        self.runner.shared.lock().session = Some(Session::new(limits, Duration::ZERO));
        loop {
            self.runner.intake();
            match self.connect(&mut end, wait).await {
                Attempt::Connected(writer, reader) => {
                    let connection = Connection {
                        runner: self.runner,
                        epoch: self.epoch,
                    };
                    match connection.run(writer, reader).await {
                        Ended::Lost(lost) => why = lost,
                        Ended::Gone(cause) => return Over::Gone(cause),
                        // A session that has just begun was with nobody else.
                        Ended::NotHere if self.epoch == 1 => {
                            return Over::Gone("its node does not host it any more".to_owned());
                        }
                        Ended::NotHere => why = "its node does not host it any more".to_owned(),
                        Ended::Broken(why) => return Over::GivenUp(why),
                    }
                    let now = self.began.elapsed();
                    let mut state = self.runner.shared.lock();
                    if let Some(session) = &mut state.session {
                        if session.is_connected() {
                            wait = FIRST_WAIT;
                        }
                        session.disconnect(session.epoch(), now);
                    }
                    if state.is_idle() {
                        // The next message must not trust what was known.
                        state.session = None;
                        return Over::Moved;
                    }
                }
                Attempt::Failed(lost) => why = lost,
                Attempt::LifeOver(after) => return Over::Lost { why, after },
                Attempt::OutOfPatience => {
                    let why = format!("{why}; tried for {:?}", limits.patience);
                    if !self.runner.lose_patience(&why) {
                        return Over::GivenUp(why);
                    }
                    let now = self.began.elapsed();
                    if let Some(session) = &mut self.runner.shared.lock().session {
                        session.wait_from(now);
                    }
                }
            }
            end.get_or_insert_with(|| Box::pin(life_end(self.runner, self.location)));
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn connect(&mut self, end: &mut Option<End>, wait: Duration) -> Attempt {
        let (patience, received) = {
            let state = self.runner.shared.lock();
            let session = state.session.as_ref();
            (
                session.and_then(Session::gives_up_at).unwrap_or_default(),
                session.map_or(0, Session::received),
            )
        };
        self.epoch += 1;
        let opening = LaneOpening {
            actor: self.runner.actor,
            incarnation: self.location.incarnation,
            session: self.session,
            epoch: self.epoch,
            received,
            replaces: self.replaces,
        };
        let endpoint = self.runner.process.endpoint.clone();
        let address = self.location.address;
        let first = self.epoch == 1;
        let attempt = async move {
            if !first {
                tokio::time::sleep(wait).await;
            }
            let connection = endpoint.connect(address).await?;
            connection.open(&Opening::Lane(opening)).await
        };
        let life_over = async {
            match end {
                Some(end) => end.await,
                None => std::future::pending().await,
            }
        };
        let give_up_at = self.began + patience;
        let result: Result<(FrameWriter, FrameReader), WireError> = tokio::select! {
            biased;
            after = life_over => return Attempt::LifeOver(after),
            () = tokio::time::sleep_until(give_up_at) => return Attempt::OutOfPatience,
            result = attempt => result,
        };
        match result {
            Ok((writer, reader)) => Attempt::Connected(writer, reader),
            Err(e) => Attempt::Failed(e.to_string()),
        }
    }
}

enum Attempt {
    Connected(FrameWriter, FrameReader),
    Failed(String),
    LifeOver(Option<AfterLife>),
    OutOfPatience,
}

/// Waits until the head says that the life is over.
fn life_end(
    runner: &Runner,
    location: Location,
) -> impl Future<Output = Option<AfterLife>> + Send + use<> {
    let (process, actor) = (runner.process.clone(), runner.actor);
    let incarnation = location.incarnation;
    async move {
        loop {
            if let Ok(after) = process.head.end_of(actor, incarnation).await {
                return after;
            }
            match process.head.over() {
                // Nobody is left who could answer: LN-4.
                Some(cause) => {
                    return Some(AfterLife {
                        restarting: false,
                        with_its_node: true,
                        moved: false,
                        cause,
                    });
                }
                None => tokio::time::sleep(HEAD_AGAIN).await,
            }
        }
    }
}
