//! Actors that ask themselves, or each other in a ring.

use corehold::Fate;
use corehold::prelude::*;

use crate::actors::{Keep, KeepLater, Keeper, Kept, Relay};
use crate::cluster::{TWO, TestCluster};
use crate::tester::{AskFor, Hang, How, Tester};

pub const CASES: &[(&str, fn())] = &[
    ("an_actor_that_asks_itself_is_told_so", itself),
    ("a_ring_of_asks_is_told_to_the_last_asker", ring),
    ("a_concurrent_actor_may_ask_itself", concurrent),
    ("a_full_mailbox_of_its_own_is_told_to_its_teller", full),
];

async fn keeper(cluster: &Cluster, kind: &str) -> corehold::Result<Handle<Keeper>> {
    let keeper = cluster.actor(Keeper::default()).label("kind", kind);
    keeper.mailbox(8).spawn().await
}

fn is_deadlock(error: &AskError, ring: &[&Handle<Keeper>]) {
    let AskError::Deadlock { ring: told, .. } = error else {
        panic!("{error}");
    };
    let ring: Vec<String> = ring.iter().map(|keeper| keeper.id().to_string()).collect();
    assert_eq!(*told, ring.join(" -> "));
    assert_eq!(error.fate(), Fate::NotSent);
    assert!(!error.may_retry());
    for fix in ["concurrency = n", "tell", "ctx.spawn"] {
        assert!(error.to_string().contains(fix), "{fix} in {error}");
    }
}

fn itself() {
    TestCluster::up(TWO).drive(async |cluster| {
        let a = keeper(&cluster, "a").await?;
        let error = a.ask(Relay::over([&a])).await?.unwrap_err();
        is_deadlock(&error, &[&a, &a]);
        // With a lane of its own, on which such an ask goes as bytes.
        a.ask(Keep(1)).await?;
        // A task that the handler does not wait for takes no turn.
        let aside = Relay {
            aside: true,
            ..Relay::over([&a])
        };
        assert_eq!(a.ask(aside).await?, Ok(0));
        while a.ask(Kept).await? != [1, 1] {}
        // It takes what it tells itself after the handler.
        let later = KeepLater {
            me: a.clone(),
            count: 3,
        };
        a.ask(later).await??;
        assert_eq!(a.ask(Kept).await?, [1, 1, 1, 2, 3]);
        Ok(())
    });
}

fn ring() {
    TestCluster::up(TWO).drive(async |cluster| {
        let a = keeper(&cluster, "a").await?;
        let b = keeper(&cluster, "b").await?;
        let beside = keeper(&cluster, "a").await?;
        assert_eq!(a.ask(Relay::over([&b, &beside])).await?, Ok(2));
        for other in [&b, &beside] {
            let error = a.ask(Relay::over([other, &a])).await?.unwrap_err();
            is_deadlock(&error, &[&a, other, &a]);
        }
        let error = a.ask(Relay::over([&b, &beside, &b])).await?.unwrap_err();
        is_deadlock(&error, &[&a, &b, &beside, &b]);
        // Nobody waits any more.
        assert_eq!(b.ask(Relay::over([&a, &beside])).await?, Ok(2));
        Ok(())
    });
}

fn concurrent() {
    TestCluster::up(TWO).drive(async |cluster| {
        let tester = cluster.actor(Tester::default()).spawn().await?;
        let hang = Hang {
            id: 1,
            how: How::Block(0),
        };
        let request = AskFor {
            at: tester.clone(),
            hang,
            timeout: None,
            drop_after: None,
        };
        assert_eq!(tester.ask(request).await?, Ok(()));
        Ok(())
    });
}

fn full() {
    TestCluster::up(TWO).drive(async |cluster| {
        let a = keeper(&cluster, "a").await?;
        let later = KeepLater {
            me: a.clone(),
            count: 100,
        };
        // One place is the handler's own.
        let error = a.ask(later).await?.unwrap_err();
        is_deadlock(&error, &[&a, &a]);
        assert_eq!(a.ask(Kept).await?, (1..=7).collect::<Vec<_>>());
        Ok(())
    });
}
