//! `corehold doctor`: what this machine can isolate, and how to get the rest.

use std::collections::BTreeSet;
use std::process::ExitCode;

use corehold::cluster::ClusterConfig;
use corehold::cluster::config::Host;
use corehold::isolate::{Finding, State, Topology, doctor};

use super::{Failure, out};
use crate::benchmark::Baseline;
use crate::kernel::{Compiler, Jail};

/// The cores that this machine's nodes may hold by the `cluster.toml` of this folder; without one the last core, which
/// `corehold bench` takes.
fn cores_to_hold() -> BTreeSet<u32> {
    let config = ClusterConfig::load("cluster.toml").ok();
    let nodes = config.iter().flat_map(|config| &config.nodes);
    let here = nodes.filter(|node| node.host == Host::Local);
    let held: BTreeSet<u32> = here.flat_map(|node| node.held.iter().copied()).collect();
    if !held.is_empty() {
        return held;
    }
    let online = Topology::read().map(|topology| topology.online());
    online
        .ok()
        .and_then(|all| all.last().copied())
        .into_iter()
        .collect()
}

/// How kernels' sources are kept from reading files while they are compiled.
fn jail(jail: Jail) -> Finding {
    let (state, advice) = match jail {
        Jail::Root | Jail::UserNamespace => (State::Good, None),
        Jail::Landlock => (
            State::Weak,
            Some(
                "files can't be opened but their names be asked for: allow user namespaces (sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or run as root",
            ),
        ),
        Jail::Bare => (
            State::Missing,
            Some(
                "run as root, allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns), or boot with lsm=landlock (Linux 5.13)",
            ),
        ),
    };
    Finding {
        name: "jail".to_owned(),
        state,
        effect: format!("sources are {jail}"),
        advice: advice.map(str::to_owned),
    }
}

pub(super) fn run(json: bool) -> Result<ExitCode, Failure> {
    let mut findings = doctor(&cores_to_hold());
    findings.push(match Compiler::find() {
        Ok(compiler) => Finding {
            name: "compiler".to_owned(),
            state: State::Good,
            effect: compiler.version().to_owned(),
            advice: None,
        },
        Err(e) => Finding {
            name: "compiler".to_owned(),
            state: State::Missing,
            effect: "no kernel can be verified or measured".to_owned(),
            advice: Some(e.to_string()),
        },
    });
    findings.push(jail(Jail::best()));
    findings.push(match Baseline::find() {
        Some(library) => Finding {
            name: "openblas".to_owned(),
            state: State::Good,
            effect: format!("{} is measured beside the best kernel", library.display()),
            advice: None,
        },
        None => Finding {
            name: "openblas".to_owned(),
            state: State::Weak,
            effect: "the best kernel is compared with nothing but its rivals".to_owned(),
            advice: Some("apt-get install libopenblas0-pthread".to_owned()),
        },
    });
    if json {
        out::line(serde_json::to_string(&findings)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &findings {
        let mark = match finding.state {
            State::Good => "good",
            State::Weak => "weak",
            State::Missing => "missing",
        };
        out::line(format_args!(
            "{mark:>8}  {:<12} {}",
            finding.name, finding.effect
        ))?;
        if let Some(advice) = &finding.advice {
            out::line(format_args!("{:>8}  {:<12} -> {advice}", "", ""))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_jail_is_told_with_what_would_make_it_better() {
        let all = [
            (Jail::Root, State::Good, ""),
            (Jail::UserNamespace, State::Good, ""),
            (Jail::Landlock, State::Weak, "user namespaces"),
            (Jail::Bare, State::Missing, "lsm=landlock"),
        ];
        for (which, state, advice) in all {
            let finding = jail(which);
            assert_eq!((finding.name.as_str(), finding.state), ("jail", state));
            assert_eq!(finding.effect, format!("sources are {which}"));
            let advised = finding.advice.unwrap_or_default();
            assert_eq!(advised.is_empty(), advice.is_empty(), "{which}: {advised}");
            assert!(advised.contains(advice), "{which}: {advised}");
        }
    }
}
