//! A timeline in the Trace Event Format, which Perfetto (<https://ui.perfetto.dev>) and Chrome open.
//!
//! One process for each node, the head and each driver; one track for each actor. Handlers that overlap (an actor with a
//! concurrency, or two lives of it) get tracks of their own, since the slices of one track must nest.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::record::{HandlerSpan, RecordedProcess, Timeline};
use crate::ids::ActorId;

/// The track of what belongs to no actor.
const OWN: u64 = 0;

impl Timeline {
    /// As a JSON text.
    pub fn to_chrome(&self) -> String {
        let mut writer = Writer {
            timeline: self,
            events: Vec::new(),
            zero: self.begin(),
            tracks: HashMap::new(),
            pids: BTreeMap::new(),
        };
        writer.number_processes();
        for process in &self.processes {
            writer.handlers(process);
            writer.asks(process);
            writer.marks(process);
        }
        writer.arrows();
        let clocks = self.processes.iter().map(|process| {
            let error = process.error_ns as f64 / 1e3;
            (process.who.clone(), json!({ "clock_error_us": error }))
        });
        let missing = self.processes.iter().filter_map(|process| {
            let why = process.recorded.as_ref().err()?;
            Some(json!({ "who": process.who, "why": why }))
        });
        let lost: u64 = self.recorded().map(|(_, recorded)| recorded.lost).sum();
        json!({
            "traceEvents": writer.events,
            "displayTimeUnit": "ms",
            "otherData": {
                "clocks": clocks.collect::<serde_json::Map<_, _>>(),
                "missing": missing.collect::<Vec<_>>(),
                "not_kept": lost,
            },
        })
        .to_string()
    }

    pub(super) fn recorded(
        &self,
    ) -> impl Iterator<Item = (&RecordedProcess, &super::record::Recorded)> {
        let all = self.processes.iter();
        all.filter_map(|process| Some((process, process.recorded.as_ref().ok()?)))
    }

    /// The earliest time of all.
    fn begin(&self) -> i64 {
        let times = self.recorded().flat_map(|(process, recorded)| {
            let handlers = recorded.handlers.iter().map(|h| h.came_ns);
            let asks = recorded.asks.iter().map(|a| a.begin_ns);
            let marks = recorded.marks.iter().map(|m| m.at_ns);
            let times = handlers.chain(asks).chain(marks);
            times.map(|time| process.at(time))
        });
        times.min().unwrap_or(0)
    }

    pub(super) fn name_of(&self, actor: ActorId) -> String {
        let name = self.names.iter().find(|(id, _)| *id == actor);
        name.map_or_else(|| actor.to_string(), |(_, name)| name.clone())
    }
}

struct Writer<'a> {
    timeline: &'a Timeline,
    events: Vec<Value>,
    zero: i64,
    /// The tracks of an actor on a process: their numbers, and till when each is taken.
    tracks: HashMap<(u64, ActorId), Vec<(u64, i64)>>,
    /// By name, with the tracks given out.
    pids: BTreeMap<String, (u64, u64)>,
}

impl Writer<'_> {
    fn number_processes(&mut self) {
        for process in &self.timeline.processes {
            if self.pids.contains_key(&process.who) {
                continue;
            }
            let pid = self.pids.len() as u64 + 1;
            self.pids.insert(process.who.clone(), (pid, OWN));
            let meta = |name: &str, args: Value| json!({ "ph": "M", "name": name, "pid": pid, "tid": OWN, "args": args });
            self.events
                .push(meta("process_name", json!({ "name": process.who })));
            self.events
                .push(meta("process_sort_index", json!({ "sort_index": pid })));
            self.events
                .push(meta("thread_name", json!({ "name": "events" })));
        }
    }

    fn us(&self, process: &RecordedProcess, time: u64) -> f64 {
        (process.at(time) - self.zero) as f64 / 1e3
    }

    fn pid(&self, process: &RecordedProcess) -> u64 {
        self.pids[&process.who].0
    }

    /// A track of the actor that is free from `begin` on; taken till `end`.
    fn track(&mut self, process: &RecordedProcess, actor: ActorId, begin: i64, end: i64) -> u64 {
        let (pid, last) = self.pids.get_mut(&process.who).expect("all are numbered");
        let pid = *pid;
        let tracks = self.tracks.entry((pid, actor)).or_default();
        if let Some((tid, taken)) = tracks.iter_mut().find(|(_, taken)| *taken <= begin) {
            *taken = end;
            return *tid;
        }
        *last += 1;
        let tid = *last;
        tracks.push((tid, end));
        let mut name = self.timeline.name_of(actor);
        if tracks.len() > 1 {
            name = format!("{name} #{}", tracks.len());
        }
        let args = json!({ "name": name });
        self.events.push(
            json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args }),
        );
        tid
    }

    fn handlers(&mut self, process: &RecordedProcess) {
        let Ok(recorded) = &process.recorded else {
            return;
        };
        let mut handlers: Vec<&HandlerSpan> = recorded.handlers.iter().collect();
        handlers.sort_by_key(|h| (h.begin_ns, h.end_ns));
        for h in handlers {
            let (begin, end) = (process.at(h.begin_ns), process.at(h.end_ns));
            let tid = self.track(process, h.actor, begin, end);
            let caller = h.caller.map(|caller| self.timeline.name_of(caller));
            let mut args = json!({
                "message": h.message,
                "actor_type": h.actor_type,
                "caller": caller,
                "life": h.incarnation,
                "waited_us": h.begin_ns.saturating_sub(h.came_ns) as f64 / 1e3,
                "trace_id": format!("{:032x}", h.context.trace_id),
                "span_id": format!("{:016x}", h.context.span_id),
                "parent_id": h.parent.map(|p| format!("{p:016x}")),
            });
            if h.panicked {
                args["panicked"] = true.into();
            }
            let event = json!({
                "ph": "X",
                "cat": "handler",
                "name": short(&h.message),
                "pid": self.pid(process),
                "tid": tid,
                "ts": self.us(process, h.begin_ns),
                "dur": h.end_ns.saturating_sub(h.begin_ns) as f64 / 1e3,
                "args": args,
            });
            self.events.push(event);
        }
    }

    fn asks(&mut self, process: &RecordedProcess) {
        let Ok(recorded) = &process.recorded else {
            return;
        };
        for ask in &recorded.asks {
            let args = json!({
                "asked": self.timeline.name_of(ask.asked),
                "message": ask.message,
                "failed": ask.failed,
                "trace_id": format!("{:032x}", ask.context.trace_id),
                "span_id": format!("{:016x}", ask.context.span_id),
                "parent_id": ask.parent.map(|p| format!("{p:016x}")),
            });
            for (ph, at) in [("b", ask.begin_ns), ("e", ask.end_ns)] {
                let mut event = json!({
                    "ph": ph,
                    "cat": "ask",
                    "name": format!("ask {}", short(&ask.message)),
                    // Local: else Perfetto shows it apart from its process.
                    "id2": { "local": format!("{:016x}", ask.context.span_id) },
                    "pid": self.pid(process),
                    "tid": OWN,
                    "ts": self.us(process, at),
                });
                if ph == "b" {
                    event["args"] = args.clone();
                }
                self.events.push(event);
            }
        }
    }

    fn marks(&mut self, process: &RecordedProcess) {
        let Ok(recorded) = &process.recorded else {
            return;
        };
        for mark in &recorded.marks {
            let at = process.at(mark.at_ns);
            let tid = match mark.actor {
                // Instants need no room: on the first track, made if it is not there.
                Some(actor) => {
                    let pid = self.pid(process);
                    let first = self.tracks.get(&(pid, actor)).and_then(|t| t.first());
                    first
                        .map(|(tid, _)| *tid)
                        .unwrap_or_else(|| self.track(process, actor, at, at))
                }
                None => OWN,
            };
            let event = json!({
                "ph": "i",
                "cat": "life",
                "s": if mark.actor.is_some() { "t" } else { "p" },
                "name": mark.what,
                "pid": self.pid(process),
                "tid": tid,
                "ts": self.us(process, mark.at_ns),
                "args": { "life": mark.incarnation },
            });
            self.events.push(event);
        }
    }

    /// From the handler that asks to the one that is asked.
    fn arrows(&mut self) {
        type Place = (u64, u64, f64, f64);
        let slices = self.events.iter().filter(|e| e["ph"] == "X");
        let places: HashMap<String, Place> = slices
            .filter_map(|e| {
                let (ts, dur) = (e["ts"].as_f64()?, e["dur"].as_f64()?);
                let place = (e["pid"].as_u64()?, e["tid"].as_u64()?, ts, ts + dur);
                Some((e["args"]["span_id"].as_str()?.to_owned(), place))
            })
            .collect();
        let mut arrows = Vec::new();
        for e in self.events.iter().filter(|e| e["ph"] == "X") {
            let (Some(id), Some(parent)) = (
                e["args"]["span_id"].as_str(),
                e["args"]["parent_id"].as_str(),
            ) else {
                continue;
            };
            let (Some(&(pid, tid, begin, end)), Some(ts)) = (places.get(parent), e["ts"].as_f64())
            else {
                continue;
            };
            let waited = e["args"]["waited_us"].as_f64().unwrap_or(0.0);
            // When it was sent is not known but by when it came: it was within the sender's slice, whatever the clocks say.
            let from = (ts - waited).clamp(begin, end);
            let arrow = |ph: &str, pid: &Value, tid: &Value, ts: f64| json!({ "ph": ph, "cat": "ask", "name": "ask", "id": id, "pid": pid, "tid": tid, "ts": ts });
            arrows.push(arrow("s", &pid.into(), &tid.into(), from));
            let mut head = arrow("f", &e["pid"], &e["tid"], ts);
            head["bp"] = "e".into();
            arrows.push(head);
        }
        self.events.extend(arrows);
    }
}

/// A type's name without the path of its module.
pub(super) fn short(name: &str) -> &str {
    let path = name.split('<').next().unwrap_or(name);
    match path.rfind("::") {
        Some(at) => &name[at + 2..],
        None => name,
    }
}
