//! What becomes of a message: cancellation, deadlines, fates; the same in one process and between two.

use std::time::Duration;

use corehold::prelude::*;
use corehold::{Fate, Pool};
use futures_util::StreamExt as _;

use crate::actors::{Keep, KeepMany, Keeper, Kept, Panic, Recite, Slow, Whereabouts};
use crate::cluster::{ONE, TWO, TestCluster};
use crate::tester::{Clear, CountUp, Hang, How, Pair, Spell, Terms, Tester, Then};

pub const CASES: &[(&str, fn())] = &[
    ("a_pool_gives_work_to_who_has_least", pool_shares),
    ("a_pool_asks_all_in_order", pool_asks_all),
    ("a_pool_goes_on_without_its_dead", pool_loses),
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
        "a_stream_waits_for_a_reply_as_long_as_it_was_told",
        stream_times_out,
    ),
    (
        "a_stream_is_begun_anew_only_before_its_first_reply",
        stream_retries,
    ),
    (
        "a_stream_keeps_its_turn_unless_it_is_concurrent",
        streams_take_turns,
    ),
    (
        "a_stream_that_fails_says_so_after_its_replies",
        stream_fails,
    ),
];

/// A pool of keepers on two nodes.
async fn pool(cluster: &Cluster) -> corehold::Result<Pool<Keeper>> {
    let mut members = Vec::new();
    for kind in ["a", "b", "a"] {
        let keeper = cluster.actor(Keeper::default()).label("kind", kind);
        members.push(keeper.spawn().await?);
    }
    Ok(Pool::of(members))
}

fn pool_shares() {
    TestCluster::up(TWO).drive(async |cluster| {
        let pool = pool(&cluster).await?;
        // One that is slow is passed by; no message is lost or doubled.
        let slow = pool.members()[1].ask(Slow {
            load: Vec::new(),
            milliseconds: 600,
        });
        let busy = pool.member();
        assert_eq!(&*busy, &pool.members()[0]);
        let others = pool.map((0..200).map(Keep)).collect::<Vec<_>>();
        let (slow, others) = tokio::join!(slow.into_future(), others);
        slow?;
        let mut numbers: Vec<usize> = others.iter().map(|(n, _)| *n).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..200).collect::<Vec<_>>());
        assert!(others.iter().all(|(_, told)| told.is_ok()));
        let mut kept: Vec<Vec<u64>> = Vec::new();
        for all in pool.ask_all(Kept).await {
            kept.push(all?);
        }
        let mut all = kept.concat();
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        // Each was asked, and in the order of the messages.
        for kept in kept {
            assert!(!kept.is_empty() && kept.is_sorted(), "{kept:?}");
        }
        Ok(())
    });
}

fn pool_asks_all() {
    TestCluster::up(TWO).drive(async |cluster| {
        let pool = pool(&cluster).await?;
        let places = pool.ask_all(Whereabouts).await;
        let nodes: Vec<String> = places.into_iter().map(|place| place.unwrap().0).collect();
        assert_eq!(nodes, ["one", "two", "one"]);
        Ok(())
    });
}

fn pool_loses() {
    TestCluster::up(TWO).drive(async |cluster| {
        let pool = pool(&cluster).await?;
        let died = pool.ask(Panic("one less".into())).await.unwrap_err();
        assert!(matches!(died, AskError::ActorDied { .. }), "{died}");
        let work = pool.map((0..50).map(Keep)).collect::<Vec<_>>().await;
        assert!(work.iter().all(|(_, kept)| kept.is_ok()), "{work:?}");
        let all = pool.ask_all(Kept).await;
        assert!(all[0].is_err() && all[1].is_ok() && all[2].is_ok());
        for member in &pool.members()[1..] {
            cluster.stop(member).await?;
        }
        for _ in 0..4 {
            let dead = pool.ask(Keep(1)).await.unwrap_err();
            assert!(matches!(dead, AskError::ActorDied { .. }), "{dead}");
        }
        Ok(())
    });
}

/// Runs `test` against an actor from this process, and from another actor in its own.
fn far_and_near(test: impl AsyncFn(Pair)) {
    TestCluster::up(ONE).drive(async |cluster| {
        let spawn = || {
            let tester = cluster.actor(Tester::default());
            tester.restart(Restart::on_failure(3)).spawn()
        };
        let beside = spawn().await?;
        for gate in [1, 2] {
            let tester = spawn().await?;
            let asker = match gate {
                2 => Some(spawn().await?),
                _ => None,
            };
            let beside = beside.clone();
            let pair = Pair {
                tester,
                asker,
                beside,
                gate,
            };
            test(pair).await;
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
        let dropped = async {
            pair.blocked().await;
            pair.ask_and_drop(Hang {
                id: 2,
                how: How::Block(0),
            })
            .await;
            pair.open().await;
        };
        let (blocked, ()) = futures_util::join!(pair.block(), dropped);
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
        let late = async {
            pair.blocked().await;
            let hang = Hang {
                id: 2,
                how: How::Block(0),
            };
            let timeout = Duration::from_millis(200);
            let asked = pair.ask(hang, Some(timeout)).await;
            let count = CountUp {
                to: 5,
                then: Then::End,
            };
            let terms = Terms {
                timeout: Some(timeout),
                ..Terms::default()
            };
            let taken = pair.take(count, 5, terms).await;
            pair.open().await;
            (asked, taken)
        };
        let (blocked, (asked, (taken, streamed))) = futures_util::join!(pair.block(), late);
        blocked.unwrap();
        assert_eq!(taken, [] as [u64; 0]);
        for error in [asked.unwrap_err(), streamed.unwrap()] {
            assert!(matches!(error, AskError::Timeout { .. }), "{error}");
            assert_eq!(error.fate(), Fate::NotDelivered, "{error}");
        }
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
        let (numbers, error) = pair.take(count, usize::MAX, Terms::default()).await;
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
        let terms = Terms {
            gate: Some(pair.gate),
            ..Terms::default()
        };
        let looking = async {
            // 16 are under way; then a few more that the asker or the handler holds may be made, and no others.
            while pair.log().await.len() < 17 {}
            for _ in 0..50 {
                let made = pair.log().await.len();
                assert!(made <= 20, "{made} were made for one that was taken");
            }
            pair.open().await;
        };
        let (taken, ()) = futures_util::join!(pair.take(count, 1, terms), looking);
        assert_eq!(taken, (vec![1], None));
    });
}

fn stream_times_out() {
    far_and_near(async |pair| {
        let count = CountUp {
            to: 3,
            then: Then::Wait,
        };
        let terms = Terms {
            timeout: Some(Duration::from_secs(1)),
            ..Terms::default()
        };
        let (taken, error) = pair.take(count, usize::MAX, terms).await;
        assert_eq!(taken, [1, 2, 3]);
        let error = error.unwrap();
        assert!(matches!(error, AskError::Timeout { .. }), "{error}");
        assert_eq!(error.fate(), Fate::MaybeExecuted);
        // It wants no more.
        pair.log_until("dropped 0").await;
    });
}

fn stream_retries() {
    far_and_near(async |pair| {
        let terms = Terms {
            retries: 2,
            ..Terms::default()
        };
        // Of its first life the asker sees nothing.
        let count = CountUp {
            to: 5,
            then: Then::PanicOnce,
        };
        let (taken, error) = pair.take(count, usize::MAX, terms).await;
        assert_eq!((taken, error), (vec![1, 2, 3, 4, 5], None));
        // What it has seen a part of is not begun anew.
        let count = CountUp {
            to: 5,
            then: Then::Panic,
        };
        let (taken, error) = pair.take(count, usize::MAX, terms).await;
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        let error = error.unwrap();
        assert!(error.to_string().contains("no more numbers"), "{error}");
        assert!(error.may_retry() && error.fate() == Fate::MaybeExecuted);
    });
}

fn streams_take_turns() {
    TestCluster::up(ONE).drive(async |cluster| {
        for concurrent in [false, true] {
            let kept: Vec<u64> = (0..100).collect();
            let keeper = Keeper { kept, bytes: 0 };
            let keeper = cluster.actor(keeper).spawn().await?;
            let mut recited = keeper.stream(Recite { concurrent });
            assert_eq!(recited.next().await, Some(Ok(0)));
            let mut keeping = keeper.ask(Keep(100)).into_future();
            if concurrent {
                // Though nobody takes its replies.
                (&mut keeping).await?;
                let rest: Vec<_> = recited.collect().await;
                assert_eq!(rest.len(), 99, "what there was when it began");
                continue;
            }
            let mut taken = 1;
            let kept = loop {
                tokio::select! {
                    biased;
                    kept = &mut keeping => break kept,
                    next = recited.next() => taken += usize::from(next.is_some()),
                }
                tokio::task::yield_now().await;
            };
            kept?;
            // All but those that were under way.
            assert!(taken >= 100 - 20, "{taken}");
        }
        Ok(())
    });
}

fn stream_dropped() {
    far_and_near(async |pair| {
        let count = CountUp {
            to: 0,
            then: Then::End,
        };
        let (taken, error) = pair.take(count, 40, Terms::default()).await;
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
        let (taken, error) = pair.take(count, usize::MAX, Terms::default()).await;
        assert_eq!(taken, (1..=50).collect::<Vec<_>>());
        let error = error.unwrap();
        assert!(matches!(error, AskError::ActorDied { .. }), "{error}");
        assert!(error.to_string().contains("no more numbers"), "{error}");
        assert_eq!(error.fate(), Fate::MaybeExecuted);
    });
}
