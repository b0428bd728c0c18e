//! The host's side: a kernel, the machine, and what it says.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::{archive, guest};

/// The metapackage of Debian's smallest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";
/// A boot and all checks take some 20 s where the machine is quiet, in software.
const PATIENCE: Duration = Duration::from_secs(480);

/// Boots the guest and reads its checks.
pub fn boot_and_check() -> Result<(), String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vm");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    if Command::new("qemu-system-x86_64")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        println!(
            "SKIPPED: no qemu-system-x86_64 here; `cargo xtask test packages` installs it as root, \
             else `apt-get install qemu-system-x86`"
        );
        return Ok(());
    }
    let kernel = match kernel(&folder) {
        Ok(kernel) => kernel,
        Err(why) => {
            println!("SKIPPED: no kernel for the virtual machine: {why}");
            return Ok(());
        }
    };
    let initramfs = folder.join(format!("initramfs-{}", std::process::id()));
    archive::pack(&initramfs)?;
    let mut machine = start(&kernel, &initramfs)?;
    let heard = listen(&mut machine);
    let _ = machine.kill();
    let _ = machine.wait();
    let _ = fs::remove_file(&initramfs);
    let _ = fs::remove_file(initramfs.with_extension("program"));
    heard
}

/// A kernel that was unpacked before, or Debian's, which is fetched and unpacked, not installed.
fn kernel(folder: &Path) -> Result<PathBuf, String> {
    if let Some(kernel) = std::env::var_os("COREHOLD_TEST_KERNEL") {
        return Ok(kernel.into());
    }
    let unpacked = || {
        let boot = fs::read_dir(folder.join("kernel/boot")).ok()?;
        boot.flatten().map(|e| e.path()).find(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("vmlinuz-")
        })
    };
    if let Some(kernel) = unpacked() {
        return Ok(kernel);
    }
    let depends = output(Command::new("apt-cache").args(["depends", KERNEL]))?;
    let package = depends
        .lines()
        .find_map(|l| l.trim().strip_prefix("Depends: linux-image-"))
        .ok_or(format!("apt knows no {KERNEL} (`apt-get update`?)"))?;
    let package = format!("linux-image-{package}");
    output(
        Command::new("apt-get")
            .args(["download", &package])
            .current_dir(folder),
    )?;
    let deb = fs::read_dir(folder)
        .map_err(|e| e.to_string())?
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "deb"))
        .ok_or("apt-get download left no package")?;
    // Into a folder that is renamed when it is whole.
    let partial = folder.join(format!("kernel-{}", std::process::id()));
    let whole = output(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&partial));
    // Also one that was cut off: it is fetched anew next time.
    let _ = fs::remove_file(deb);
    if whole.is_err() || fs::rename(&partial, folder.join("kernel")).is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    whole?;
    unpacked().ok_or_else(|| format!("{package} has no boot/vmlinuz-*"))
}

fn output(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        return Err(format!("{command:?} failed: {said}"));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Two memory nodes, each with one physical core of two siblings. Software emulation, which is
/// everywhere; `COREHOLD_TEST_VM_ACCEL=kvm` where that works.
fn start(kernel: &Path, initramfs: &Path) -> Result<Child, String> {
    let accel =
        std::env::var("COREHOLD_TEST_VM_ACCEL").unwrap_or_else(|_| "tcg,thread=multi".into());
    let memory = |n| format!("memory-backend-ram,id=m{n},size=384M");
    let node = |n: u32| format!("node,nodeid={n},cpus={}-{},memdev=m{n}", 2 * n, 2 * n + 1);
    Command::new("qemu-system-x86_64")
        .args([
            "-accel",
            &accel,
            "-cpu",
            "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid,-spec-ctrl",
        ])
        .args(["-smp", "4,sockets=2,cores=1,threads=2", "-m", "768M"])
        .args(["-object", &memory(0), "-object", &memory(1)])
        .args(["-numa", &node(0), "-numa", &node(1)])
        .args([
            "-nodefaults",
            "-no-reboot",
            "-display",
            "none",
            "-serial",
            "stdio",
        ])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 tsc=unstable swapaccount=1",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|e| format!("qemu-system-x86_64: {e}"))
}

/// Reads the console until the guest has ended or time is up.
fn listen(machine: &mut Child) -> Result<(), String> {
    let console = machine.stdout.take().expect("it is piped");
    let (said, hear) = channel();
    // Ends with the console, which ends with the machine.
    std::thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if said.send(line).is_err() {
                break;
            }
        }
    });
    let end = Instant::now() + PATIENCE;
    let (mut good, mut failed) = (0, Vec::new());
    loop {
        let line = match hear.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "the machine did not end in {PATIENCE:?}; {good} checks passed"
                ));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!(
                    "the machine ended before its checks; {good} passed"
                ));
            }
        };
        println!("vm: {line}");
        if line.starts_with(guest::PASSED) {
            good += 1;
        } else if line.starts_with(guest::FAILED) {
            failed.push(line);
        } else if line.starts_with(guest::DONE) {
            break;
        }
    }
    match (good, failed.len()) {
        (0, 0) => Err("no check ran".into()),
        (_, 0) => Ok(()),
        _ => Err(failed.join("\n")),
    }
}
