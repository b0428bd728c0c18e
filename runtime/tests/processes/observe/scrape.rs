//! A scrape, as Prometheus makes one.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The series of one scrape.
pub struct Scrape(Vec<Series>);

struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// GET; the status line, and the body.
pub fn get(url: &str) -> (String, String) {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

impl Scrape {
    pub fn of(url: &str) -> Self {
        let (status, body) = get(url);
        assert!(status.ends_with("200 OK"), "{status}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        Self(
            body.lines()
                .filter(|l| !l.starts_with('#'))
                .map(series)
                .collect(),
        )
    }

    /// The value of the one series with exactly these labels; 0 where there is none yet.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let its = |s: &&Series| s.name == name && s.labels.len() == labels.len() && s.has(labels);
        let found: Vec<_> = self.0.iter().filter(its).collect();
        assert!(
            found.len() <= 1,
            "{name} {labels:?} stands there {} times",
            found.len()
        );
        found.first().map_or(0.0, |s| s.value)
    }

    /// Buckets rise to the count, and the sum is no more than they allow.
    pub fn check_histogram(&self, name: &str, labels: &[(&str, &str)]) {
        let buckets = self.0.iter().filter(|s| s.name == format!("{name}_bucket"));
        let buckets: Vec<(f64, f64)> = buckets
            .filter(|s| s.has(labels))
            .map(|s| {
                (
                    s.labels["le"].replace("+Inf", "inf").parse().unwrap(),
                    s.value,
                )
            })
            .collect();
        assert!(buckets.len() > 10, "{name} has {} buckets", buckets.len());
        for pair in buckets.windows(2) {
            assert!(
                pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1,
                "{buckets:?}"
            );
        }
        let count = self.value(&format!("{name}_count"), labels);
        assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, count));
        let sum = self.value(&format!("{name}_sum"), labels);
        let most: f64 = buckets
            .iter()
            .scan(0.0, |below, (bound, n)| {
                Some((bound, n - std::mem::replace(below, *n)))
            })
            .filter(|(_, n)| *n > 0.0)
            .map(|(bound, n)| bound * n)
            .sum();
        assert!(sum > 0.0 && sum <= most, "{sum} is not in 0..{most}");
    }
}

impl Series {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels
            .iter()
            .all(|(k, v)| self.labels.get(*k).is_some_and(|l| l == v))
    }
}

fn series(line: &str) -> Series {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split("\",");
    let labels = labels.filter_map(|l| l.split_once("=\""));
    let labels = labels.map(|(k, v)| (k.to_owned(), v.trim_end_matches('"').to_owned()));
    Series {
        name: name.to_owned(),
        labels: labels.collect(),
        value: value.parse().unwrap(),
    }
}
