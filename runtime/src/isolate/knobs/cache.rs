//! A class of cache and memory bandwidth of the slot's own (resctrl: Intel RDT, AMD QoS).
//!
//! The held cores get the upper half of the ways of their cache, everybody else of the same
//! cache the lower half; where bandwidth is set in percent, everybody else gets half of theirs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::cpulist::format_cpus;
use crate::isolate::doctor::{Finding, State};
use crate::isolate::owner::Owner;

pub(super) struct Cache;

const FOLDER: &str = "sys/fs/resctrl";
const MOUNT: &str = "mount -t resctrl resctrl /sys/fs/resctrl";

impl Turn for Cache {
    fn plan(&self, machine: &Machine<'_>, cores: &Cores) -> Plan {
        if !machine.exists(FOLDER) {
            return Plan::Missing("this machine has no resctrl (it needs bare metal)".into());
        }
        let Some(all) = machine.read(&format!("{FOLDER}/schemata")) else {
            return Plan::Missing(format!("resctrl is not mounted: {MOUNT}"));
        };
        let domains: BTreeSet<String> = cores
            .held
            .iter()
            .filter_map(|core| {
                machine.read(&format!("sys/devices/system/cpu/cpu{core}/cache/index3/id"))
            })
            .collect();
        let limits = Limits::read(machine);
        let (Some(ours), Some(theirs)) = (
            split(&all, &domains, &limits, Side::Slot),
            split(&all, &domains, &limits, Side::Others),
        ) else {
            return Plan::Missing("the cache of the held cores can't be divided".into());
        };
        let class = format!("{FOLDER}/{}", Owner::this_process().name("slot"));
        let inside = |file: &str, value: String| Setting::Inside {
            path: format!("{class}/{file}"),
            value,
        };
        let settings = vec![
            Setting::Directory {
                path: class.clone(),
            },
            inside("schemata", ours),
            inside("cpus_list", format_cpus(&cores.fence)),
            // Last: nobody gives way to a class that could not be made.
            Setting::write(format!("{FOLDER}/schemata"), theirs),
        ];
        let what = "half of the ways of its cache for the slot alone";
        Plan::Settings(settings, what.into())
    }

    fn look(&self, machine: &Machine<'_>, _: &BTreeSet<u32>) -> Finding {
        let finding = |state, effect: &str, advice| Finding::new("resctrl", state, effect, advice);
        if machine.exists(&format!("{FOLDER}/schemata")) {
            return finding(
                State::Weak,
                "cache and bandwidth can be divided: memory-heavy neighbours cost up to 10 % else",
                "hold with tune = [\"cache\"]",
            );
        }
        if machine.exists(FOLDER) {
            return finding(
                State::Weak,
                "cache and bandwidth can be divided, but resctrl is not mounted",
                MOUNT,
            );
        }
        finding(
            State::Missing,
            "cache and memory bandwidth are shared: memory-heavy neighbours cost up to 10 %",
            "",
        )
    }
}

enum Side {
    Slot,
    Others,
}

/// What the hardware can do (`info` of resctrl).
struct Limits {
    /// The fewest bits of a mask of ways.
    min_ways: u32,
    /// The least bandwidth in percent, and the steps of it.
    bandwidth: Option<(u32, u32)>,
}

impl Limits {
    fn read(machine: &Machine<'_>) -> Self {
        let number = |path: &str| machine.read(&format!("{FOLDER}/info/{path}"))?.parse().ok();
        let bandwidth = number("MB/min_bandwidth").zip(number("MB/bandwidth_gran"));
        Self {
            min_ways: number("L3/min_cbm_bits").unwrap_or(1),
            bandwidth,
        }
    }
}

/// The schemata of one side, from those of everybody; `None` where a mask is too small to be divided.
fn split(all: &str, domains: &BTreeSet<String>, limits: &Limits, side: Side) -> Option<String> {
    let mut lines = Vec::new();
    let mut divided = false;
    for line in all.lines() {
        let (kind, values) = line.trim().split_once(':')?;
        let mut values: BTreeMap<u32, (String, String)> = values
            .split(';')
            .filter_map(|pair| {
                let (domain, value) = pair.split_once('=')?;
                let number = domain.trim().parse().ok()?;
                Some((number, (domain.trim().to_owned(), value.trim().to_owned())))
            })
            .collect();
        for (_, value) in values.values_mut().filter(|(d, _)| domains.contains(d)) {
            if kind.starts_with("L3") {
                *value = half_of_ways(value, limits.min_ways, &side)?;
                divided = true;
            } else if kind == "MB"
                && matches!(side, Side::Others)
                && let Some((least, step)) = limits.bandwidth
                && let Ok(percent) = value.parse::<u32>()
                // AMD counts in eighths of a GB/s, of which nothing is half of everything.
                && percent <= 100
            {
                *value = (percent / 2 / step.max(1) * step.max(1))
                    .max(least)
                    .to_string();
            }
        }
        let values: Vec<String> = values.values().map(|(d, v)| format!("{d}={v}")).collect();
        lines.push(format!("{kind}:{}", values.join(";")));
    }
    divided.then(|| lines.join("\n"))
}

/// The upper half of a mask's ways for the slot, the lower for the others. Masks must be contiguous.
fn half_of_ways(mask: &str, least: u32, side: &Side) -> Option<String> {
    let mask = u64::from_str_radix(mask, 16).ok()?;
    let ways = mask.count_ones();
    let lower = ways / 2;
    if lower < least.max(1) {
        return None;
    }
    let low = ((1u64 << lower) - 1) << mask.trailing_zeros();
    let half = match side {
        Side::Slot => mask & !low,
        Side::Others => mask & low,
    };
    Some(format!("{half:x}"))
}
