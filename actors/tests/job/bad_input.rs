//! What users get wrong, and what they are told.

use std::process::Output;

use crate::cluster::{cgroups, text};
use crate::{JobCluster, skip};

const KERNEL: &str = "\
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
for (int i = 0; i < m; i++)
for (int p = 0; p < k; p++)
for (int j = 0; j < n; j++)
c[i * n + j] += a[i * k + p] * b[p * n + j];
}
";

fn fails(output: &Output, code: i32, parts: &[&str]) {
    let all = text(output);
    assert_eq!(output.status.code(), Some(code), "{all}");
    for part in parts {
        assert!(all.contains(part), "`{part}` is missing in: {all}");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.trim().lines().count() <= 5,
        "one message, not a dump: {errors}"
    );
}

#[test]
fn cluster_files() {
    let cluster = JobCluster::written();
    let node = "[[node]]\nname = \"a\"\nhost = \"local\"\n";
    let head = "[cluster]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\n";
    let table: &[(&str, String, &[&str])] = &[
        (
            "an unknown key",
            format!("{head}{node}lables = {{}}\n"),
            &["bad.toml:7:1", "lables", "labels"],
        ),
        (
            "no such core",
            format!("{head}{node}held = [977]\n"),
            &["bad.toml:7", "977"],
        ),
        (
            "two nodes of one name",
            format!("{head}{node}{node}"),
            &["bad.toml:8", "`a`"],
        ),
        (
            "a core shared and held",
            format!("{head}{node}cores = [0]\nheld = [0]\n"),
            &["bad.toml:8", "0"],
        ),
        (
            "no launcher",
            format!("{head}[[node]]\nname = \"a\"\nhost = \"ssh:me@there\"\n"),
            &["bad.toml:6", "ssh"],
        ),
        ("not toml", "[cluster\n".to_owned(), &["bad.toml:1"]),
    ];
    for (what, text, parts) in table {
        cluster.write("bad.toml", text);
        println!("{what}");
        fails(&cluster.corehold(&["up", "bad.toml"]), 1, parts);
    }
    fails(
        &cluster.corehold(&["up", "missing.toml"]),
        1,
        &["missing.toml"],
    );
    fails(
        &cluster.corehold(&["status", "cluster.toml"]),
        1,
        &["corehold up"],
    );
    fails(&cluster.corehold(&["frobnicate"]), 2, &["frobnicate"]);
}

#[test]
fn a_port_in_use() {
    let cluster = JobCluster::written();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = std::fs::read_to_string(cluster.path().join("cluster.toml")).unwrap();
    cluster.write("taken.toml", &text.replace("127.0.0.1:0", &address));
    fails(
        &cluster.corehold(&["up", "taken.toml"]),
        1,
        &[&address, "listen"],
    );
    fails(
        &cluster.corehold(&["status", "taken.toml"]),
        1,
        &["corehold up"],
    );
}

#[test]
fn job_files() {
    let cluster = JobCluster::written();
    let table: &[(&str, &[&str])] = &[
        ("problem = \"dgem\"\n", &["job.toml:1", "dgem", "dgemm"]),
        (
            "problem = \"dgemm\"\n[grpo]\nstepps = 3\n",
            &["job.toml:3", "stepps", "steps"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nsteps = \"many\"\n",
            &["job.toml:3"],
        ),
    ];
    for (job, parts) in table {
        cluster.write("job.toml", job);
        fails(&cluster.corehold(&["train", "job.toml"]), 1, parts);
    }
    cluster.write("job.toml", "problem = \"dgemm\"\n");
    fails(
        &cluster.corehold(&["train", "job.toml"]),
        1,
        &["corehold up"],
    );
}

#[test]
fn a_missing_compiler() {
    let cluster = JobCluster::written();
    cluster.write("kernel.c", KERNEL);
    let output = cluster
        .command(&["bench", "kernel.c"])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    fails(&output, 1, &["gcc", "apt-get install gcc"]);
}

#[test]
fn kernels() {
    if skip("kernels") {
        return;
    }
    let cluster = JobCluster::holding();
    cluster.write("good.c", KERNEL);
    let good = cluster.corehold(&["bench", "good.c", "--json"]);
    // On a busy machine the good kernel may be called contaminated, but never wrong.
    let report = text(&good);
    assert!(
        report.contains("\"Measured\"") || report.contains("\"Contaminated\""),
        "{report}"
    );
    // All that is needed to do it again.
    let report: serde_json::Value = serde_json::from_slice(&good.stdout).unwrap();
    let how = &report["reproduce"];
    assert_eq!(how["problem"], "dgemm");
    assert_eq!(how["shape"][2][1], 256);
    assert_eq!(how["source_sha256"].as_str().unwrap().len(), 64);
    assert!(how["class"].as_str().unwrap().contains("core"), "{how}");
    assert!(how["compiler"].as_str().unwrap().contains("gcc"), "{how}");
    assert!(
        how["command"]
            .as_str()
            .unwrap()
            .ends_with("bench good.c --json"),
        "{how}"
    );
    let knobs = |key: &str| how[key].as_array().unwrap().len();
    assert_eq!(
        knobs("in_force") + knobs("not_in_force") + knobs("untouched"),
        11,
        "{how}"
    );
    let read = text(&cluster.corehold(&["bench", "good.c"]));
    assert!(
        read.contains("to reproduce:") && read.contains(how["source_sha256"].as_str().unwrap()),
        "{read}"
    );
    for (name, from, to, verdict) in [
        ("wrong.c", "+=", "-=", "WrongResult"),
        (
            "float.c",
            "c[i * n + j] +=",
            "c[i * n + j] += (float)",
            "WrongResult",
        ),
        (
            "calls.c",
            "for (int i",
            "rand();\nfor (int i",
            "LibraryViolation",
        ),
        ("broken.c", "int p = 0", "int p = q", "CompileError"),
        ("other.c", "void dgemm", "void dgemn", "FormatViolation"),
    ] {
        cluster.write(name, &KERNEL.replacen(from, to, 1));
        let output = cluster.corehold(&["bench", name, "--json"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(verdict), "{name}: {}", text(&output));
    }
    fails(
        &cluster.corehold(&["bench", "good.c", "--problem", "dgem"]),
        1,
        &["dgem", "dgemm"],
    );
    fails(&cluster.corehold(&["bench", "absent.c"]), 1, &["absent.c"]);
    assert_eq!(cgroups(), [] as [std::path::PathBuf; 0]);
}
