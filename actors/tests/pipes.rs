//! The program where nobody reads what it prints, or it cannot be written.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a shell says of a program that SIGPIPE ended.
const SIGPIPE_ENDED: i32 = 128 + 13;

fn corehold(folder: &Path, arguments: &str, out: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corehold"));
    command
        .args(arguments.split_whitespace())
        .current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ends the cluster also where the test fails.
struct Cluster(tempfile::TempDir);

impl Drop for Cluster {
    fn drop(&mut self) {
        corehold(self.0.path(), "down", Stdio::null());
    }
}

#[test]
fn a_command_whose_output_nobody_reads_ends_quietly() {
    let cluster = Cluster(tempfile::tempdir().unwrap());
    let folder = cluster.0.path();
    let config = "[cluster]\nname = \"pipes\"\nlisten = \"127.0.0.1:0\"\n[[node]]\nname = \"one\"\nhost = \"local\"\n";
    std::fs::write(folder.join("cluster.toml"), config).unwrap();
    // What it does is done all the same: `down` finds what `up` has started.
    for command in [
        "doctor",
        "doctor --json",
        "keys",
        "up",
        "status",
        "status --all",
        "status --json",
        "top --once --every 0.1",
        "top --once --every 0.1 --json",
        "timeline -o out.json",
        "logs --json",
    ] {
        let output = corehold(folder, command, closed());
        let said = stderr(&output);
        assert_eq!(
            output.status.code(),
            Some(SIGPIPE_ENDED),
            "{command}: {said}"
        );
        assert!(
            !said.contains("panicked") && !said.contains("error"),
            "{command}: {said}"
        );
    }
    assert!(folder.join("out.json").is_file());
    let output = corehold(folder, "status", full());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot write to standard output: No space left"),
        "{said}"
    );
    let output = corehold(folder, "down", closed());
    assert_eq!(
        output.status.code(),
        Some(SIGPIPE_ENDED),
        "{}",
        stderr(&output)
    );
}
