//! `corehold doctor` as a user runs it, with root's rights and without.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The user `nobody`, on every system.
const NOBODY: u32 = 65534;

/// What it says of the compiler's jail: state, effect and advice.
fn jail(program: &Path, folder: &Path, nobody: bool) -> (String, String, bool) {
    let mut command = Command::new(program);
    command.args(["doctor", "--json"]).current_dir(folder);
    if nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let jails: Vec<_> = findings.iter().filter(|f| f["name"] == "jail").collect();
    let [jail] = jails[..] else {
        panic!("{findings:?}")
    };
    let text = |key: &str| jail[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("effect"), jail["advice"].is_string())
}

#[test]
fn the_jail_is_told_as_it_is() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can be another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_corehold"));
    let (state, effect, advised) = jail(built, folder.path(), false);
    assert_eq!(
        (effect.as_str(), advised),
        ("sources are jailed by root", false)
    );
    assert!(state.eq_ignore_ascii_case("good"), "{state}");
    // libtorch is in root's cache, where another user cannot reach it.
    let light = built.with_file_name("../bench-node/debug/corehold");
    let without_torch = match cfg!(feature = "torch") {
        true => light.as_path(),
        false => built,
    };
    if !without_torch.exists() {
        println!(
            "SKIPPED without root: `cargo xtask test bench-node` builds the program without torch"
        );
        return;
    }
    // Where another user can reach it.
    let program = folder.path().join("corehold");
    std::fs::copy(without_torch, &program).unwrap();
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (state, effect, advised) = jail(&program, folder.path(), true);
    println!("without root: {state}, {effect}");
    let right = [
        ("good", "in a user namespace"),
        ("weak", "by Landlock"),
        ("missing", "not jailed"),
    ];
    let right = right
        .iter()
        .any(|(s, e)| state.eq_ignore_ascii_case(s) && effect.contains(e));
    assert!(right, "{state}: {effect}");
    assert_eq!(advised, !state.eq_ignore_ascii_case("good"));
}
