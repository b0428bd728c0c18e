use corehold::cluster::supervision::{Backoff, Fate, Supervisor, Terms};
use corehold::cluster::{DeathCause, Restart};

use crate::{ms, s};

fn panic() -> DeathCause {
    DeathCause::Panic("boom".to_owned())
}

#[test]
fn waits_double_up_to_the_cap_sv2() {
    let waits: Vec<_> = (1..=9)
        .map(|attempt| Backoff::default().wait(attempt))
        .collect();
    let wanted = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map(ms);
    assert_eq!(waits, wanted);
    assert_eq!(Backoff::default().wait(u32::MAX), s(10));
}

#[test]
fn budget_is_spent_and_the_last_cause_kept_sv1_sv4() {
    let mut supervisor = Supervisor::new(Restart::on_failure(2), Backoff::default());
    supervisor.started(s(0));
    assert_eq!(
        supervisor.ended(panic(), s(1)),
        Fate::Restart {
            at: s(1) + ms(100),
            attempt: 1
        }
    );
    supervisor.started(s(2));
    assert_eq!(
        supervisor.ended(panic(), s(3)),
        Fate::Restart {
            at: s(3) + ms(200),
            attempt: 2
        }
    );
    supervisor.started(s(4));
    let Fate::Dead(cause) = supervisor.ended(panic(), s(5)) else {
        panic!("a third restart")
    };
    assert_eq!(
        cause.to_string(),
        "given up after 2 restarts; the last time it panicked: boom"
    );
}

#[test]
fn a_long_life_forgives_and_a_long_start_does_not_sv1() {
    let mut supervisor = Supervisor::new(Restart::on_failure(1), Backoff::default());
    supervisor.started(s(0));
    assert!(matches!(
        supervisor.ended(panic(), s(1)),
        Fate::Restart { attempt: 1, .. }
    ));
    supervisor.started(s(2));
    assert!(matches!(
        supervisor.ended(panic(), s(62)),
        Fate::Restart { attempt: 1, .. }
    ));
    // It never came alive: two minutes of trying are no life.
    assert!(matches!(
        supervisor.ended(panic(), s(200)),
        Fate::Dead(DeathCause::GaveUp { .. })
    ));
}

#[test]
fn who_restarts_after_what_sv3() {
    let stopped = DeathCause::Stopped {
        by: "a test".to_owned(),
    };
    let lost = DeathCause::NodeLost("bench: silent".to_owned());
    let table = [
        (Restart::Never, panic(), false),
        (Restart::on_failure(0), panic(), false),
        (Restart::on_failure(1), panic(), true),
        (Restart::on_failure(1), lost, true),
        (Restart::on_failure(1), DeathCause::Finished, false),
        (Restart::on_failure(1), stopped.clone(), false),
        (Restart::Always, DeathCause::Finished, true),
        (Restart::Always, panic(), true),
        (Restart::Always, stopped, false),
        (Restart::Always, DeathCause::OwnerGone, false),
        (
            Restart::Always,
            DeathCause::Unplaceable(String::new()),
            false,
        ),
    ];
    for (policy, cause, again) in table {
        let fate = Supervisor::new(policy, Backoff::default()).ended(cause.clone(), s(1));
        assert_eq!(
            matches!(fate, Fate::Restart { .. }),
            again,
            "{policy:?} after {cause}"
        );
    }
}

#[test]
fn a_window_counts_the_restarts_in_it_and_forgets_older_ones_sv1() {
    let terms = Terms {
        within: Some(s(10)),
        backoff: Some(Backoff {
            start: ms(1),
            cap: ms(4),
            ..Backoff::default()
        }),
    };
    let mut supervisor = Supervisor::new(Restart::on_failure(2), Backoff::default()).on(terms);
    let restarts = |fate: Fate| match fate {
        Fate::Restart { at, attempt } => (at, attempt),
        dead => panic!("{dead:?}"),
    };
    assert_eq!(restarts(supervisor.ended(panic(), s(0))), (ms(1), 1));
    assert_eq!(restarts(supervisor.ended(panic(), s(9))), (s(9) + ms(2), 2));
    // The first is 10 s ago: it no longer counts. The waits still grow, and end with the cap.
    assert_eq!(
        restarts(supervisor.ended(panic(), s(10))),
        (s(10) + ms(4), 3)
    );
    assert_eq!(
        restarts(supervisor.ended(panic(), s(19))),
        (s(19) + ms(4), 4)
    );
    let Fate::Dead(cause) = supervisor.ended(panic(), s(19) + ms(5)) else {
        panic!("a third restart in 10 s")
    };
    assert!(
        cause.to_string().contains("given up after 2 restarts"),
        "{cause}"
    );
}
