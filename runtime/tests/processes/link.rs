//! A driver in a network namespace of its own, and a link to the cluster's that can be cut, slow and lossy.
//!
//! Head and nodes are real processes in one namespace, the driver in another that has no way there but this: for
//! each of their addresses a socket in the driver's namespace and one in theirs, and a thread that carries
//! datagrams between the two. (The kernel's own netem is not on every machine.) The namespaces have no names:
//! they end with their processes, however these end.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

/// What the link does to datagrams, both ways.
#[derive(Default)]
pub struct Weather {
    cut: AtomicBool,
    loss_percent: AtomicU32,
    delay_ms: AtomicU32,
    carried: AtomicU32,
    dropped: AtomicU32,
}

impl Weather {
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    pub fn rough(&self, loss_percent: u32, delay: Duration) {
        self.loss_percent.store(loss_percent, Ordering::Relaxed);
        self.delay_ms
            .store(delay.as_millis() as u32, Ordering::Relaxed);
    }

    /// Datagrams that it carried, and that it dropped.
    pub fn counts(&self) -> (u32, u32) {
        (
            self.carried.load(Ordering::Relaxed),
            self.dropped.load(Ordering::Relaxed),
        )
    }
}

/// Whether namespaces can be had here; says so if not.
pub fn available(case: &str) -> bool {
    let ip = std::process::Command::new("ip").arg("-V").output();
    let able = nix::unistd::geteuid().is_root() && ip.is_ok();
    if !able {
        println!("skipped {case}: it needs root and the program `ip`");
    }
    able
}

/// Moves this thread (and what it starts) into a new namespace with a loopback device.
pub fn enter_new_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let mut up = std::process::Command::new("ip");
    up.args(["link", "set", "lo", "up"]);
    assert!(up.status().unwrap().success());
}

/// The cluster's end of a link to the process at `to`; make it in the cluster's namespace.
pub fn cluster_end(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Joins `end` to a socket at the same address in this thread's namespace.
pub fn join(end: UdpSocket, seed: u64) -> Arc<Weather> {
    let here = UdpSocket::bind(end.peer_addr().unwrap()).unwrap();
    let weather = Arc::new(Weather::default());
    let there = weather.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(carry(here, end, there, seed));
    });
    weather
}

async fn carry(here: UdpSocket, end: UdpSocket, weather: Arc<Weather>, seed: u64) {
    use rand::SeedableRng as _;
    let socket = |socket: UdpSocket| {
        socket.set_nonblocking(true).unwrap();
        Arc::new(tokio::net::UdpSocket::from_std(socket).unwrap())
    };
    let (here, end) = (socket(here), socket(end));
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    let mut driver: Option<SocketAddr> = None;
    let (mut down, mut up) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        let (bytes, to) = tokio::select! {
            got = here.recv_from(&mut down) => {
                // An error is the word of a process that is not there.
                let Ok((len, from)) = got else { continue };
                driver = Some(from);
                (down[..len].to_vec(), None)
            }
            got = end.recv(&mut up) => {
                let (Ok(len), Some(driver)) = (got, driver) else { continue };
                (up[..len].to_vec(), Some(driver))
            }
        };
        let percent = weather.loss_percent.load(Ordering::Relaxed);
        let lost = rand::RngExt::random_range(&mut rng, 0..100) < percent;
        if lost || weather.cut.load(Ordering::Relaxed) {
            weather.dropped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        weather.carried.fetch_add(1, Ordering::Relaxed);
        let delay = Duration::from_millis(weather.delay_ms.load(Ordering::Relaxed).into());
        let (here, end) = (here.clone(), end.clone());
        let send = async move {
            let _ = match to {
                Some(driver) => here.send_to(&bytes, driver).await,
                None => end.send(&bytes).await,
            };
        };
        if delay.is_zero() {
            send.await;
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                send.await;
            });
        }
    }
}
