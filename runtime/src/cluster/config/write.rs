//! From [`NodeConfig`] to TOML: what a node on another machine reads of itself there.

use std::net::SocketAddr;

use toml::{Table, Value};

use super::NodeConfig;

impl NodeConfig {
    /// The node as a `[[node]]` table on its own machine, where it is a local one.
    pub(crate) fn to_toml(&self, listen: SocketAddr) -> Table {
        let mut table = Table::new();
        let mut set = |key: &str, value: Value| table.insert(key.to_owned(), value);
        let numbers = |all: &[u32]| all.iter().map(|n| Value::Integer((*n).into())).collect();
        set("name", self.name.clone().into());
        set("host", "local".into());
        set("listen", listen.to_string().into());
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| (key.clone(), Value::String(value.clone())));
        set("labels", Value::Table(labels.collect()));
        if let Some(cores) = &self.cores {
            set("cores", Value::Array(numbers(cores)));
        }
        set("held", Value::Array(numbers(&self.held)));
        set("shield", self.shield.into());
        let tune = self.tune.iter().map(|knob| knob.name().into());
        set("tune", Value::Array(tune.collect()));
        set("allow_affinity_only", self.allow_affinity_only.into());
        if let Some(memory) = self.memory {
            // A power of two divides without loss.
            set(
                "memory",
                format!("{}TiB", memory as f64 / (1u64 << 40) as f64).into(),
            );
        }
        if let Some(gpus) = &self.gpus {
            set("gpus", Value::Array(numbers(gpus)));
        }
        let resources = self.resources.iter();
        let resources =
            resources.map(|(key, amount)| (key.clone(), Value::Float(amount.0 as f64 / 1000.0)));
        set("resources", Value::Table(resources.collect()));
        let metrics = self.metrics.map(|at| at.to_string());
        set(
            "metrics",
            metrics.unwrap_or_else(|| "off".to_owned()).into(),
        );
        table
    }
}
