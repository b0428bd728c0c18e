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

#[cfg(test)]
mod tests {
    use toml::{Table, Value};

    use crate::cluster::ClusterConfig;

    #[test]
    fn a_node_reads_there_what_the_file_says_here() {
        let text = "[observe]\nexpose = true\n[[node]]\nname = \"a\"\nhost = \"ssh:b\"\nlabels = { role = \"x\" }\ncores = [0]\n\
                    held = [1, 2]\nshield = true\ntune = [\"smt\", \"governor\"]\nallow_affinity_only = true\nmemory = \"1.3GiB\"\n\
                    gpus = [3]\nresources = { licence = 0.125, seats = 2 }\nmetrics = \"0.0.0.0:9000\"\n";
        let node = |text: &str| {
            let config = ClusterConfig::parse(text, "x.toml").unwrap();
            config.nodes.into_iter().next().unwrap()
        };
        let here = node(text);
        let listen = "10.0.0.2:7".parse().unwrap();
        let written = |table| {
            let file =
                Table::from_iter([("node".to_owned(), Value::Array(vec![Value::Table(table)]))]);
            format!("{file}[observe]\nexpose = true\n")
        };
        let mut there = node(&written(here.to_toml(listen)));
        assert_eq!(
            (&there.host, there.listen),
            (&super::super::Host::Local, listen)
        );
        there.host = here.host.clone();
        there.listen = here.listen;
        there.places = here.places.clone();
        assert_eq!(there, here);
        // Of what is not said nothing is said there, either.
        let bare = node("[[node]]\nname = \"a\"");
        let mut there = node(&written(bare.to_toml(bare.listen)));
        there.places = bare.places.clone();
        assert_eq!(there, bare);
    }
}
