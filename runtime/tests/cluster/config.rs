use std::path::Path;

use corehold::cluster::config::Host;
use corehold::cluster::{ClusterConfig, Gpu, HeldCore, Milli};
use corehold::isolate::Knob;
use corehold::node::MachineFacts;
use corehold::node::resources::Core;

use crate::s;

fn machine(cores: u32, siblings: impl Fn(u32) -> Vec<u32>) -> MachineFacts {
    MachineFacts {
        hostname: "here".to_owned(),
        cpu_model: "Test".to_owned(),
        cores: (0..cores)
            .map(|id| Core {
                id,
                numa: id / 4,
                siblings: siblings(id),
            })
            .collect(),
        memory: 10_000,
    }
}

/// What loading and validating the text says, on a machine of two cores.
fn complaint(text: &str) -> String {
    let facts = machine(2, |id| vec![id]);
    match ClusterConfig::parse(text, "conf/cluster.toml").and_then(|config| config.validate(&facts))
    {
        Ok(()) => "fine".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_default_file_is_good_and_means_what_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster.toml");
    let config = ClusterConfig::load(&path).unwrap();
    let facts = machine(2, |id| vec![id]);
    config.validate(&facts).unwrap();
    config.check_launchers().unwrap();
    assert_eq!(
        (config.name.as_str(), config.listen.to_string().as_str()),
        ("default", "127.0.0.1:7420")
    );
    assert_eq!(config.state, path.parent().unwrap().join(".corehold"));
    let bench = config.node("bench").unwrap();
    assert!(bench.shield && bench.host == Host::Local);
    assert_eq!(bench.tune, [Knob::Interrupts].into());
    assert!(!bench.allow_affinity_only);
    let capacity = config.capacity(bench, &facts, &[], ["Verifier".to_owned()]);
    assert_eq!(capacity.cpus, Milli::whole(1));
    assert_eq!(capacity.memory, 4500); // half of nine tenths
    assert_eq!(capacity.held, [HeldCore { core: 1, numa: 0 }]);
    assert_eq!(capacity.labels["role"], "bench");
    let pool = &config.pools["benchmark"];
    assert_eq!(
        (pool.min, pool.max, pool.target_queue, pool.idle),
        (1, 1, 4, s(60))
    );
}

#[test]
fn a_gpu_belongs_to_one_node_of_its_host() {
    let found: Vec<Gpu> = (0..4)
        .map(|index| Gpu {
            index,
            model: "H".to_owned(),
            memory: 1 << 30,
        })
        .collect();
    let text = "[[node]]\nname = \"a\"\ngpus = [1, 9]\n[[node]]\nname = \"b\"\n[[node]]\nname = \"c\"\n\
                [[node]]\nname = \"d\"\nhost = \"ssh:far\"";
    let config = ClusterConfig::parse(text, "x.toml").unwrap();
    let of = |name: &str, found: &[Gpu]| -> Vec<(u32, u64)> {
        let gpus = config.gpus(config.node(name).unwrap(), found);
        gpus.into_iter()
            .map(|gpu| (gpu.index, gpu.memory >> 30))
            .collect()
    };
    // Named: found or not. Not named: what is left, to the first of its host.
    assert_eq!(of("a", &found), [(1, 1), (9, 0)]);
    assert_eq!(of("b", &found), [(0, 1), (2, 1), (3, 1)]);
    assert_eq!(of("c", &found), []);
    assert_eq!(of("d", &found).len(), 4);
    assert_eq!(of("b", &[]), []);
    // This machine's: whatever there is, it is no error.
    let here = corehold::node::gpus::find();
    println!("GPUs found here: {here:?}");
    assert!(
        here.iter()
            .enumerate()
            .all(|(i, gpu)| gpu.index as usize >= i && gpu.memory > 0)
    );
}

#[test]
fn everything_can_be_said() {
    let config = ClusterConfig::parse(
        r#"
        cluster = { name = "hpc", listen = "[::1]:1", state = "/var/lib/corehold" }
        node = [
          { name = "a", memory = "1.5KiB", resources = { fpga = 1, share = 0.125 }, held = [1, 5] },
          { name = "b", host = "ssh:me@far", held = [1], listen = "0.0.0.0:9" },
        ]
        pool.p = { min = 0, max = 8, target_queue = 2, idle_s = 0.5 }
        "#,
        "x.toml",
    )
    .unwrap();
    let a = config.node("a").unwrap();
    assert_eq!(a.memory, Some(1536));
    assert_eq!(
        (a.resources["fpga"], a.resources["share"]),
        (Milli(1000), Milli(125))
    );
    // Cores left out: all but the held ones and their siblings.
    let facts = machine(8, |id| {
        if id % 4 < 2 {
            vec![id / 4 * 4, id / 4 * 4 + 1]
        } else {
            vec![id]
        }
    });
    config.validate(&facts).unwrap();
    assert_eq!(config.shared_cores(a, &facts), [2, 3, 6, 7]);
    let held = config.capacity(a, &facts, &[], []).held;
    assert_eq!(
        held,
        [HeldCore { core: 1, numa: 0 }, HeldCore { core: 5, numa: 1 }]
    );
    assert_eq!(
        config.node("b").unwrap().host,
        Host::Ssh("me@far".to_owned())
    );
    let far = config.check_launchers().unwrap_err().to_string();
    assert_eq!(
        far,
        "x.toml:5:32: ssh:me@far cannot reach a head that listens on [::1]:1: set `listen` in [cluster] to an \
         address of this machine in the network that they share, such as \"192.168.0.10:7420\""
    );
}

#[test]
fn ssh_is_called_as_the_file_says_and_its_nodes_have_what_it_says() {
    let config = ClusterConfig::parse("[[node]]\nname = \"a\"", "conf/x.toml").unwrap();
    assert_eq!(config.ssh, corehold::cluster::config::SshConfig::default());
    assert_eq!(config.elastic_nodes(), []);
    let text = "[cluster]\nlisten = \"10.0.0.1:7420\"\n[launcher.ssh]\ncommand = \"./ssh\"\nconfig = \"keys/config\"\n\
                keep_program = true\nstart_timeout_s = 5\nattempts = 3\nhosts = [\"me@one\", \"two\"]\nidle_s = 0.5\n\
                [launcher.ssh.node]\nlabels = { role = \"bench\" }\ncores = [0]\nheld = [1, 2]\nmemory = \"3GiB\"\n\
                resources = { licence = 0.5 }\nshield = true\n";
    let config = ClusterConfig::parse(text, "conf/x.toml").unwrap();
    config.check_launchers().unwrap();
    let ssh = &config.ssh;
    assert_eq!(ssh.command, Path::new("conf/./ssh"));
    assert_eq!(ssh.config.as_deref(), Some(Path::new("conf/keys/config")));
    assert_eq!(
        (ssh.start_timeout, ssh.attempts, ssh.max_nodes),
        (s(5), 3, 2)
    );
    assert!(ssh.keep_program && ssh.idle == s(1) / 2);
    let nodes = config.elastic_nodes();
    let names: Vec<_> = nodes
        .iter()
        .map(|n| (n.name.as_str(), n.host.to_string()))
        .collect();
    let expected = [
        ("ssh-1", "ssh:me@one".to_owned()),
        ("ssh-2", "ssh:two".to_owned()),
    ];
    assert_eq!(names, expected);
    assert!(nodes.iter().all(|n| n.held == [1, 2] && n.shield));
    assert_eq!(nodes[0].memory, Some(3 << 30));
}

#[test]
fn every_mistake_gets_a_place_and_a_way_out() {
    let node = "[[node]]\nname = \"a\"\n";
    let table = [
        (
            format!("{node}[launcher.ssh]\nhosts = [\"-oProxyCommand=x\"]"),
            "4:10: `-oProxyCommand=x` is no host; write \"MACHINE\", \"USER@MACHINE\" or a name in ssh's configuration",
        ),
        (
            format!("{node}[launcher.ssh]\nhosts = [\"b\", \"b\"]"),
            "4:15: b stands twice in `hosts`; write it once: a host has one node of the launcher",
        ),
        (
            format!("{node}[launcher.ssh]\nfolder = \"~/x\""),
            "4:10: `~/x` can't be the folder on the hosts; write a path from the user's home there, such as \
             \".corehold-ssh\", or an absolute one",
        ),
        (
            format!("{node}[launcher.slurm]\nhosts = []"),
            "3:11: unknown key `slurm` in [launcher] (known here: ssh)",
        ),
        (
            format!("{node}[launcher.ssh.node]\nname = \"b\""),
            "4:1: unknown key `name` in [launcher.ssh.node] (known here: labels, cores, held, shield, tune, \
             allow_affinity_only, memory, gpus, resources, listen, metrics)",
        ),
        (
            "[[node]]\nname = \"ssh-1\"\n[launcher.ssh]\nhosts = [\"b\"]".to_owned(),
            "3:1: a node named `ssh-1` stands already in line 2; give this one another name",
        ),
        (
            format!("{node}labls = {{ role = \"x\" }}"),
            "3:1: unknown key `labls` in [[node]]; did you mean `labels`? (known here: name, host, labels, \
          cores, held, shield, tune, allow_affinity_only, memory, gpus, resources, listen, metrics)",
        ),
        (
            format!("[clutser]\n{node}"),
            "1:2: unknown key `clutser` in the file; did you mean `cluster`? (known here: cluster, launcher, node, observe, pool)",
        ),
        (
            format!("{node}[pool.p]\nmaximum = 1"),
            "4:1: unknown key `maximum` in [pool.p]; did you mean `max`? (known here: min, max, target_queue, idle_s, cool_down_s)",
        ),
        (
            format!("{node}cores = 1"),
            "3:9: `cores` must be a list of numbers, such as [0, 1], not a whole number",
        ),
        (
            format!("{node}cores = [0, \"1\"]"),
            "3:13: `cores` must be a whole number, not a string",
        ),
        (
            format!("{node}shield = \"yes\""),
            "3:10: `shield` must be true or false, not a string",
        ),
        (
            format!("{node}tune = \"turbo\""),
            "3:8: `tune` must be a list of names, such as [\"interrupts\", \"governor\"], not a string",
        ),
        (
            format!("{node}tune = [\"turbo\", \"irq\"]"),
            "3:18: `irq` is nothing that a node can tune; it can tune smt, interrupts, huge_pages, layout, governor, \
          turbo, cache, balance, workqueues, memory_node, priority",
        ),
        (
            "[node]\nname = \"a\"".to_owned(),
            "1:1: `node` must be a list of tables; write [[node]], not [node], not a table",
        ),
        (
            "[[node]]\nhost = \"local\"".to_owned(),
            "1:1: [[node]] has no `name`; add name = \"bench\"",
        ),
        (
            format!("{node}\n{node}"),
            "5:8: a node named `a` stands already in line 2; give this one another name",
        ),
        (
            format!("{node}cores = [0, 1]\nheld = [1]"),
            "4:9: core 1 is both held and shared by node `a`; take it out of `cores` or of `held`",
        ),
        (
            format!("{node}held = [1]\n[[node]]\nname = \"b\"\ncores = [0]\nheld = [1]"),
            "3:9: node `a` holds core 1, which node `b` of the same host holds too; a held core belongs to one node alone",
        ),
        (
            format!("{node}held = [1]\n[[node]]\nname = \"b\"\ncores = [0, 1]"),
            "3:9: node `a` holds core 1, which node `b` of the same host shares too; a held core belongs to one node alone",
        ),
        (
            format!("{node}held = [0, 0]"),
            "3:12: 0 stands twice in `held`; write it once",
        ),
        (
            format!("{node}gpus = [0]\n[[node]]\nname = \"b\"\ngpus = [1, 0]"),
            "3:9: node `a` has GPU 0, which node `b` of the same host has too; a GPU belongs to one node",
        ),
        (
            format!("{node}held = [7]"),
            "3:9: node `a` names core 7, which this machine does not have; it has cores 0 to 1",
        ),
        (
            format!("{node}held = [0, 1]"),
            "2:8: node `a` has no shared core to run on: all cores of this machine are held; leave at least one",
        ),
        (
            format!("{node}cores = [-1]"),
            "3:10: `cores` must be from 0 to 8191, not -1",
        ),
        (
            format!("{node}listen = \"localhost\""),
            "3:10: `localhost` is no address; write an IP address and a port, such as \"127.0.0.1:7420\"",
        ),
        (
            format!("{node}memory = \"8 gigs\""),
            "3:10: `8 gigs` is no memory size; write a number with KiB, MiB, GiB or TiB, such as \"8GiB\"",
        ),
        (
            format!("{node}memory = \"1GiB\""),
            "3:10: the nodes of this machine ask for 1073741824 bytes of memory, and it has 10000; ask for less",
        ),
        (
            format!("{node}labels = {{ role = \"a b\" }}"),
            "3:19: `a b` can't be a label's value; use 1 to 63 letters, digits, `.`, `_`, `-`, first a letter or digit",
        ),
        (
            format!("{node}labels = {{ \"-x\" = \"a\" }}"),
            "3:19: `-x` can't be a label's name; use 1 to 63 letters, digits, `.`, `_`, `-`, first a letter or digit",
        ),
        (
            format!("{node}host = \"slurm\""),
            "3:8: `slurm` is no host; use \"local\" or \"ssh:USER@MACHINE\"",
        ),
        (
            format!("{node}host = \"ssh:-oProxyCommand=x\""),
            "3:8: `ssh:-oProxyCommand=x` is no host; use \"local\" or \"ssh:USER@MACHINE\"",
        ),
        (
            format!("{node}resources = {{ fpga = -1 }}"),
            "3:22: `fpga` must be from 0 to 1000000000, not -1",
        ),
        (
            format!("{node}[pool.p]\nmin = 3\nmax = 2"),
            "5:7: pool `p` has max = 2, less than min = 3; raise `max` or lower `min`",
        ),
        (
            "[cluster]\nname = \"x\"".to_owned(),
            "1:1: the cluster has no nodes; add one: [[node]] with name = \"here\" and host = \"local\"",
        ),
        (
            format!("{node}cores = [0"),
            "3:11: this is not TOML: unclosed array, expected `]`",
        ),
        (
            format!("{node}name = \"b\""),
            "3:1: this is not TOML: duplicate key",
        ),
    ];
    for (text, wanted) in table {
        assert_eq!(
            complaint(&text),
            format!("conf/cluster.toml:{wanted}"),
            "for\n{text}"
        );
    }
}

#[test]
fn a_sibling_of_a_held_core_must_be_idle() {
    let text =
        "[[node]]\nname = \"a\"\ncores = [0]\nheld = [3]\n[[node]]\nname = \"b\"\ncores = [0, 2]";
    let config = ClusterConfig::parse(text, "c").unwrap();
    config.validate(&machine(4, |id| vec![id])).unwrap();
    let twins = machine(4, |id| vec![id / 2 * 2, id / 2 * 2 + 1]);
    assert_eq!(
        config.validate(&twins).unwrap_err().to_string(),
        "c:4:9: node `a` holds core 3, but core 2 is the same physical core and is used by node `b`; \
         leave core 2 idle"
    );
}

#[test]
fn columns_count_characters_and_a_missing_file_says_so() {
    let error = complaint("[[node]]\nname = \"ä\"");
    assert!(
        error.starts_with("conf/cluster.toml:2:8: `ä` can't be a node's name"),
        "{error}"
    );
    let error = ClusterConfig::load("no/such/cluster.toml")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("no/such/cluster.toml: cannot read the file: No such file"),
        "{error}"
    );
}

#[test]
fn metrics_are_off_unless_said_and_stay_on_this_machine() {
    let parse = |text: &str| ClusterConfig::parse(text, "conf/cluster.toml");
    let node = "[[node]]\nname = \"a\"\n";
    let config = parse(node).unwrap();
    assert_eq!(
        (config.metrics, config.nodes[0].metrics, config.timeline),
        (None, None, false)
    );

    // One for all, but for who says otherwise.
    let all = "[observe]\nmetrics = \"127.0.0.1:0\"\ntimeline = true\n";
    let own = "[[node]]\nname = \"b\"\nmetrics = \"127.0.0.1:9101\"\n[[node]]\nname = \"c\"\nmetrics = \"off\"\n";
    let config = parse(&format!("{all}{node}{own}")).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    assert_eq!(
        (config.metrics, config.nodes[0].metrics),
        (Some(any), Some(any))
    );
    assert_eq!(
        config.nodes[1].metrics,
        Some("127.0.0.1:9101".parse().unwrap())
    );
    assert_eq!((config.nodes[2].metrics, config.timeline), (None, true));

    let open = "[observe]\nmetrics = \"0.0.0.0:0\"\n";
    let error = complaint(&format!("{open}{node}"));
    assert!(
        error.contains(":2:11: ") && error.contains("expose = true"),
        "{error}"
    );
    assert!(parse(&format!("{open}expose = true\n{node}")).is_ok());
    // The head serves there, too.
    let error = complaint(&format!("[observe]\nmetrics = \"127.0.0.1:9100\"\n{node}"));
    assert!(
        error.contains("node `a` and the head") && error.contains("9100"),
        "{error}"
    );
    let head = "[cluster]\nmetrics = \"off\"\n[observe]\nmetrics = \"127.0.0.1:9100\"\n";
    assert!(parse(&format!("{head}{node}")).is_ok());
}
