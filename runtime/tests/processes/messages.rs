//! What becomes of a message: cancellation, deadlines, fates; the same in one process and between two.

use std::time::Duration;

use corehold::Fate;
use corehold::prelude::*;
use futures_util::StreamExt as _;

use crate::actors::{Keep, KeepMany, Keeper, Kept, Panic, Slow, Whereabouts};
use crate::cluster::{ONE, TestCluster};
use crate::tester::{Clear, CountUp, Hang, How, Pair, Spell, Tester, Then};

pub const CASES: &[(&str, fn())] = &[
    ("a_dropped_ask_ends_its_handlers_future", dropped_running),
    ("a_dropped_ask_is_taken_out_of_the_mailbox", dropped_waiting),
    ("a_late_message_is_not_begun", late),
    ("an_actors_death_says_what_was_begun", fates),
    (
        "a_panic_in_a_handlers_future_ends_the_actor",
        panic_in_future,
    ),
    (
        "asks_with_retry_stay_in_order_in_one_process",
        retry_at_home,
    ),
    ("a_stream_ends_when_its_handlers_does", stream_ends),
    ("a_stream_goes_as_fast_as_its_asker", stream_waits),
    ("a_dropped_stream_is_dropped_at_its_handler", stream_dropped),
    (
        "a_stream_that_fails_says_so_after_its_replies",
        stream_fails,
    ),
];

/// Runs `test` against an actor from this process, and from another actor in its own.
fn far_and_near(test: impl AsyncFn(Pair)) {
    TestCluster::up(ONE).drive(async |cluster| {
        for near in [false, true] {
            let tester = cluster.actor(Tester::default()).spawn().await?;
            let asker = match near {
                true => Some(cluster.actor(Tester::default()).spawn().await?),
                false => None,
            };
            test(Pair { tester, asker }).await;
        }
        Ok(())
    });
}

fn dropped_running() {
    far_and_near(async |pair| {
        for how in [How::Future, How::ActFuture] {
            pair.ask_and_drop(Hang { id: 1, how }).await;
            let log = pair.log_until("dropped 1").await;
            assert_eq!(log, ["begun 1", "dropped 1"]);
            pair.tester.ask(Clear).await.unwrap();
        }
    });
}

fn dropped_waiting() {
    far_and_near(async |pair| {
        // A handler that blocks its actor: what comes behind it waits in the mailbox.
        let blocked = pair.tester.ask(Hang {
            id: 1,
            how: How::Block(600),
        });
        let dropped = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            pair.ask_and_drop(Hang {
                id: 2,
                how: How::Block(0),
            })
            .await;
        };
        let (blocked, ()) = futures_util::join!(blocked.into_future(), dropped);
        blocked.unwrap();
        pair.tester
            .ask(Hang {
                id: 3,
                how: How::Block(0),
            })
            .await
            .unwrap();
        let log = pair.log().await;
        assert_eq!(log, ["begun 1", "dropped 1", "begun 3", "dropped 3"]);
    });
}

fn late() {
    far_and_near(async |pair| {
        let blocked = pair.tester.ask(Hang {
            id: 1,
            how: How::Block(600),
        });
        let late = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            pair.ask(
                Hang {
                    id: 2,
                    how: How::Block(0),
                },
                Some(Duration::from_millis(200)),
            )
            .await
        };
        let (blocked, late) = futures_util::join!(blocked.into_future(), late);
        blocked.unwrap();
        let error = late.unwrap_err();
        assert!(matches!(error, AskError::Timeout { .. }), "{error}");
        assert_eq!(error.fate(), Fate::NotDelivered, "{error}");
        let log = pair.log().await;
        assert_eq!(log, ["begun 1", "dropped 1"]);
    });
}

fn fates() {
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = cluster.actor(Keeper::default());
        let keeper = keeper.restart(Restart::on_failure(9)).spawn().await?;
        keeper.tell(Keep(0)).await?;
        let slow = Slow {
            load: Vec::new(),
            milliseconds: 300,
        };
        let (slow, panic, behind, again) = futures_util::join!(
            keeper.ask(slow).into_future(),
            keeper.ask(Panic("over".into())).into_future(),
            keeper.ask(Whereabouts).into_future(),
            keeper.ask(Whereabouts).retry(1).into_future(),
        );
        slow.unwrap();
        assert_eq!(panic.unwrap_err().fate(), Fate::MaybeExecuted);
        // It was in the mailbox of the life that ended, and is not given to the next one unasked (L4).
        let behind = behind.unwrap_err();
        assert!(behind.may_retry(), "{behind}");
        assert_eq!(behind.fate(), Fate::NotDelivered, "{behind}");
        assert_eq!(again.unwrap().2, 2, "that one was sent with retry");
        Ok(())
    });
}

fn panic_in_future() {
    far_and_near(async |pair| {
        let error = pair
            .ask(
                Hang {
                    id: 1,
                    how: How::Panic,
                },
                None,
            )
            .await
            .unwrap_err();
        assert!(matches!(error, AskError::ActorDied { .. }), "{error}");
        assert!(error.to_string().contains("in its future"), "{error}");
    });
}

fn retry_at_home() {
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = cluster.actor(Keeper::default()).spawn().await?;
        let asker = cluster.actor(Tester::default()).spawn().await?;
        let request = KeepMany {
            at: keeper.clone(),
            count: 200,
        };
        asker.ask(request).await??;
        let kept = keeper.ask(Kept).await?;
        assert_eq!(kept, (0..200).collect::<Vec<_>>());
        Ok(())
    });
}

fn stream_ends() {
    far_and_near(async |pair| {
        let count = CountUp {
            to: 1_000,
            then: Then::End,
        };
        let (numbers, error) = pair.take(count, usize::MAX, 0).await;
        assert_eq!(numbers, (1..=1_000).collect::<Vec<_>>());
        assert_eq!(error, None);
        let words = ["one", "two", "three", "four", "five"].map(str::to_owned);
        let spelled = pair.tester.stream(Spell(words.to_vec()));
        let spelled: Vec<_> = spelled.collect().await;
        assert_eq!(spelled, words.map(Ok));
    });
}

fn stream_waits() {
    far_and_near(async |pair| {
        let count = CountUp {
            to: 0,
            then: Then::End,
        };
        let taking = pair.take(count, 1, 700);
        let looking = async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            pair.log().await.len()
        };
        let (taken, made) = futures_util::join!(taking, looking);
        assert_eq!(taken, (vec![1], None));
        // 16 under way, and a few more that the asker or the handler holds.
        assert!(
            (2..=20).contains(&made),
            "{made} were made for one that was taken"
        );
    });
}

fn stream_dropped() {
    far_and_near(async |pair| {
        let count = CountUp {
            to: 0,
            then: Then::End,
        };
        let (taken, error) = pair.take(count, 40, 0).await;
        assert_eq!((taken.len(), error), (40, None));
        let log = pair.log_until("dropped 0").await;
        assert!(log.len() < 80, "it went on for {}", log.len());
    });
}

fn stream_fails() {
    far_and_near(async |pair| {
        let count = CountUp {
            to: 50,
            then: Then::Panic,
        };
        let (taken, error) = pair.take(count, usize::MAX, 0).await;
        assert_eq!(taken, (1..=50).collect::<Vec<_>>());
        let error = error.unwrap();
        assert!(matches!(error, AskError::ActorDied { .. }), "{error}");
        assert!(error.to_string().contains("no more numbers"), "{error}");
        assert_eq!(error.fate(), Fate::MaybeExecuted);
    });
}
