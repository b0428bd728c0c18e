//! Programs of other builds on a cluster: shipped to the nodes, kept there, apart from each other, and heard.
//!
//! Another build is a copy of this program with another id in its `.note.gnu.build-id`: the same code, and neither the
//! head nor a node can know that.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use corehold::prelude::*;
use corehold::{Error, entry, wire};

use crate::actors::{Keep, Keeper, Kept, Whereabouts};
use crate::cluster::{ONE, TWO, TestCluster};
use crate::hosts::Hosts;

mod falsified;
mod patience;

pub const ALL: &[(&str, fn())] = &[
    ("a_program_of_another_build_is_shipped_once", shipped),
    ("another_host_gets_a_copy_of_its_own", other_host),
    ("a_kept_program_starts_without_its_driver", left_alone),
    ("programs_do_not_see_each_others_types", apart),
    ("a_damaged_program_is_not_run", falsified::damaged),
    ("what_actors_print_comes_to_their_driver", heard),
    ("who_prints_too_much_is_cut_short_and_told", too_much),
    (
        "a_start_ends_that_waits_for_its_program",
        falsified::given_up,
    ),
    (
        "a_cluster_of_ones_own_ends_with_its_program",
        patience::killed_owner,
    ),
    (
        "a_spawn_that_waits_says_so",
        patience::told_what_it_waits_for,
    ),
];

/// What a program of another build is to do, where this process is one.
pub const GUEST: &str = "COREHOLD_TEST_GUEST";
/// A handle of another program, in hexadecimal digits.
const HANDLE: &str = "COREHOLD_TEST_HANDLE";

/// This process is a program of another build.
pub fn guest(what: &str) -> std::process::ExitCode {
    if what == "own" {
        return patience::own();
    }
    let what = what.to_owned();
    entry::run(async move |cluster| match what.as_str() {
        "ship" => ship(cluster).await,
        "keep" => keep(cluster).await,
        "meet" => meet(cluster).await,
        "talk" => talk(cluster, 3, 200, 0).await,
        "chatter" => talk(cluster, 1, CHATTER, 300).await,
        "wait" => patience::wait(cluster).await,
        "ship-one" => keep(cluster).await,
        other => panic!("{other}"),
    })
}

/// A copy of this program that is another build: the `n`th.
fn another_build(up: &TestCluster, n: u8) -> PathBuf {
    let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let hex = corehold::build_id();
    let id: Vec<u8> = (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    match bytes.windows(id.len()).position(|w| w == id) {
        Some(at) => bytes[at] ^= n,
        // The id is the hash of the file, to which more may be added.
        None => bytes.push(n),
    }
    let path = up.config().with_file_name(format!("guest-{n}"));
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o700))
        .unwrap();
    path
}

/// Runs a program on the cluster, as `corehold run` does.
fn run(up: &TestCluster, program: &Path, what: &str, with: &[(&str, &str)]) -> Output {
    let output = Command::new(program)
        .env_remove(crate::CASE)
        .env(GUEST, what)
        .env(entry::CLUSTER_ENV, up.config())
        .envs(with.iter().copied())
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn log(up: &TestCluster, process: &str) -> String {
    let logs = up.keys().with_file_name("logs");
    std::fs::read_to_string(logs.join(format!("{process}.log"))).unwrap()
}

/// The programs that nodes of this cluster keep.
fn kept(up: &TestCluster) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(up.keys().with_file_name("programs"));
    entries
        .into_iter()
        .flatten()
        .map(|e| e.unwrap().path())
        .collect()
}

fn shipped() {
    let up = TestCluster::up(TWO);
    let program = another_build(&up, 1);
    let came = |up: &TestCluster| {
        let logs = [log(up, "one"), log(up, "two")].concat();
        logs.matches("a program comes in").count()
    };
    assert_eq!(text(&run(&up, &program, "ship", &[]).stdout), "shipped\n");
    assert_eq!(came(&up), 1);
    let files = kept(&up);
    assert_eq!(files.len(), 1, "{files:?}");
    let metadata = files[0].metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
    assert_eq!(metadata.len(), program.metadata().unwrap().len());
    let folder = files[0].parent().unwrap().metadata().unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    // What is there is not sent again (PR-2).
    run(&up, &program, "ship", &[]);
    assert_eq!(came(&up), 1);
    let other = another_build(&up, 2);
    run(&up, &other, "ship", &[]);
    assert_eq!(came(&up), 2);
}

fn other_host() {
    let Some(hosts) = Hosts::up("another_host_gets_a_copy_of_its_own") else {
        return;
    };
    let state = hosts.part_state();
    let _far = hosts.start_far();
    let up = &hosts.up;
    while !up.status().contains("kind=b") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let program = another_build(up, 1);
    for _ in 0..2 {
        let output = run(up, &program, "ship", &[]);
        assert_eq!(text(&output.stdout), "shipped\n");
    }
    // Once to each host, over the network.
    let here = up.keys().with_file_name("programs");
    for (node, programs) in [("one", here), ("far", state.join("programs"))] {
        assert_eq!(log(up, node).matches("a program comes in").count(), 1);
        assert_eq!(std::fs::read_dir(programs).unwrap().count(), 1);
    }
}

/// Actors on both nodes, in processes of their own, which spawn and ask each other.
async fn ship(cluster: Cluster) -> corehold::Result<()> {
    let mut places = Vec::new();
    for kind in ["a", "b"] {
        let keeper = cluster
            .actor(Keeper::default())
            .label("kind", kind)
            .cpus(0.1);
        let keeper = keeper.restart(Restart::on_failure(1)).spawn().await?;
        let (node, pid, _) = keeper.ask(Whereabouts).await?;
        places.push((node, pid, keeper));
    }
    assert_eq!(places[0].0, "one");
    assert_ne!(places[1].0, "one");
    assert_ne!(places[0].1, places[1].1);
    let status = cluster.status().await?;
    for (.., keeper) in &places {
        let id = keeper.id().to_string();
        let actor = status.actors.iter().find(|a| a.id == id).unwrap();
        assert!(actor.state.contains("alive"), "{}", actor.state);
    }
    // From one node to the other, not by way of this process.
    let at = places[1].2.clone();
    let values = vec![7, 8];
    let kept = places[0]
        .2
        .ask(crate::actors::KeepAt { at, values })
        .await??;
    assert_eq!(kept, [7, 8]);
    // A panic is told; the next life begins in another process of the same program.
    let died = places[0]
        .2
        .ask(crate::actors::Panic("on purpose".to_owned()))
        .await
        .unwrap_err();
    assert!(died.to_string().contains("on purpose"), "{died}");
    let (node, pid, life) = places[0].2.ask(Whereabouts).await?;
    assert_eq!((node.as_str(), life), ("one", 2));
    assert_ne!(pid, places[0].1);
    println!("shipped");
    Ok(())
}

fn left_alone() {
    let up = TestCluster::up(ONE);
    let program = another_build(&up, 1);
    let kill = |pid: &str| {
        let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let become_so = |parts: &[&str]| {
        let began = std::time::Instant::now();
        loop {
            let status = up.status();
            let line = status.lines().find(|line| line.contains("theirs"));
            if line.is_some_and(|line| parts.iter().all(|part| line.contains(part))) {
                return;
            }
            assert!(
                began.elapsed() < std::time::Duration::from_secs(60),
                "{status}"
            );
        }
    };
    // No process of the program is left, but what the node keeps.
    kill(&text(&run(&up, &program, "keep", &[]).stdout));
    become_so(&[" 2 ", "alive"]);
    // Nor that.
    let folder = up.keys().with_file_name("programs");
    std::fs::remove_dir_all(&folder).unwrap();
    let runs_it = |process: &std::fs::DirEntry| {
        let exe = std::fs::read_link(process.path().join("exe"));
        exe.is_ok_and(|exe| exe.starts_with(&folder))
    };
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        if runs_it(&process) {
            kill(process.file_name().to_str().unwrap());
        }
    }
    become_so(&["dead", "no process sends the program"]);
}

fn apart() {
    let up = TestCluster::up(TWO);
    let (first, second) = (another_build(&up, 1), another_build(&up, 2));
    up.drive(async |cluster| {
        let ours = cluster
            .actor(Keeper::default())
            .name("ours")
            .spawn()
            .await?;
        ours.ask(Keep(1)).await?;
        // Both at once, and detached: they are there when the second one looks for them.
        let (config, handle) = (&up, hex(&wire::encode(&ours).unwrap()));
        run_aside(config, &first, "keep", &[]).await;
        let theirs = cluster.find::<Keeper>("theirs").await.unwrap_err();
        let refused = matches!(theirs, Error::Ask(AskError::OtherProgram { .. }));
        assert!(refused, "{theirs}");
        let said = run_aside(config, &second, "meet", &[(HANDLE, &handle)]).await;
        assert_eq!(said, "ours and theirs are apart\n");
        assert_eq!(ours.ask(Kept).await?, [1]);
        Ok(())
    });
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

async fn run_aside(up: &TestCluster, program: &Path, what: &str, with: &[(&str, &str)]) -> String {
    let (config, program, what) = (up.config(), program.to_owned(), what.to_owned());
    let with: Vec<(String, String)> = with
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let ran = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(program);
        command
            .env_remove(crate::CASE)
            .env(GUEST, what)
            .env(entry::CLUSTER_ENV, config);
        command.envs(with).output().unwrap()
    });
    let output = ran.await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Leaves an actor behind.
async fn keep(cluster: Cluster) -> corehold::Result<()> {
    let keeper = cluster.actor(Keeper::default()).name("theirs");
    let keeper = keeper.restart(Restart::on_failure(2)).detached();
    let keeper = keeper.spawn().await?;
    keeper.ask(Keep(2)).await?;
    let found = cluster.find::<Keeper>("theirs").await?;
    assert_eq!(found.ask(Kept).await?, [2]);
    println!("{}", found.ask(Whereabouts).await?.1);
    Ok(())
}

async fn meet(cluster: Cluster) -> corehold::Result<()> {
    for name in ["ours", "theirs"] {
        match cluster.find::<Keeper>(name).await {
            Err(Error::Ask(AskError::OtherProgram { theirs, ours, .. })) => {
                assert_ne!(theirs, ours)
            }
            other => panic!("{other:?}"),
        }
    }
    // A handle that came some other way is of no use either.
    let digits = std::env::var(HANDLE).unwrap();
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let stray: Handle<Keeper> = wire::decode(&bytes).unwrap();
    let error = stray.ask(Kept).await.unwrap_err();
    assert!(matches!(error, AskError::OtherProgram { .. }), "{error}");
    assert_eq!(error.fate(), corehold::Fate::NotSent);
    // While its own of the same type live beside them.
    let keeper = cluster.actor(Keeper::default()).spawn().await?;
    keeper.ask(Keep(3)).await?;
    assert_eq!(keeper.ask(Kept).await?, [3]);
    println!("ours and theirs are apart");
    Ok(())
}

/// Prints numbers to both of its outputs and to its log.
#[derive(Default, Serialize, Deserialize)]
pub struct Talker;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Talk {
    lines: u64,
    /// How much longer than their number the lines are.
    padding: usize,
}

#[corehold::actor]
impl Actor for Talker {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Talk> for Talker {
    type Result = ();
    fn handle(&mut self, Talk { lines, padding }: Talk, _: &mut Self::Context) {
        let padding = ".".repeat(padding);
        for line in 0..lines {
            println!("line {line}{padding}");
        }
        eprintln!("to stderr");
    }
}

async fn talk(cluster: Cluster, actors: usize, lines: u64, padding: usize) -> corehold::Result<()> {
    let mut asked = Vec::new();
    for n in 0..actors {
        let kind = if n % 2 == 0 { "a" } else { "b" };
        let talker = cluster
            .actor(Talker)
            .name(format!("talker-{n}"))
            .label("kind", kind);
        let talker = talker.spawn().await?;
        asked.push(talker.ask(Talk { lines, padding }).into_future());
    }
    futures_util::future::try_join_all(asked).await?;
    println!("talked");
    Ok(())
}

fn heard() {
    let up = TestCluster::up(TWO);
    let program = another_build(&up, 1);
    let output = run(&up, &program, "talk", &[]);
    // What the driver itself prints is untouched.
    assert_eq!(text(&output.stdout), "talked\n");
    let err = text(&output.stderr);
    for (n, node) in ["one", "two", "one"].iter().enumerate() {
        let tag = format!("[talker-{n}@{node}] ");
        let lines: Vec<&str> = err
            .lines()
            .filter_map(|line| line.strip_prefix(&tag))
            .collect();
        let numbers: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("line "))
            .collect();
        assert_eq!(
            numbers,
            (0..200).map(|n| n.to_string()).collect::<Vec<_>>(),
            "{err}"
        );
        assert!(lines.contains(&"to stderr"), "{err}");
    }
    // And not where it is not wanted.
    let quiet = run(&up, &program, "talk", &[(entry::QUIET_ENV, "1")]);
    assert!(
        !text(&quiet.stderr).contains("talker"),
        "{}",
        text(&quiet.stderr)
    );
}

/// Lines, of 300 bytes: more than find room between an actor and a terminal that takes none.
const CHATTER: u64 = 60_000;

fn too_much() {
    let up = TestCluster::up(ONE);
    let program = another_build(&up, 1);
    let mut driver = Command::new(program)
        .env_remove(crate::CASE)
        .env(GUEST, "chatter")
        .env(entry::CLUSTER_ENV, up.config())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nobody reads what the actor prints, and it does not wait for that.
    let mut said = String::new();
    let mut stdout = BufReader::new(driver.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    assert_eq!(said, "talked\n");
    let mut err = String::new();
    let mut stderr = driver.stderr.take().unwrap();
    stderr.read_to_string(&mut err).unwrap();
    assert!(driver.wait().unwrap().success(), "{err}");
    let (mut seen, mut missed) = (0u64, 0u64);
    let lines = err.lines();
    for line in lines.filter_map(|line| line.strip_prefix("[talker-0@one] ")) {
        if let Some(line) = line.strip_prefix("line ") {
            // In order, and what is left out is counted.
            let number: u64 = line.trim_end_matches('.').parse().unwrap();
            assert_eq!(number, seen + missed);
            seen += 1;
        } else if let Some(words) = line.strip_prefix("... ") {
            missed += words.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
    }
    // The line to the standard error may be among those left out, or not.
    let total = seen + missed;
    assert!((CHATTER..=CHATTER + 1).contains(&total), "{seen}, {missed}");
    assert!(seen > 0 && missed > 0, "{seen}, {missed}");
}
