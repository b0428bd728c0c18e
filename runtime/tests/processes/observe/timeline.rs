//! Timelines of real clusters.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Seek as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use corehold::{Restart, entry};
use serde_json::Value;

use crate::actors::{Keep, KeepMany, Keeper, Panic};
use crate::cluster::{TWO, TestCluster};
use crate::lives::actors::{Mortal, Say};
use crate::tester::Tester;

/// Where it names a cluster, the process prints that cluster's timeline: a driver has one cluster a process.
const READ: &str = "COREHOLD_TEST_READ_TIMELINE";
/// For how many milliseconds it is to be recorded first.
const RECORD: &str = "COREHOLD_TEST_RECORD_MS";

/// A timeline, as Perfetto would read it.
#[derive(Debug)]
struct Trace {
    events: Vec<Value>,
    processes: HashMap<String, u64>,
    tracks: HashMap<(u64, u64), String>,
    /// The clocks' errors together, in microseconds.
    error_us: f64,
}

/// Reads where this process is asked to; whether it was.
fn reads() -> bool {
    let Ok(config) = std::env::var(READ) else {
        return false;
    };
    let record = std::env::var(RECORD).ok();
    let record = record.map(|ms| Duration::from_millis(ms.parse().unwrap()));
    println!(
        "{}",
        entry::timeline(config.as_ref(), record)
            .unwrap()
            .to_chrome()
    );
    true
}

/// A process that reads the timeline, into a file: it may be more than a pipe takes.
struct Reader(Child, File);

impl Reader {
    fn start(config: &Path, case: &str, record_ms: Option<u64>) -> Self {
        let file = tempfile::tempfile().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env(READ, config)
            .env(crate::CASE, case)
            .stdout(file.try_clone().unwrap());
        if let Some(ms) = record_ms {
            command.env(RECORD, ms.to_string());
        }
        Self(command.spawn().unwrap(), file)
    }
}

impl Trace {
    fn of(reader: Reader) -> Self {
        let (trace, missing) = Self::with_missing(reader);
        assert_eq!(missing, Value::Array(Vec::new()));
        trace
    }

    /// With those that did not answer.
    fn with_missing(Reader(mut process, mut file): Reader) -> (Self, Value) {
        assert!(process.wait().unwrap().success());
        file.rewind().unwrap();
        let trace: Value = serde_json::from_reader(file).unwrap();
        let events = trace["traceEvents"].as_array().unwrap().clone();
        let missing = trace["otherData"]["missing"].clone();
        assert_eq!(trace["otherData"]["not_kept"], 0);
        let clocks = trace["otherData"]["clocks"].as_object().unwrap().values();
        let error_us = clocks.map(|c| c["clock_error_us"].as_f64().unwrap()).sum();
        let mut trace = Self {
            processes: HashMap::new(),
            tracks: HashMap::new(),
            events,
            error_us,
        };
        for e in trace.all("M") {
            let name = e["args"]["name"].as_str().unwrap_or_default().to_owned();
            match e["name"].as_str().unwrap() {
                "process_name" => drop(trace.processes.insert(name, pid(&e))),
                "thread_name" => drop(trace.tracks.insert((pid(&e), tid(&e)), name)),
                _ => {}
            }
        }
        trace.check_nesting();
        (trace, missing)
    }

    fn all(&self, ph: &str) -> Vec<Value> {
        let all = self.events.iter().filter(|e| e["ph"] == ph);
        all.cloned().collect()
    }

    /// Handlers of this message on this process.
    fn handlers(&self, process: &str, message: &str) -> Vec<Value> {
        let pid_of = self.processes[process];
        let its = |e: &Value| pid(e) == pid_of && e["name"] == message;
        self.all("X").into_iter().filter(its).collect()
    }

    /// Slices of one track are one after the other, or one within the other.
    fn check_nesting(&self) {
        let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        for e in self.all("X") {
            let begin = e["ts"].as_f64().unwrap();
            let slice = (begin, begin + e["dur"].as_f64().unwrap());
            assert!(slice.0 >= 0.0 && slice.1 >= slice.0, "{e}");
            tracks.entry((pid(&e), tid(&e))).or_default().push(slice);
        }
        for slices in tracks.values_mut() {
            slices.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in slices.windows(2) {
                let (first, next) = (pair[0], pair[1]);
                // A nanosecond is lost where a time is written as a fraction of a microsecond.
                let apart = first.1 <= next.0 + 0.002;
                assert!(apart || next.1 <= first.1, "{first:?} and {next:?}");
            }
        }
    }

    fn marks(&self) -> Vec<String> {
        let marks = self.all("i");
        marks
            .iter()
            .map(|e| e["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn pid(e: &Value) -> u64 {
    e["pid"].as_u64().unwrap()
}

fn tid(e: &Value) -> u64 {
    e["tid"].as_u64().unwrap()
}

pub fn through_three() {
    if reads() {
        return;
    }
    let cluster = TestCluster::up(&format!("[observe]\ntimeline = true\n{TWO}"));
    let config = cluster.config();
    cluster.drive(async |cluster| {
        let keeper = cluster
            .actor(Keeper::default())
            .label("kind", "b")
            .name("keeper");
        let keeper = keeper.restart(Restart::on_failure(1)).spawn().await?;
        let tester = cluster
            .actor(Tester::default())
            .label("kind", "a")
            .name("tester");
        let tester = tester.spawn().await?;
        let alone = cluster
            .actor(Mortal::default())
            .label("kind", "a")
            .name("alone");
        let alone = alone.process().spawn().await?;
        let at = keeper.clone();
        tester.ask(KeepMany { at, count: 20 }).await??;
        alone.ask(Say("heard".to_owned())).await?;
        keeper.ask(Panic("enough".to_owned())).await.unwrap_err();
        keeper.ask(Keep(1)).retry(3).await?;
        // The last handler's end is noted a moment after its answer.
        keeper.ask(Keep(2)).await?;

        let trace = Trace::of(Reader::start(
            &config,
            "one_ask_is_followed_through_three_processes",
            None,
        ));
        let driver = trace
            .processes
            .keys()
            .find(|name| name.starts_with("driver test"));
        let driver = trace.processes[driver.expect("the driver is there")];
        assert!(trace.processes.contains_key("head"));
        // The driver asked the tester, and that the keeper, twenty times.
        let many = trace.handlers("node one", "KeepMany");
        assert_eq!(many.len(), 1);
        let many = &many[0];
        assert_eq!(trace.tracks[&(pid(many), tid(many))], "tester");
        let asks = trace
            .all("b")
            .into_iter()
            .filter(|e| e["name"] == "ask KeepMany");
        let asks: Vec<_> = asks.collect();
        assert_eq!(asks.len(), 1);
        assert_eq!(pid(&asks[0]), driver);
        assert_eq!(asks[0]["id2"]["local"], many["args"]["parent_id"]);
        assert_eq!(asks[0]["args"]["trace_id"], many["args"]["trace_id"]);
        let keeps = trace.handlers("node two", "Keep");
        let theirs = |e: &&Value| e["args"]["parent_id"] == many["args"]["span_id"];
        let theirs: Vec<&Value> = keeps.iter().filter(theirs).collect();
        assert_eq!(theirs.len(), 20);
        for keep in &theirs {
            assert_eq!(keep["args"]["trace_id"], many["args"]["trace_id"]);
            assert_eq!(keep["args"]["caller"], "tester");
            assert_eq!(trace.tracks[&(pid(keep), tid(keep))], "keeper");
            // Within the time of its asker, as far as the clocks are known.
            let (begin, end) = (many["ts"].as_f64().unwrap(), many["dur"].as_f64().unwrap());
            let at = keep["ts"].as_f64().unwrap() - begin;
            assert!(
                at > -trace.error_us && at < end + trace.error_us,
                "{keep} {many}"
            );
        }
        let arrows = |ph| trace.all(ph).into_iter().map(|e| e["id"].clone());
        let (mut from, mut to): (Vec<_>, Vec<_>) = (arrows("s").collect(), arrows("f").collect());
        from.sort_by_key(Value::to_string);
        to.sort_by_key(Value::to_string);
        assert_eq!(from, to);
        assert!(
            theirs
                .iter()
                .all(|keep| to.contains(&keep["args"]["span_id"]))
        );
        // The twentieth and those that the driver has asked.
        assert!(keeps.len() >= 21, "{}", keeps.len());
        let panics = trace.handlers("node two", "Panic");
        assert!(
            panics.len() == 1 && panics[0]["args"]["panicked"] == true,
            "{panics:?}"
        );

        let marks = trace.marks();
        for mark in [
            "born: keeper",
            "born again: keeper",
            "born: tester",
            "node one joined",
            "node two joined",
        ] {
            assert_eq!(
                marks.iter().filter(|m| *m == mark).count(),
                1,
                "{mark} of {marks:?}"
            );
        }
        assert!(
            marks
                .iter()
                .any(|m| m.starts_with("died: ") && m.contains("enough")),
            "{marks:?}"
        );

        // What a worker's handler logs has the ids of its span.
        let said = trace.handlers("node one", "Say");
        assert_eq!(said.len(), 1);
        let folder = config.parent().unwrap().join(".corehold/logs/actors");
        let log = folder.read_dir().unwrap().flatten();
        let log: String = log
            .map(|f| std::fs::read_to_string(f.path()).unwrap())
            .collect();
        let line = log
            .lines()
            .find(|l| l.contains("log: heard"))
            .unwrap_or_default();
        for id in ["trace_id", "span_id"] {
            let id = format!("{id}={}", said[0]["args"][id].as_str().unwrap());
            assert!(line.contains(&id), "{id} is not in {line:?} of:\n{log}");
        }
        Ok(())
    });
}

pub fn for_a_while() {
    if reads() {
        return;
    }
    const CASE: &str = "a_timeline_is_recorded_only_while_it_is_wanted";
    let cluster = TestCluster::up(TWO);
    let config = cluster.config();
    cluster.drive(async |cluster| {
        let keeper = cluster
            .actor(Keeper::default())
            .name("keeper")
            .spawn()
            .await?;
        keeper.ask(Keep(1)).await?;
        // Births are kept, handlers are not.
        let trace = Trace::of(Reader::start(&config, CASE, None));
        assert!(trace.all("X").is_empty() && trace.all("b").is_empty());
        assert!(trace.marks().contains(&"born: keeper".to_owned()));

        let mut reading = Reader::start(&config, CASE, Some(1_000));
        while reading.0.try_wait().unwrap().is_none() {
            keeper.ask(Keep(2)).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let trace = Trace::of(reading);
        let asks: Vec<Value> = trace
            .all("b")
            .iter()
            .map(|e| e["id2"]["local"].clone())
            .collect();
        let handlers = trace.all("X");
        // The driver and the node do not begin to record at the same moment.
        let known = |e: &&Value| asks.contains(&e["args"]["parent_id"]);
        assert!(handlers.iter().filter(known).count() > 0, "{handlers:?}");

        // Soon it is off again.
        let handled = || Trace::of(Reader::start(&config, CASE, None)).all("X").len();
        super::until("end of the recording", async || {
            let before = handled();
            keeper.ask(Keep(3)).await.unwrap();
            (handled() == before).then_some(())
        })
        .await;
        Ok(())
    });
}

pub fn after_the_end() {
    if reads() {
        return;
    }
    const CASE: &str = "what_ended_processes_have_recorded_is_kept";
    let cluster = TestCluster::up(&format!("[observe]\ntimeline = true\n{TWO}"));
    let config = cluster.config();
    let mut asked = Duration::ZERO;
    cluster.drive(async |cluster| {
        let alone = cluster.actor(Mortal::default()).label("kind", "b");
        let alone = alone.process().spawn().await?;
        let since = Instant::now();
        alone.ask(Say("heard".to_owned())).await?;
        asked = since.elapsed();
        Ok(())
    });
    // The driver is gone, and its actor's process soon.
    let began = Instant::now();
    let trace = loop {
        // Who ends just now does not answer.
        let (trace, _) = Trace::with_missing(Reader::start(&config, CASE, None));
        let gone = !trace.marks().iter().any(|m| m.starts_with("died: "));
        if !gone && !trace.handlers("node two", "Say").is_empty() {
            break trace;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{trace:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = trace.handlers("node two", "Say");
    assert_eq!(said.len(), 1, "kept once");
    let track = &trace.tracks[&(pid(&said[0]), tid(&said[0]))];
    assert!(track.starts_with("Mortal"), "{track}");
    let asks = trace.all("b");
    let asks: Vec<&Value> = asks.iter().filter(|e| e["name"] == "ask Say").collect();
    assert_eq!(asks.len(), 1, "kept once");
    assert_eq!(asks[0]["id2"]["local"], said[0]["args"]["parent_id"]);
    let driver = |name: &&String| name.starts_with("driver test");
    let driver = trace.processes.keys().find(driver).unwrap();
    assert_eq!(pid(asks[0]), trace.processes[driver]);
    // By the reader's clock the handler is within the ask, as far as the clocks are known.
    let late = said[0]["ts"].as_f64().unwrap() - asks[0]["ts"].as_f64().unwrap();
    let most = asked.as_secs_f64() * 1e6 + trace.error_us;
    assert!(late > -trace.error_us && late < most, "{late} of {most}");
}
