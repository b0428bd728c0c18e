//! Hosts that ssh reaches: network namespaces with an OpenSSH server each, whose keys, homes and configuration are in a
//! folder of the case's own. Nothing of the machine's own ssh is read or written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn run(command: &str) -> Result<String, String> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(format!(
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(e) => Err(format!("{command}: {e}")),
    }
}

/// Two hosts: `one`, linked to this namespace, and `two`, linked to `one` only, whose server takes nobody who does not come
/// from there.
pub struct SshHosts {
    pub folder: tempfile::TempDir,
    servers: Vec<Child>,
    spaces: [String; 2],
    link: String,
    net: u32,
}

/// A server's own part of its configuration, and its port on its host.
struct Server<'a> {
    name: &'a str,
    space: usize,
    address: String,
    port: u16,
    more: &'a str,
}

impl SshHosts {
    /// Starts them; `None` where there can be none, and why is printed.
    pub fn up(case: &str) -> Option<Self> {
        match Self::start() {
            Ok(hosts) => Some(hosts),
            Err(why) => {
                println!("SKIPPED {case}: it needs root, iproute2 and openssh-server: {why}");
                None
            }
        }
    }

    fn start() -> Result<Self, String> {
        for tool in [
            "/usr/sbin/sshd",
            "/usr/bin/ssh",
            "/usr/bin/ssh-keygen",
            "/usr/bin/nsenter",
        ] {
            if !Path::new(tool).exists() {
                return Err(format!("there is no {tool}"));
            }
        }
        // Where the server puts a process without rights; it is empty, and any boot makes it.
        fs::create_dir_all("/run/sshd").map_err(|e| e.to_string())?;
        let pid = std::process::id();
        let mut hosts = Self {
            folder: tempfile::tempdir().map_err(|e| e.to_string())?,
            servers: Vec::new(),
            spaces: [format!("chs{pid}a"), format!("chs{pid}b")],
            link: format!("chs{pid}"),
            // 254 * 32 networks of eight addresses: four for each link.
            net: pid % (254 * 32),
        };
        hosts.network()?;
        hosts.keys()?;
        let from_one = format!("AllowUsers *@{}", hosts.address(5));
        let fake = hosts.folder.path().join("fake");
        fs::create_dir(&fake).map_err(|e| e.to_string())?;
        let uname = fake.join("uname");
        let text = "#!/bin/sh\ncase $1 in -m) echo riscv64;; *) echo Linux;; esac\n";
        fs::write(&uname, text).map_err(|e| e.to_string())?;
        run(&format!("chmod 755 {}", uname.display()))?;
        let strange = format!(
            "SetEnv PATH={}:/usr/bin:/bin HOME={}",
            fake.display(),
            hosts.home("strange").display()
        );
        let home = |name: &str| format!("SetEnv HOME={}", hosts.home(name).display());
        let (one, two) = (home("one"), home("two"));
        let two = format!("{from_one}\n{two}");
        let servers = [
            Server {
                name: "one",
                space: 0,
                address: hosts.address(2),
                port: 2222,
                more: &one,
            },
            Server {
                name: "strange",
                space: 0,
                address: hosts.address(2),
                port: 2223,
                more: &strange,
            },
            Server {
                name: "two",
                space: 1,
                address: hosts.address(6),
                port: 2222,
                more: &two,
            },
        ];
        for server in servers {
            hosts.serve(&server)?;
        }
        hosts.configure()?;
        Ok(hosts)
    }

    /// Of the eight: 1 is here, 2 on `one`, 5 on `one` towards `two`, 6 on `two`.
    fn address(&self, host: u32) -> String {
        format!("10.214.{}.{}", self.net / 32 + 1, self.net % 32 * 8 + host)
    }

    /// The address of this side.
    pub fn here(&self) -> String {
        self.address(1)
    }

    fn network(&self) -> Result<(), String> {
        let ([a, b], link) = (&self.spaces, &self.link);
        let [here, one, gate, two] = [1, 2, 5, 6].map(|host| self.address(host));
        let net = self.address(4);
        for command in [
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip link add {link} type veth peer name tohead netns {a}"),
            format!("ip addr add {here}/30 dev {link}"),
            format!("ip link set {link} up"),
            format!("ip -n {a} addr add {one}/30 dev tohead"),
            format!("ip -n {a} link set lo up"),
            format!("ip -n {a} link set tohead up"),
            format!("ip -n {a} link add totwo type veth peer name toone netns {b}"),
            format!("ip -n {a} addr add {gate}/30 dev totwo"),
            format!("ip -n {a} link set totwo up"),
            format!("ip -n {b} addr add {two}/30 dev toone"),
            format!("ip -n {b} link set lo up"),
            format!("ip -n {b} link set toone up"),
            format!("ip -n {b} route add default via {gate}"),
            format!("ip route add {net}/30 via {one}"),
            format!("ip netns exec {a} sysctl -qw net.ipv4.ip_forward=1"),
        ] {
            run(&command)?;
        }
        Ok(())
    }

    fn keys(&self) -> Result<(), String> {
        let folder = self.folder.path().display();
        for key in ["mine", "other", "host"] {
            let output = Command::new("ssh-keygen")
                .args([
                    "-q",
                    "-t",
                    "ed25519",
                    "-N",
                    "",
                    "-f",
                    &format!("{folder}/{key}"),
                ])
                .output();
            let output = output.map_err(|e| e.to_string())?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        fs::copy(
            self.folder.path().join("mine.pub"),
            self.folder.path().join("authorized"),
        )
        .map_err(|e| e.to_string())?;
        Ok(())
    }

    fn serve(&mut self, server: &Server<'_>) -> Result<(), String> {
        let folder = self.folder.path().to_owned();
        let folder = folder.display();
        let Server {
            name,
            space,
            address,
            port,
            more,
        } = server;
        fs::create_dir_all(self.home(name)).map_err(|e| e.to_string())?;
        let text = format!(
            "Port {port}\nListenAddress {address}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin yes\nPermitUserRC no\nPrintMotd no\nMaxStartups 100\nUseDNS no\n{more}\n"
        );
        let file = format!("{folder}/{name}.sshd");
        fs::write(&file, text).map_err(|e| e.to_string())?;
        let log = fs::File::create(format!("{folder}/{name}.log")).map_err(|e| e.to_string())?;
        let space = &self.spaces[*space];
        // Not `ip netns exec`, which hides the cgroups.
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{space}"))
            .args(["/usr/sbin/sshd", "-D", "-e", "-f", &file])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| e.to_string())?;
        self.servers.push(child);
        let listens = || {
            let log = fs::read_to_string(format!("{folder}/{name}.log")).unwrap_or_default();
            match log.contains("Server listening") {
                true => Some(Ok(())),
                false if log.contains("fatal") || log.contains("error") => Some(Err(log)),
                false => None,
            }
        };
        for _ in 0..500 {
            if let Some(result) = listens() {
                return result;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Err(format!("{name} does not listen"))
    }

    fn configure(&self) -> Result<(), String> {
        let folder = self.folder.path().display();
        let [one, two] = [2, 6].map(|host| self.address(host));
        let key = fs::read_to_string(format!("{folder}/host.pub")).map_err(|e| e.to_string())?;
        let other = fs::read_to_string(format!("{folder}/other.pub")).map_err(|e| e.to_string())?;
        let known =
            format!("[{one}]:2222 {key}[{one}]:2223 {key}[{two}]:2222 {key}impostor {other}");
        fs::write(format!("{folder}/known"), known).map_err(|e| e.to_string())?;
        let text = format!(
            "Host *\n  User root\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n\
             Host one strange wrongkey impostor\n  HostName {one}\n\
             Host two direct\n  HostName {two}\n\
             Host two\n  ProxyJump one\n\
             Host closed\n  HostName {one}\n  Port 9\n\
             Host strange\n  Port 2223\n\
             Host impostor\n  HostKeyAlias impostor\n\
             Host wrongkey\n  IdentityFile {folder}/other\n\
             Host * !wrongkey\n  IdentityFile {folder}/mine\nHost *\n  Port 2222\n"
        );
        fs::write(self.config(), text).map_err(|e| e.to_string())
    }

    /// The configuration for ssh.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// The user's home on a host.
    pub fn home(&self, host: &str) -> PathBuf {
        self.folder.path().join("homes").join(host)
    }

    /// Whether ssh logs in there.
    pub fn logs_in(&self, host: &str) -> bool {
        let status = Command::new("ssh")
            .arg("-F")
            .arg(self.config())
            .args(["-o", "BatchMode=yes", host, "true"])
            .stderr(Stdio::null())
            .status();
        status.unwrap().success()
    }

    /// `[launcher.ssh]` with these keys beside the configuration.
    pub fn launcher(&self, keys: &str) -> String {
        format!(
            "[launcher.ssh]\nconfig = \"{}\"\n{keys}\n",
            self.config().display()
        )
    }

    /// The processes that run in a folder of these hosts, with their command lines.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let mark = self.folder.path().join("homes").display().to_string();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let told = ids.filter_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
            program
                .display()
                .to_string()
                .contains(&mark)
                .then_some((pid, line))
        });
        told.collect()
    }

    /// What is left in the homes.
    pub fn left(&self) -> Vec<PathBuf> {
        fn below(folder: &Path, all: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                all.push(entry.path());
                below(&entry.path(), all);
            }
        }
        let mut all = Vec::new();
        for home in fs::read_dir(self.folder.path().join("homes"))
            .unwrap()
            .flatten()
        {
            below(&home.path(), &mut all);
        }
        all
    }

    /// Cgroups that the processes made which ran there, by their ids.
    pub fn cgroups(&self, pids: &[i32]) -> Vec<String> {
        let found = run("find /sys/fs/cgroup -type d -name corehold*").unwrap_or_default();
        let theirs = |group: &&str| {
            pids.iter().any(|pid| {
                group
                    .split(['-', '/', '.', '_'])
                    .any(|w| w == pid.to_string())
            })
        };
        found.lines().filter(theirs).map(str::to_owned).collect()
    }

    /// Asserts that no process, file or cgroup is left of the processes that ran on the hosts.
    pub fn assert_clean(&self, pids: &[i32]) {
        assert_eq!(self.processes(), []);
        assert_eq!(self.left(), [] as [PathBuf; 0]);
        assert_eq!(self.cgroups(pids), [] as [String; 0]);
    }
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            for name in ["one", "two", "strange"] {
                let log = self.folder.path().join(format!("{name}.log"));
                eprintln!(
                    "--- {}\n{}",
                    log.display(),
                    fs::read_to_string(&log).unwrap_or_default()
                );
            }
        }
        let _ = run(&format!("ip link del {}", self.link));
        for space in &self.spaces {
            let _ = run(&format!("ip netns del {space}"));
        }
    }
}
