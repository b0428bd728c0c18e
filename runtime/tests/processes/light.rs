//! Light actors share threads, and nothing else.

use corehold::prelude::*;

use crate::actors::{Keep, Keeper, Kept, Panic, Slow};
use crate::cluster::{ONE, TestCluster};

pub const ALL: &[(&str, fn())] = &[("light_actors_share_threads_and_nothing_else", light)];

fn light() {
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = || cluster.actor(Keeper::default());
        let mut many = Vec::new();
        for _ in 0..64 {
            many.push(
                keeper()
                    .light()
                    .restart(Restart::on_failure(1))
                    .spawn()
                    .await?,
            );
        }
        // A panic in one ends that one alone, and it lives again.
        let error = many[0].ask(Panic("alone".into())).await.unwrap_err();
        assert!(error.to_string().contains("alone"), "{error}");
        assert_eq!(many[0].ask(Kept).await?, [] as [u64; 0]);
        // A handler that blocks a thread of its own holds up none of them.
        let own = keeper().spawn().await?;
        let blocked = own
            .ask(Slow {
                load: Vec::new(),
                milliseconds: 3_600_000,
            })
            .into_future();
        let others = async {
            for (at, keeper) in many.iter().enumerate() {
                keeper.ask(Keep(at as u64)).await?;
                assert_eq!(keeper.ask(Kept).await?, [at as u64]);
            }
            Ok::<_, AskError>(())
        };
        tokio::select! {
            _ = blocked => panic!("an hour is not over"),
            done = others => done?,
        }
        // Each can be stopped by itself.
        cluster.stop(&many[1]).await?;
        assert!(many[1].ask(Kept).await.is_err());
        assert_eq!(many[2].ask(Kept).await?, [2]);
        Ok(())
    });
}
