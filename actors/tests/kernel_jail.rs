//! The compiler's jail without root: hostile sources are told nothing there either.

use std::path::Path;
use std::process::Command;

use corehold_actors::kernel::compiler::{Jail, Limits};
use corehold_actors::kernel::{Binary, Compiler, Verdict};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

const HONEST: &str = include_str!("kernels/ikj.c");
/// Set in the process that gives up its rights.
const CHILD: &str = "COREHOLD_TEST_UNPRIVILEGED";
/// The user `nobody`, on every system.
const NOBODY: u32 = 65534;

/// Runs the test of that name again in a process without root's rights; true in that process.
fn unprivileged(name: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if std::env::var_os(CHILD).is_none() && root {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        print!("{said}");
        assert!(
            child.status.success() && said.contains("1 passed"),
            "{}",
            String::from_utf8_lossy(&child.stderr)
        );
        return false;
    }
    if root {
        setgroups(&[]).unwrap();
        setgid(Gid::from_raw(NOBODY)).unwrap();
        setuid(Uid::from_raw(NOBODY)).unwrap();
        // As a program that this user started: its own /proc/self is its own.
        nix::sys::prctl::set_dumpable(true).unwrap();
    }
    true
}

/// What this process can have, the best first.
fn jails() -> Vec<Jail> {
    let mut jails = vec![Jail::best()];
    let landlock = compiler(Jail::Landlock).compile(HONEST);
    match landlock {
        Ok(_) if jails[0] != Jail::Landlock => jails.push(Jail::Landlock),
        Ok(_) => {}
        Err(error) => println!("SKIPPED Landlock: {error}"),
    }
    jails
}

fn compiler(jail: Jail) -> Compiler {
    let limits = Limits {
        wall: std::time::Duration::from_secs(20),
        cpu_seconds: 4,
        ..Limits::default()
    };
    let path = std::env::var_os("PATH").unwrap();
    Compiler::find_in(&path, limits).unwrap().with_jail(jail)
}

#[test]
fn without_root_the_compiler_is_jailed_too() {
    if !unprivileged("without_root_the_compiler_is_jailed_too") {
        return;
    }
    let jails = jails();
    println!("{jails:?}");
    if jails == [Jail::Bare] {
        println!("SKIPPED: neither user namespaces nor Landlock");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/hostile");
    let mut binaries: Vec<Binary> = Vec::new();
    for jail in jails {
        let gcc = compiler(jail);
        assert_eq!(gcc.jail(), jail);
        binaries.push(gcc.compile(HONEST).unwrap().expect("it compiles"));
        for attack in [
            "asm_include_secret",
            "asm_embeds_secret",
            "asm_embeds_without_end",
        ] {
            let Ok(code) = std::fs::read_to_string(folder.join(attack).with_extension("c")) else {
                println!("SKIPPED {attack}: this user can't read the test's own files");
                continue;
            };
            told_nothing(&gcc, &code);
        }
        // This process's own secrets are as well hidden as the machine's.
        let own = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(own.path(), "root of all evil\n").unwrap();
        for file in [
            own.path().to_str().unwrap(),
            "/etc/passwd",
            "/proc/self/environ",
            "/proc/self/maps",
            "/dev/zero",
        ] {
            told_nothing(&gcc, &format!("__asm__(\".include \\\"{file}\\\"\");\n"));
            told_nothing(
                &gcc,
                &format!("__asm__(\".section .rodata\\ns: .incbin \\\"{file}\\\"\\n.text\");\n"),
            );
            // By name through the folder of the headers: what the text rules let through.
            told_nothing(&gcc, &format!("#include <{file}>\n"));
        }
    }
    // The same compiler makes the same of the same source, however it is shut in.
    assert!(binaries.windows(2).all(|pair| pair[0] == pair[1]));
}

fn told_nothing(gcc: &Compiler, code: &str) {
    let verdict = gcc.compile(code).unwrap().expect_err(code);
    println!("{:?} {verdict:?}", gcc.jail());
    assert!(
        matches!(
            verdict,
            Verdict::CompileError(_) | Verdict::Timeout(_) | Verdict::LibraryViolation(_)
        ),
        "{code}\n{verdict:?}"
    );
    let told = format!("{verdict:?}");
    for secret in ["root", "nologin", "/etc/passwd:1", "evil", "COREHOLD_TEST"] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[test]
fn these_attacks_succeed_where_nothing_is_jailed() {
    if !unprivileged("these_attacks_succeed_where_nothing_is_jailed") {
        return;
    }
    let code = "__asm__(\".include \\\"/etc/passwd\\\"\");\n";
    let verdict = compiler(Jail::Bare).compile(code).unwrap().unwrap_err();
    println!("{verdict:?}");
    let Verdict::CompileError(told) = verdict else {
        panic!("{verdict:?}")
    };
    assert!(told.contains("/etc/passwd:"), "{told}");
}

#[test]
fn a_bomb_ends_in_time_without_root() {
    if !unprivileged("a_bomb_ends_in_time_without_root") {
        return;
    }
    let mut text = "#define M0 x += 1;\n".to_string();
    for at in 1..=60 {
        text += &format!("#define M{at} M{} M{}\n", at - 1, at - 1);
    }
    text += "int x;\nvoid f(void) { M60 }";
    let limits = Limits {
        wall: std::time::Duration::from_millis(700),
        ..Limits::default()
    };
    let path = std::env::var_os("PATH").unwrap();
    let gcc = Compiler::find_in(&path, limits).unwrap();
    let verdict = gcc.compile(&text).unwrap();
    assert!(
        matches!(verdict, Err(Verdict::Timeout(_) | Verdict::CompileError(_))),
        "{verdict:?}"
    );
}
