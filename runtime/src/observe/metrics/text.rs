//! Reports as Prometheus reads them (the OpenMetrics text format).

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use crate::observe::meter::{Report, Times, TypeReport};

/// Actor types that have series of their own; those with the later names are counted together, as [`OTHER`].
const MOST_TYPES: usize = 100;
const OTHER: &str = "(other)";

type Fmt = Result<(), std::fmt::Error>;
/// A series' name, what it is, and its value of a `T`.
type Series<T> = (&'static str, &'static str, fn(&T) -> u64);
type Histograms = (&'static str, &'static str, fn(&TypeReport) -> &Times);

/// `reports`, each under the name that its series have as their label `node`.
pub(super) fn render(reports: Vec<(String, Report)>) -> String {
    let mut registry = Registry::default();
    let reports = reports
        .into_iter()
        .map(|(node, report)| (node, fold(report)));
    registry.register_collector(Box::new(Reports(reports.collect())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("a string takes what is written to it");
    text
}

/// Names have to be few, whatever is built.
fn fold(mut report: Report) -> Report {
    let mut shorter = Report::default();
    for name in report
        .types
        .keys()
        .chain(report.asks.keys())
        .cloned()
        .collect::<Vec<_>>()
    {
        let known = shorter.types.contains_key(&name) || shorter.asks.contains_key(&name);
        let names = shorter.types.keys().chain(shorter.asks.keys());
        let names = names.collect::<std::collections::BTreeSet<_>>().len();
        let as_name = match known || names < MOST_TYPES {
            true => name.clone(),
            false => OTHER.to_owned(),
        };
        let mut one = Report::default();
        if let Some(of_type) = report.types.remove(&name) {
            one.types.insert(as_name.clone(), of_type);
        }
        if let Some(asks) = report.asks.remove(&name) {
            one.asks.insert(as_name, asks);
        }
        shorter.add(&one);
    }
    report.types = shorter.types;
    report.asks = shorter.asks;
    report
}

#[derive(Debug)]
struct Reports(Vec<(String, Report)>);

impl Collector for Reports {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Fmt {
        self.by_type(&mut to)?;
        self.asks(&mut to)?;
        self.by_process(&mut to)
    }
}

impl Reports {
    fn by_type(&self, to: &mut DescriptorEncoder<'_>) -> Fmt {
        let gauge = MetricType::Gauge;
        let counter = MetricType::Counter;
        let gauges: [Series<TypeReport>; 3] = [
            ("corehold_actors", "Actors that live", |t| t.alive),
            (
                "corehold_mailbox_messages",
                "Messages in the mailboxes that no handler has begun",
                |t| t.waiting,
            ),
            (
                "corehold_mailbox_messages_max",
                "Messages in the fullest mailbox that no handler has begun",
                |t| t.deepest,
            ),
        ];
        for (name, help, of) in gauges {
            let mut metric = to.encode_descriptor(name, help, None, gauge)?;
            self.each_type(|labels, t| metric.encode_family(labels)?.encode_gauge(&of(t)))?;
        }
        let counters: [Series<TypeReport>; 3] = [
            ("corehold_actor_starts", "Lives of actors begun", |t| {
                t.starts
            }),
            (
                "corehold_actor_restarts",
                "Lives begun that were not the first of their actor",
                |t| t.restarts,
            ),
            (
                "corehold_messages_handled",
                "Messages whose handler has ended",
                |t| t.handled,
            ),
        ];
        for (name, help, of) in counters {
            let mut metric = to.encode_descriptor(name, help, None, counter)?;
            self.each_type(|labels, t| count(metric.encode_family(labels)?, of(t)))?;
        }
        let mut metric = to.encode_descriptor(
            "corehold_actor_deaths",
            "Lives of actors ended, by the kind of their cause",
            None,
            counter,
        )?;
        self.each_type(|[node, of_type], t| {
            for (cause, n) in &t.deaths {
                let labels = [*node, *of_type, ("cause", cause.as_str())];
                count(metric.encode_family(&labels)?, *n)?;
            }
            Ok(())
        })?;
        let mut metric = to.encode_descriptor(
            "corehold_handler_busy_seconds",
            "How long actors had a handler at work, summed over the actors",
            None,
            counter,
        )?;
        self.each_type(|labels, t| {
            let busy = t.busy_ns as f64 / 1e9;
            metric
                .encode_family(labels)?
                .encode_counter::<NoLabelSet, _, f64>(&busy, None)
        })?;
        let times: [Histograms; 2] = [
            (
                "corehold_mailbox_wait_seconds",
                "From a message's arrival at the actor's process to its handler's begin",
                |t| &t.wait,
            ),
            (
                "corehold_handler_seconds",
                "From a handler's begin to its end",
                |t| &t.run,
            ),
        ];
        for (name, help, of) in times {
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Histogram)?;
            self.each_type(|labels, t| histogram(metric.encode_family(labels)?, of(t)))?;
        }
        Ok(())
    }

    fn asks(&self, to: &mut DescriptorEncoder<'_>) -> Fmt {
        let mut metric = to.encode_descriptor(
            "corehold_ask_seconds",
            "From an ask to its reply as the asker saw it, by the node of the asker and the type of the asked",
            None,
            MetricType::Histogram,
        )?;
        for (node, report) in &self.0 {
            for (asked, asks) in &report.asks {
                histogram(metric.encode_family(&labels(node, asked))?, &asks.answered)?;
            }
        }
        let mut metric = to.encode_descriptor(
            "corehold_asks_failed",
            "Asks that got no reply, by the kind of their error; dropped: the asker gave up",
            None,
            MetricType::Counter,
        )?;
        for (node, report) in &self.0 {
            for (asked, asks) in &report.asks {
                for (kind, n) in &asks.failed {
                    let [node, asked] = labels(node, asked);
                    let labels = [node, asked, ("kind", kind.as_str())];
                    count(metric.encode_family(&labels)?, *n)?;
                }
            }
        }
        Ok(())
    }

    fn by_process(&self, to: &mut DescriptorEncoder<'_>) -> Fmt {
        let mut metric = to.encode_descriptor(
            "corehold_wire_bytes",
            "Bytes of UDP datagrams sent (out) and received (in)",
            None,
            MetricType::Counter,
        )?;
        for (node, report) in &self.0 {
            for (direction, n) in [("in", report.wire_in), ("out", report.wire_out)] {
                let labels = [("node", node.as_str()), ("direction", direction)];
                count(metric.encode_family(&labels)?, n)?;
            }
        }
        let gauges: [Series<Report>; 4] = [
            ("corehold_held_cores", "Cores that actors hold", |r| {
                r.held_cores
            }),
            ("corehold_objects", "Objects kept", |r| r.objects),
            ("corehold_object_bytes", "Bytes of the objects kept", |r| {
                r.object_bytes
            }),
            (
                "corehold_resident_memory_bytes",
                "Resident memory of the node's process and its workers",
                |r| r.memory,
            ),
        ];
        for (name, help, of) in gauges {
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (node, report) in &self.0 {
                let labels = [("node", node.as_str())];
                metric.encode_family(&labels)?.encode_gauge(&of(report))?;
            }
        }
        let mut metric = to.encode_descriptor(
            "corehold_cpu_seconds",
            "Processor time of the node's process and its workers",
            None,
            MetricType::Counter,
        )?;
        for (node, report) in &self.0 {
            let time = report.cpu_ns as f64 / 1e9;
            let labels = [("node", node.as_str())];
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, f64>(&time, None)?;
        }
        Ok(())
    }

    fn each_type(&self, mut write: impl FnMut(&[(&str, &str); 2], &TypeReport) -> Fmt) -> Fmt {
        for (node, report) in &self.0 {
            for (name, of_type) in &report.types {
                write(&labels(node, name), of_type)?;
            }
        }
        Ok(())
    }
}

fn labels<'a>(node: &'a str, actor_type: &'a str) -> [(&'static str, &'a str); 2] {
    [("node", node), ("actor_type", actor_type)]
}

fn count(mut metric: MetricEncoder<'_>, n: u64) -> Fmt {
    metric.encode_counter(&n, None::<&Exemplar<NoLabelSet, f64>>)
}

fn histogram(mut metric: MetricEncoder<'_>, times: &Times) -> Fmt {
    let buckets: Vec<_> = times.buckets().collect();
    metric.encode_histogram::<NoLabelSet>(times.sum_s(), times.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_series_is_bounded_and_no_count_is_lost() {
        let mut report = Report::default();
        for n in 0..300 {
            report.of(&format!("type {n:03}")).handled = 1;
        }
        let folded = fold(report);
        assert_eq!(folded.types.len(), MOST_TYPES + 1);
        assert_eq!(folded.types[OTHER].handled, 200);
        let text = render(vec![("n".to_owned(), folded)]);
        let sum: f64 = text
            .lines()
            .filter(|l| l.starts_with("corehold_messages_handled_total{"))
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        assert_eq!(sum, 300.0);
        assert!(text.ends_with("# EOF\n"));
    }
}
