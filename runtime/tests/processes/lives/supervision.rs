//! Parents, monitors, saved states.

use corehold::prelude::*;
use corehold::{DeathCause, Error};

use super::actors::{Bear, Count, Die, Mortal, Save, Watch, Way};
use super::workers::{kill, mortal};
use crate::cluster::{ONE, TWO, TestCluster};

pub fn children() {
    TestCluster::up(ONE).drive(async |cluster| {
        for parent in [mortal(&cluster), cluster.actor(Mortal::default())] {
            let parent = parent.restart(Restart::on_failure(1)).spawn().await?;
            let bear = |name: &str, detached| {
                let name = name.to_owned();
                parent.ask(Bear { name, detached })
            };
            let kid = bear("kid", false).await?.unwrap();
            let free = bear("free", true).await?.unwrap();
            let grandkid = kid
                .ask(Bear {
                    name: "grandkid".into(),
                    detached: false,
                })
                .await?
                .unwrap();
            parent.ask(Die(Way::Panic)).await.unwrap_err();
            for of_the_old_life in [&kid, &grandkid] {
                assert_eq!(of_the_old_life.closed().await?.cause, DeathCause::OwnerGone);
            }
            // The next life has the names for itself.
            let kid = bear("kid", false).await?.unwrap();
            assert_eq!(kid.ask(Count).await?.1, 1);
            cluster.stop(&parent).await?;
            assert_eq!(kid.closed().await?.cause, DeathCause::OwnerGone);
            assert_eq!(free.ask(Count).await?.1, 1);
            cluster.stop(&free).await?;
            free.closed().await?;
        }
        Ok(())
    });
}

pub fn monitors() {
    TestCluster::up(TWO).drive(async |cluster| {
        let watcher = mortal(&cluster).label("kind", "a").spawn().await?;
        let mourned = mortal(&cluster).label("kind", "b").spawn().await?;
        let watching = watcher.ask(Watch(mourned.clone())).into_future();
        let dying = async {
            mourned.ask(Count).await?;
            mourned.ask(Die(Way::Exit(9))).await.unwrap_err();
            Ok::<_, AskError>(())
        };
        let (seen, died) = futures_util::join!(watching, dying);
        died?;
        let seen = seen?.unwrap();
        assert!(seen.contains("status 9") && seen.contains("Die"), "{seen}");
        // Also who asks when all is over.
        assert_eq!(watcher.ask(Watch(mourned.clone())).await?.unwrap(), seen);
        assert_eq!(mourned.closed().await?.to_string(), seen);
        Ok(())
    });
}

pub fn saved() {
    TestCluster::up(TWO).drive(async |cluster| {
        let actor = mortal(&cluster)
            .restart(Restart::on_failure(5))
            .spawn()
            .await?;
        let mut pid = 0;
        for n in 1..=3 {
            pid = actor.ask(Count).await?.0;
            assert_eq!(actor.ask(Save).await?.unwrap(), n);
        }
        actor.ask(Count).await?;
        kill(pid as i32);
        // What it had not saved is gone, the rest is there. The ask may find it dead or alive again.
        let (new, count) = loop {
            match actor.ask(Count).await {
                Err(e) if e.may_retry() => {}
                other => break other?,
            }
        };
        assert_ne!(new, pid);
        assert_eq!(count, 4);
        // Away from an actor it is a mistake that says so.
        let error = corehold::save(&Mortal::default()).await.unwrap_err();
        assert!(matches!(error, Error::Misuse(_)), "{error}");
        let error = Cluster::current().unwrap_err();
        assert!(error.to_string().contains("`main`"), "{error}");
        Ok(())
    });
}

pub fn saved_before_the_head_died() {
    let up = TestCluster::up(ONE);
    let head = up.pid_of("head");
    up.drive(async |cluster| {
        let actor = mortal(&cluster).restart(Restart::on_failure(5));
        let actor = actor.spawn().await?;
        let (pid, _) = actor.ask(Count).await?;
        actor.ask(Save).await?.unwrap();
        // What was answered is written down.
        kill(head);
        kill(pid as i32);
        let (_, count) = actor.ask(Count).retry(5).await?;
        assert_eq!(count, 2);
        Ok(())
    });
}

pub fn near_names() {
    TestCluster::up(ONE).drive(async |cluster| {
        for name in ["counter-1", "counter-2", "counter-3", "counter-4", "zebra"] {
            cluster.actor(Mortal::default()).name(name).spawn().await?;
        }
        let error = cluster.find::<Mortal>("counter-5").await.unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error}");
        let text = error.to_string();
        for part in ["`counter-5`", "`counter-1`", "`counter-2`", "`counter-3`"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(
            !text.contains("zebra") && !text.contains("counter-4"),
            "{text}"
        );
        let error = cluster
            .find::<crate::actors::Keeper>("zebra")
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is a") && error.contains("Mortal") && error.contains("Keeper"),
            "{error}"
        );
        Ok(())
    });
}
