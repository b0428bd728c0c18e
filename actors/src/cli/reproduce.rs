//! How to reproduce a measurement: all that it depends on, as far as it can be told.

use std::fmt::Write as _;
use std::path::Path;

use corehold::isolate::{Isolation, Slot, TurnResult, Turned};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::kernel::{Caches, Compiler, Problem, class_of, compiler};

/// What a measurement depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Reproduce {
    /// Class of the machine and of what is held of it.
    pub class: String,
    /// The operating system's kernel.
    pub kernel_release: String,
    /// The held cores.
    pub cores: Vec<u32>,
    /// How they are fenced off.
    pub isolation: Isolation,
    /// What else is set on the machine meanwhile.
    pub in_force: Vec<Turned>,
    /// What was wanted and could not be set.
    pub not_in_force: Vec<Turned>,
    /// Knobs that nobody asked for.
    pub untouched: Vec<&'static str>,
    /// The compiler and what it compiles for.
    pub compiler: String,
    /// Architecture that `-march=native` was.
    pub target: String,
    /// Its flags.
    pub flags: Vec<&'static str>,
    /// How the compiler was shut in.
    pub jail: String,
    /// SHA-256 of the source file, in hexadecimal.
    pub source_sha256: String,
    /// The problem.
    pub problem: String,
    /// Sizes of the timed calls, by the names of the problem's dimensions.
    pub shape: Vec<(String, u32)>,
    /// Whether calls find their inputs in the caches.
    pub caches: Caches,
    /// Build of this program.
    pub build: String,
    /// The command line, for a shell.
    pub command: String,
}

impl Reproduce {
    /// Of a kernel measured on `slot`.
    pub(super) fn of(problem: &Problem, code: &str, compiler: &Compiler, slot: &Slot) -> Self {
        let holds = |t: &&Turned| matches!(t.result, TurnResult::Set | TurnResult::AsItWas);
        let wanted = slot.knobs();
        let untouched = corehold::isolate::Knob::ALL
            .into_iter()
            .filter(|knob| wanted.iter().all(|t| t.knob != *knob));
        let hash = Sha256::digest(code.as_bytes());
        let dimensions = problem.dimensions.iter().cloned();
        Self {
            class: class_of(slot),
            kernel_release: nix::sys::utsname::uname().map_or_else(
                |_| String::new(),
                |name| name.release().to_string_lossy().into_owned(),
            ),
            cores: slot.cores().iter().copied().collect(),
            isolation: slot.isolation(),
            in_force: wanted.iter().filter(holds).cloned().collect(),
            not_in_force: wanted.iter().filter(|t| !holds(t)).cloned().collect(),
            untouched: untouched.map(|knob| knob.name()).collect(),
            compiler: compiler.version().to_owned(),
            target: compiler.target().to_owned(),
            flags: compiler::FLAGS.to_vec(),
            jail: compiler.jail().to_string(),
            source_sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            problem: problem.name.clone(),
            shape: dimensions.zip(problem.timed_shape.clone()).collect(),
            caches: problem.caches,
            build: corehold::build_id(),
            command: command(std::env::args()),
        }
    }

    /// For people: a line each, indented. `sources`: the files, each with its SHA-256.
    pub(super) fn text(&self, sources: &[(&Path, &str)]) -> String {
        let mut text = "to reproduce:\n".to_owned();
        let mut line = |name: &str, what: &str| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "  {name:<10} {what}");
        };
        let list = |turned: &[Turned]| {
            let one = |t: &Turned| match t.what.is_empty() {
                true => t.knob.name().to_owned(),
                false => format!("{} ({})", t.knob.name(), t.what),
            };
            let all: Vec<String> = turned.iter().map(one).collect();
            match all.is_empty() {
                true => "none".to_owned(),
                false => all.join("; "),
            }
        };
        line("command", &self.command);
        line(
            "machine",
            &format!("{}; Linux {}", self.class, self.kernel_release),
        );
        line(
            "held",
            &format!("cores {:?}, {:?}", self.cores, self.isolation),
        );
        line("knobs set", &list(&self.in_force));
        line("not set", &list(&self.not_in_force));
        line("untouched", &self.untouched.join(", "));
        line(
            "compiler",
            &format!("{}, {}; {}", self.compiler, self.target, self.jail),
        );
        line("flags", &self.flags.join(" "));
        for (file, hash) in sources {
            line("source", &format!("{}, sha256 {hash}", file.display()));
        }
        let shape: Vec<String> = self.shape.iter().map(|(d, n)| format!("{d}={n}")).collect();
        let caches = match self.caches {
            Caches::Warm => "warm",
            Caches::Cold => "cold",
        };
        line(
            "problem",
            &format!("{}, {}, {caches} caches", self.problem, shape.join(" ")),
        );
        line("build", &self.build);
        text
    }
}

/// Arguments as a shell reads them again.
fn command(args: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = args.map(|arg| match !arg.is_empty() && arg.chars().all(plain) {
        true => arg,
        false => format!("'{}'", arg.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_command_again() {
        let args = ["corehold", "bench", "my kernel's.c", "--core=1", ""];
        let line = command(args.iter().map(|a| (*a).to_string()));
        assert_eq!(line, r"corehold bench 'my kernel'\''s.c' --core=1 ''");
        let shell = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\n' {line}")])
            .output()
            .unwrap();
        let read: Vec<_> = String::from_utf8(shell.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(read, args);
    }
}
