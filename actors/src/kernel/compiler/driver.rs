//! Asking gcc's driver, once, which programs it runs and how.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CompilerError, FLAGS};

/// One program to run.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// For messages.
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

impl Step {
    /// The step with one argument more, behind `at`.
    pub(super) fn with(&self, at: &str, more: &str) -> Step {
        let mut step = self.clone();
        let place = step.arguments.iter().position(|a| a == at);
        let place = place.map_or(step.arguments.len(), |place| place + 1);
        step.arguments.insert(place, more.to_owned());
        step
    }
}

/// What is known of one gcc.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) version: String,
    pub(super) target: String,
    /// From `kernel.c` to `kernel.so`, in the scratch folder.
    pub(super) steps: Vec<Step>,
}

/// Added to the compiler proper: short messages, no tables that nobody unwinds by.
const QUIET: [&str; 4] = [
    "-fno-diagnostics-show-caret",
    "-fdiagnostics-color=never",
    "-fmax-errors=3",
    "-fno-asynchronous-unwind-tables",
];

impl Parts {
    /// Finds gcc in a search path and asks it.
    pub(super) fn find(path: &OsStr) -> Result<Parts, CompilerError> {
        let gcc = std::env::split_paths(path)
            .map(|dir| dir.join("gcc"))
            .find(|file| nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok())
            .ok_or_else(|| CompilerError::Missing {
                path: path.display().to_string(),
            })?;
        let ask = |arguments: &[&str]| ask(&gcc, path, arguments);
        let broken = |message: &str| CompilerError::Broken {
            gcc: gcc.clone(),
            message: message.to_string(),
        };

        let mut dry = vec!["-###"];
        dry.extend(FLAGS);
        dry.extend(["-x", "c", "kernel.c", "-o", "kernel.so"]);
        let plan = ask(&dry)?;
        let cc1 = plan
            .lines()
            .filter(|line| line.starts_with(' '))
            .map(words)
            .find(|words| words.first().is_some_and(|w| w.ends_with("/cc1")))
            .ok_or_else(|| broken("its dry run names no cc1"))?;
        let version = ask(&["--version"])?
            .lines()
            .next()
            .unwrap_or_default()
            .to_string();
        let machine = ask(&["-dumpmachine"])?.trim().to_string();
        let native = cc1
            .iter()
            .find_map(|w| w.strip_prefix("-march="))
            .unwrap_or("native");
        let target = format!("{machine} {native}");

        let mut compile = without_output(&cc1[1..]);
        compile.extend(QUIET.map(String::from));
        compile.extend(["-o".to_string(), "kernel.s".to_string()]);
        let strings = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        // Now, not lazily; no executable stack; no relocations in code; nothing undefined.
        let mut link = strings(&[
            "-shared",
            "-z",
            "now",
            "-z",
            "noexecstack",
            "-z",
            "text",
            "-z",
            "defs",
            "--hash-style=gnu",
            "--build-id=none",
            "-o",
            "kernel.so",
            "kernel.o",
            "--as-needed",
        ]);
        for library in ["libgomp.so.1", "libm.so.6", "libc.so.6"] {
            link.push(
                ask(&[&format!("-print-file-name={library}")])?
                    .trim()
                    .to_string(),
            );
        }
        let program = |name: &str| {
            let answer = ask(&[&format!("-print-prog-name={name}")])?;
            let answer = Path::new(answer.trim()).to_path_buf();
            if answer.is_absolute() {
                return Ok(answer);
            }
            std::env::split_paths(path)
                .map(|dir| dir.join(&answer))
                .find(|file| file.exists())
                .ok_or_else(|| broken(&format!("there is no `{name}`")))
        };
        let steps = vec![
            Step {
                name: "cc1",
                program: PathBuf::from(&cc1[0]),
                arguments: compile,
            },
            Step {
                name: "as",
                program: program("as")?,
                arguments: strings(&["--64", "-o", "kernel.o", "kernel.s"]),
            },
            Step {
                name: "ld",
                program: program("ld")?,
                arguments: link,
            },
        ];
        if let Some(step) = steps.iter().find(|step| !step.program.exists()) {
            return Err(broken(&format!("there is no {}", step.program.display())));
        }
        Ok(Parts {
            version,
            target,
            steps,
        })
    }
}

/// What gcc prints for some arguments, on either stream.
fn ask(gcc: &Path, path: &OsStr, arguments: &[&str]) -> Result<String, CompilerError> {
    let broken = |message: String| CompilerError::Broken {
        gcc: gcc.to_path_buf(),
        message,
    };
    let output = Command::new(gcc)
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", path)
        .output()
        .map_err(|error| broken(error.to_string()))?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    match output.status.success() {
        true => Ok(text),
        false => Err(broken(
            text.lines().last().unwrap_or("it failed").to_string(),
        )),
    }
}

/// The words of a line of the dry run; some stand in double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The arguments without the ones that name the driver's own temporary files.
fn without_output(arguments: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut skip = false;
    for argument in arguments {
        match argument.as_str() {
            _ if skip => skip = false,
            "-o" | "-dumpdir" | "-dumpbase" | "-dumpbase-ext" => skip = true,
            "-fasynchronous-unwind-tables" => {}
            _ => kept.push(argument.clone()),
        }
    }
    kept
}
