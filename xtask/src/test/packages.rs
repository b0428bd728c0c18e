//! The Debian packages that build and tests use: installed where that is allowed, else
//! named.
use std::path::Path;
use std::process::Command;

/// Why a package could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("missing: {missing}; install with `{install}`, or what your system calls them")]
    Missing { missing: String, install: String },
    #[error("`{command}` failed ({status}); its message is above")]
    Apt {
        command: String,
        status: std::process::ExitStatus,
    },
    #[error("cannot run `{command}`: {source}")]
    Spawn {
        command: String,
        source: std::io::Error,
    },
}

struct Package {
    name: &'static str,
    why: &'static str,
    /// Without it some tests skip, and say so.
    optional: bool,
    is_there: fn() -> bool,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "gcc",
        why: "compiles the kernels",
        optional: false,
        is_there: || on_path("gcc"),
    },
    Package {
        name: "g++",
        why: "builds the bindings of libtorch",
        optional: false,
        is_there: || on_path("g++"),
    },
    Package {
        name: "libc6-dev",
        why: "the C library's headers",
        optional: false,
        is_there: || Path::new("/usr/include/stdlib.h").exists(),
    },
    Package {
        name: "python3-pip",
        why: "fetches libtorch",
        optional: false,
        is_there: || succeeds(Command::new("python3").args(["-m", "pip", "--version"])),
    },
    Package {
        name: "iproute2",
        why: "makes networks for the tests of lost nodes",
        optional: true,
        is_there: || on_path("ip"),
    },
    Package {
        name: "openssh-server",
        why: "hosts for the tests of nodes that are launched by ssh",
        optional: true,
        is_there: || Path::new("/usr/sbin/sshd").exists(),
    },
    Package {
        name: "libopenblas0-pthread",
        why: "the rival of the best kernel",
        optional: true,
        is_there: openblas_is_there,
    },
    Package {
        name: "qemu-system-x86",
        why: "a machine with cgroup v2, for the tests of held cores",
        optional: true,
        is_there: || on_path("qemu-system-x86_64"),
    },
];

/// Makes sure that the packages are there.
pub fn ensure() -> Result<(), PackageError> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|p| !(p.is_there)()).collect();
    if missing.is_empty() {
        println!(
            "all there: {}",
            PACKAGES
                .iter()
                .map(|p| p.name)
                .collect::<Vec<_>>()
                .join(", ")
        );
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|p| p.name).collect();
    let (optional, needed): (Vec<&Package>, Vec<&Package>) =
        missing.iter().partition(|p| p.optional);
    let install = format!("sudo apt-get install {}", names.join(" "));
    if is_root() && on_path("apt-get") {
        println!("installing {}", names.join(", "));
        match install_all(&names) {
            Err(e) if needed.is_empty() => println!("{e}"),
            other => return other,
        }
    } else if !needed.is_empty() {
        return Err(PackageError::Missing {
            missing: list(&needed),
            install,
        });
    }
    println!(
        "not there, so some tests will skip: {}; install with `{install}`",
        list(&optional)
    );
    Ok(())
}

fn list(packages: &[&Package]) -> String {
    let each = packages.iter().map(|p| format!("{} ({})", p.name, p.why));
    each.collect::<Vec<_>>().join(", ")
}

fn install_all(names: &[&str]) -> Result<(), PackageError> {
    apt(&["update", "--quiet"])?;
    let mut install = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    install.extend(names);
    apt(&install)
}

fn apt(args: &[&str]) -> Result<(), PackageError> {
    let command = format!("apt-get {}", args.join(" "));
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(PackageError::Apt { command, status }),
        Err(source) => Err(PackageError::Spawn { command, source }),
    }
}

/// Whether this process is root, by the owner of its own entry in /proc.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The pthread flavour lies in a folder of its own below the machine's library folder.
fn openblas_is_there() -> bool {
    let Ok(folders) = std::fs::read_dir("/usr/lib") else {
        return false;
    };
    folders
        .flatten()
        .any(|f| f.path().join("openblas-pthread/libopenblas.so.0").exists())
}
