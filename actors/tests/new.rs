//! `corehold new`: what it writes, and what it refuses. That the crate builds and runs, the stage `examples` of
//! `cargo xtask test` shows.

use std::path::Path;
use std::process::{Command, Output};

fn new(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corehold"));
    command
        .arg("new")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn refusal(arguments: &[&str], folder: &Path) -> String {
    let output = new(arguments, folder);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_crate_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = new(&["sub/my-app"], folder.path());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let made = folder.path().join("sub/my-app");
    let read = |file: &str| std::fs::read_to_string(made.join(file)).unwrap();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    assert_eq!(manifest["package"]["name"].as_str(), Some("my-app"));
    let runtime = manifest["dependencies"]["corehold"]["path"]
        .as_str()
        .unwrap();
    assert!(Path::new(runtime).join("src/lib.rs").exists(), "{runtime}");
    // What was chosen is told.
    assert!(said.contains(runtime), "{said}");
    let code = read("src/main.rs");
    let lines = code.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.count() <= 40);
    assert!(read("README.md").lines().count() <= 10);
    corehold::cluster::ClusterConfig::load(made.join("cluster.toml")).unwrap();
    assert!(read(".gitignore").contains("/target"));
    for text in [
        &code,
        &read("README.md"),
        &read("cluster.toml"),
        &read("Cargo.toml"),
    ] {
        assert!(
            !text.contains("@NAME@") && !text.contains("@COREHOLD"),
            "{text}"
        );
    }
}

#[test]
fn sources_can_be_given() {
    let folder = tempfile::tempdir().unwrap();
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = new(&["app", "--corehold", checkout], folder.path());
    assert!(output.status.success(), "{output:?}");
    let said = refusal(&["other", "--corehold", "/proc"], folder.path());
    assert!(
        said.contains("/proc") && said.contains("checkout"),
        "{said}"
    );
    assert!(!folder.path().join("other").exists());
}

#[test]
fn what_is_in_the_way_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("full")).unwrap();
    std::fs::write(folder.path().join("full/mine"), "precious").unwrap();
    std::fs::write(folder.path().join("file"), "precious").unwrap();
    for (name, why) in [
        ("full", "not empty"),
        ("file", "is a file"),
        ("file/app", "is a file"),
    ] {
        let said = refusal(&[name], folder.path());
        assert!(said.contains(why), "{name}: {said}");
    }
    let said = refusal(&["match"], folder.path());
    assert!(said.contains("`my-match`"), "{said}");
    assert!(!folder.path().join("match").exists());
    // An empty one is fine.
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    assert!(new(&["empty"], folder.path()).status.success());
}

#[test]
fn a_full_disk_is_told_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    // In a mount namespace of its own, which ends with the shell. Enough room for the folders and the first file.
    let script = "mount -t tmpfs -o size=12k,mode=0700 none . && cd \"$PWD\" && \"$0\" new sub/app; code=$?; ls -A; exit $code";
    let output = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_corehold"),
        ])
        .current_dir(folder.path())
        .output();
    let Ok(output) = output else {
        println!("SKIPPED a_full_disk_is_told_and_nothing_is_left: there is no `unshare`");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare") || said.contains("mount") {
        println!("SKIPPED a_full_disk_is_told_and_nothing_is_left: it needs root: {said}");
        return;
    }
    assert!(said.contains("disk is full"), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "",
        "nothing is left"
    );
}
