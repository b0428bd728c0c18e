//! A process that dies without a word, and another one that takes its address.

use corehold::wire::{Endpoint, Hello, Identity, Opening, PROTOCOL};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Accepts whatever comes, until the runtime is dropped.
fn listen(runtime: &tokio::runtime::Runtime, address: &str, identity: &Identity) -> Endpoint {
    let _entered = runtime.enter();
    let endpoint = Endpoint::bind(address.parse().unwrap(), identity).unwrap();
    let accepting = endpoint.clone();
    runtime.spawn(async move {
        let mut kept = Vec::new();
        while let Some(handshake) = accepting.accept().await {
            kept.push(handshake.finish().await);
        }
    });
    endpoint
}

#[test]
fn a_restarted_process_tells_the_peers_of_the_dead_one() {
    let keys = tempfile::tempdir().unwrap();
    Identity::create(keys.path()).unwrap();
    let identity = Identity::load(keys.path()).unwrap();
    let (client, first) = (runtime(), runtime());
    let endpoint = listen(&first, "127.0.0.1:0", &identity);
    let address = endpoint.local_addr().unwrap();
    let (ready, connected) = std::sync::mpsc::channel();
    let (quit, over) = tokio::sync::oneshot::channel::<()>();
    let serving = std::thread::spawn(move || {
        first.block_on(async {
            ready.send(()).unwrap();
            let _ = over.await;
        });
        // With it goes all that would say a word: as if the process had been killed.
        drop((first, endpoint));
    });
    connected.recv().unwrap();
    let identity = client.block_on(async {
        let here = Endpoint::bind(([127, 0, 0, 1], 0).into(), &identity).unwrap();
        let connection = here.connect(address).await.unwrap();
        let hello = Hello {
            protocol: PROTOCOL,
            build_id: String::new(),
            role: Vec::new(),
        };
        let opening = Opening::Control(Box::new(hello));
        let _stream = connection.open(&opening).await.unwrap();
        quit.send(()).unwrap();
        tokio::task::spawn_blocking(move || serving.join().unwrap())
            .await
            .unwrap();
        // Another process there, with the same keys.
        let next = std::thread::spawn(move || {
            let second = runtime();
            let _endpoint = listen(&second, &address.to_string(), &identity);
            second.block_on(std::future::pending::<()>());
        });
        // Only who speaks is answered: a silent connection says a word each second at best, and less when none is heard.
        let speaking = async {
            let mut streams = Vec::new();
            while let Ok(stream) = connection.open(&opening).await {
                streams.push(stream);
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let (why, ()) = tokio::join!(connection.closed(), speaking);
        assert!(why.contains("reset"), "{why}");
        next
    });
    // It ends with the test.
    drop(identity);
}
