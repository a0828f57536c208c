//! The nodes of a trial: started one after the other, watched until ready, kept restartable.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nemesis::mechanism::fsync_gate::FsyncGate;
use nemesis::mechanism::undo_fs::UndoFs;
use nemesis::{HostControl, Need};
use tokio::runtime::Handle;
use workloads::truth::now_ns;

use super::host::{IsWell, ManagedHost};
use super::place::{Place, small};
use crate::backend::{BackendSpec, ClusterInfo, CommandLine, NodeInfo};
use crate::provision::Launch;
use crate::sandbox::{Host, ProcessSpec, Under, helper_address, node_address};
use crate::scenario::ClusterPlan;

/// How long a healed cluster may take until it accepts writes again.
const HEALTHY_LIMIT: Duration = Duration::from_secs(15);
/// How many lines of a dead node's log an error quotes.
const LOG_TAIL: usize = 12;

/// A running cluster.
pub struct Cluster {
    /// Its backend.
    pub spec: &'static BackendSpec,
    /// What the backend knows about it.
    pub info: ClusterInfo,
    /// The hosts of its nodes and then those of its helpers, in the same order.
    pub hosts: Vec<Arc<ManagedHost>>,
    logs: PathBuf,
}

impl Cluster {
    /// Starts every node and waits until all of them accept writes.
    ///
    /// # Errors
    /// A host or process that cannot be started, a node that dies, or a cluster that is not ready in
    /// time: with the node, its command and the end of its log.
    pub fn start(
        spec: &'static BackendSpec,
        plan: &ClusterPlan,
        server: &Launch,
        place: &Place,
        runtime: &Handle,
    ) -> Result<Self> {
        let info = describe(spec, plan, server, &place.inside.scratch);
        let mut cluster = Self {
            spec,
            info,
            hosts: Vec::new(),
            logs: place.logs.clone(),
        };
        // Every host is there before the first server starts: a peer that is not up yet must refuse at
        // once, not leave the first one waiting for an address that nobody has.
        let info = cluster.info.clone();
        for node in info.nodes.iter().chain(&info.helpers) {
            cluster.add_host(node, place, runtime)?;
        }
        for (index, host) in cluster.hosts.iter().enumerate() {
            if index > 0 {
                std::thread::sleep(spec.backend.stagger());
            }
            host.restart()
                .with_context(|| format!("cannot start {} on {}", plan.backend, host.name()))?;
        }
        cluster.await_ready(Duration::from_millis(plan.ready_timeout_ms), runtime)?;
        Ok(cluster)
    }

    /// Starts the host of a node; its server comes with the first restart.
    fn add_host(&mut self, node: &NodeInfo, place: &Place, runtime: &Handle) -> Result<()> {
        fs::create_dir_all(&node.data)
            .with_context(|| format!("cannot create the data folder of {}", node.name))?;
        // Before the host is there: it gets a copy of the mounts that there are.
        let disk = place
            .needs
            .contains(&Need::UndoFs)
            .then(|| {
                let backing = node.data.with_extension("disk");
                UndoFs::mount(&backing, &node.data)
            })
            .transpose()
            .map_err(|why| anyhow!("{} cannot have a disk that forgets: {why}", node.name))?;
        let host = place.host(&node.name, node.address)?;
        self.spec
            .backend
            .prepare(&self.info, node)
            .with_context(|| format!("cannot write the configuration of {}", node.name))?;
        let command = self.spec.backend.command(&self.info, node);
        let log = self.log_of(&node.name);
        note_command(&self.logs, &node.name, &command)?;
        let data = node.data.clone();
        let gate = place
            .needs
            .contains(&Need::FsyncGate)
            .then(|| Arc::new(FsyncGate::new(&node.name, now_ns)));
        let clock = place.node_clock(&node.name);
        let (behind, by) = (gate.clone(), clock.clone());
        let restart = move |host: &Host| {
            let under = Under {
                gate: behind.as_deref(),
                clock: by.as_ref(),
            };
            spawn(host, &command, &data, &log, under)
        };
        let host = ManagedHost::new(host, Box::new(restart))
            .with_gate(gate)
            .with_disk(disk)
            .with_clock(clock)
            .with_health(self.health(node, runtime));
        self.hosts.push(Arc::new(host));
        Ok(())
    }

    /// Asks one node whether it accepts writes.
    fn health(&self, node: &NodeInfo, runtime: &Handle) -> IsWell {
        let alone = ClusterInfo {
            nodes: vec![node.clone()],
            ..self.info.clone()
        };
        let (backend, runtime) = (self.spec.backend, runtime.clone());
        Box::new(move || runtime.block_on(backend.is_ready(&alone)).is_ok())
    }

    /// Waits until every node accepts writes after the last fault was healed.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn await_healthy(&self, runtime: &Handle) -> Result<()> {
        self.await_ready(HEALTHY_LIMIT, runtime)
    }

    fn await_ready(&self, limit: Duration, runtime: &Handle) -> Result<()> {
        let start = Instant::now();
        loop {
            for host in &self.hosts {
                if let Some(exit) = host.unexpected_exit()? {
                    let name = host.host().name();
                    bail!(
                        "{} on {name} {}\n{}",
                        self.info.plan.backend,
                        exit.end,
                        self.explain(name)
                    );
                }
            }
            let Err(why) = runtime.block_on(self.spec.backend.is_ready(&self.info)) else {
                return Ok(());
            };
            if start.elapsed() > limit {
                let name = why.split(':').next().unwrap_or_default().to_owned();
                bail!(
                    "{}@{} does not accept writes on every node within {limit:?}; last asked, {why}\n{}",
                    self.info.plan.backend,
                    self.info.plan.version,
                    self.explain(&name)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where a node's output is, and its end.
    #[must_use]
    pub fn explain(&self, node: &str) -> String {
        let log = self.log_of(node);
        let text = fs::read(&log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
        let tail: String = tail
            .iter()
            .map(|line| format!("\n    {}", shorten(line)))
            .collect();
        format!(
            "  its command: {}/commands.txt\n  its log: {}; the end of it:{tail}",
            self.logs.display(),
            log.display()
        )
    }

    fn log_of(&self, node: &str) -> PathBuf {
        self.logs.join(format!("{node}.log"))
    }
}

/// What a backend is told of a cluster.
fn describe(
    spec: &BackendSpec,
    plan: &ClusterPlan,
    server: &Launch,
    scratch: &Path,
) -> ClusterInfo {
    let host = |number: u32, is_helper: bool| {
        let name = format!("{}{number}", if is_helper { 's' } else { 'n' });
        let address = if is_helper {
            helper_address
        } else {
            node_address
        };
        NodeInfo {
            index: number as usize - 1,
            is_helper,
            address: address(small(number)),
            data: scratch.join(&name),
            name,
        }
    };
    ClusterInfo {
        plan: plan.clone(),
        server: server.clone(),
        nodes: (1..=plan.nodes).map(|number| host(number, false)).collect(),
        helpers: (1..=(spec.helpers)(plan))
            .map(|number| host(number, true))
            .collect(),
    }
}

fn shorten(line: &str) -> String {
    const MOST: usize = 240;
    if line.chars().count() <= MOST {
        line.to_owned()
    } else {
        line.chars().take(MOST).chain(['…']).collect()
    }
}

/// Keeps the exact command line of a host, so that it can be read and repeated.
///
/// # Errors
/// When the file cannot be written.
pub fn note_command(logs: &Path, host: &str, command: &CommandLine) -> Result<()> {
    use std::io::Write;
    let words = command.argv.iter().map(|word| word.to_string_lossy());
    let quoted: Vec<String> = words
        .map(|word| {
            if word.contains([' ', '"']) {
                format!("'{word}'")
            } else {
                word.into()
            }
        })
        .collect();
    let path = logs.join("commands.txt");
    let mut file = append(&path).with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(file, "{host}: {}", quoted.join(" "))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Opens a log for appending.
///
/// # Errors
/// When it cannot be opened.
pub fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Environment that every process of a host gets.
#[must_use]
pub fn base_env(home: &Path) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    vec![
        ("PATH".into(), path),
        ("HOME".into(), home.into()),
        ("TMPDIR".into(), home.into()),
    ]
}

fn spawn(
    host: &Host,
    command: &CommandLine,
    data: &Path,
    log: &Path,
    under: Under<'_>,
) -> io::Result<()> {
    let log = append(log)?;
    let mut env = base_env(data);
    env.extend(command.env.iter().cloned());
    let spec = ProcessSpec {
        argv: command.argv.clone(),
        env,
        cwd: Some(data.to_owned()),
        stdin: OwnedFd::from(File::open("/dev/null")?),
        stdout: OwnedFd::from(log.try_clone()?),
        stderr: OwnedFd::from(log),
    };
    host.spawn_under(spec, under).map(drop)
}
