//! A measurement by hand that is ended from outside gives the machine back.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::{cgroups, text};
use crate::{JobCluster, skip};

// Right where it is checked, endless where it is timed.
const ENDLESS: &str = "\
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
for (int i = 0; i < m; i++)
for (int p = 0; p < k; p++)
for (int j = 0; j < n; j++)
c[i * n + j] += a[i * k + p] * b[p * n + j];
while (m == 256) c[0] += 1;
}
";

#[test]
fn a_bench_that_is_ended_gives_its_core_back() {
    if skip("a_bench_that_is_ended_gives_its_core_back") {
        return;
    }
    let cluster = JobCluster::holding();
    cluster.write("endless.c", ENDLESS);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let bench = cluster
            .command(&["bench", "endless.c"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        let held = || {
            let name = |path: &std::path::PathBuf| path.display().to_string();
            cgroups()
                .iter()
                .map(name)
                .any(|path| path.contains("-held"))
        };
        while !held() {
            assert!(began.elapsed() < Duration::from_secs(60), "no core is held");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(bench.id() as i32), signal).unwrap();
        // Who sweeps writes to the same pipe: its end is the end of both.
        let ended = bench.wait_with_output().unwrap();
        assert!(!ended.status.success(), "{signal}: {}", text(&ended));
        assert!(
            text(&ended).contains("given back"),
            "{signal}: {}",
            text(&ended)
        );
        assert_eq!(cgroups(), [] as [std::path::PathBuf; 0], "{signal}");
    }
}
