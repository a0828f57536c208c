//! How long a put to a real etcd takes over the switch and over the bridge.
//!
//! Both are measured in turns, each time in a new sandbox, because what a machine has to spare changes from one
//! minute to the next by more than the two differ.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use tokio::runtime::Runtime;
use workloads::reply::Reply;
use workloads::resource::{self, ResourceConfig, Write};

use super::network::arm;
use super::sample::{Sample, figure};
use crate::backend::{self, NodeInfo};
use crate::provision::Launch;
use crate::run::cluster::Cluster;
use crate::run::place::Place;
use crate::sandbox::NetworkKind;

/// How often each network has its turn.
const ROUNDS: usize = 6;
/// Puts that are timed in a turn, one after the other, and puts before them that are not.
const PUTS: u64 = 300;
const WARM_UP: u64 = 50;
/// How long the cluster may take to elect a leader.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where a turn's times go: the first descriptor that its sandbox was given.
const TIMES: &str = "/proc/self/fd/3";

/// Lets the networks take turns and prints what came of it. `turn` runs one, in a sandbox of its own whose first
/// descriptor is the one given.
pub(super) fn compare(turn: impl Fn(NetworkKind, File) -> Result<()>) -> Result<()> {
    let kinds = [NetworkKind::Switch, NetworkKind::Bridge];
    let mut samples = [Sample::default(), Sample::default()];
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let mut medians = [0.0; 2];
        for ((kind, sample), median) in kinds.into_iter().zip(&mut samples).zip(&mut medians) {
            let (mut output, input) = pipe2(OFlag::O_CLOEXEC).map(|(o, i)| (File::from(o), i))?;
            turn(kind, input.into())?;
            let mut text = String::new();
            output.read_to_string(&mut text)?;
            let times: Vec<u64> = text
                .lines()
                .map(str::parse)
                .collect::<Result<_, _>>()
                .context("expected a time in nanoseconds on each line")?;
            *median = times.iter().copied().collect::<Sample>().median_ms();
            times.into_iter().for_each(|ns| sample.add(ns));
        }
        ratios.push(medians[0] / medians[1]);
    }
    for (kind, sample) in kinds.into_iter().zip(samples) {
        sample.row(&format!("over the {}", kind.name()));
    }
    ratios.sort_by(f64::total_cmp);
    let middle = f64::midpoint(ratios[(ROUNDS - 1) / 2], ratios[ROUNDS / 2]);
    figure(
        "p50 over the switch, p50 over the bridge = 1",
        &format!("{middle:.2}"),
    );
    figure(
        "  from and to, of as many rounds",
        &format!("{:.2}–{:.2} of {ROUNDS}", ratios[0], ratios[ROUNDS - 1]),
    );
    Ok(())
}

/// One turn, inside its sandbox: starts three nodes and times writes from the controller through the leader. A
/// follower passes each write on, and which node leads would decide the comparison.
pub(super) fn measure(kind: NetworkKind, etcd: &Path) -> Result<()> {
    let arm = arm(kind)?;
    let place = Place::new(&arm, std::env::temp_dir())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let spec = backend::find(&arm.cluster.backend).context("this build has no etcd")?;
    let etcd = Launch::direct(etcd);
    let cluster = Cluster::start(spec, &arm.cluster, &etcd, &place, runtime.handle())?;
    let leader = leader(&cluster, &runtime)?;
    let config = ResourceConfig {
        endpoint: Some(cluster.info.endpoint(spec.backend, &leader)),
        request_timeout_ms: 5_000,
        ..ResourceConfig::default()
    };
    let kind = resource::find("etcd").context("this build has no resource etcd")?;
    let mut times = String::new();
    runtime.block_on(async {
        let resource = (kind.connect)(config).await.map_err(|why| anyhow!(why))?;
        for op in 0..WARM_UP + PUTS {
            let write = Write {
                key: "bench",
                op,
                elements: &[op],
                token: None,
                guard: None,
            };
            let started = Instant::now();
            if let Reply::Fail(why) | Reply::Info(why) = resource.write(write).await {
                bail!("a put failed: {why}");
            }
            if op >= WARM_UP {
                times.push_str(&format!("{}\n", started.elapsed().as_nanos()));
            }
        }
        Ok(())
    })?;
    OpenOptions::new()
        .write(true)
        .open(TIMES)?
        .write_all(times.as_bytes())?;
    Ok(())
}

fn leader(cluster: &Cluster, runtime: &Runtime) -> Result<NodeInfo> {
    let (found, leaders) = mpsc::channel();
    let told = Box::new(move |name: &str| {
        // Nobody listens any more once a leader was heard of.
        let _ = found.send(name.to_owned());
    });
    let watch = runtime.spawn(
        cluster
            .spec
            .backend
            .watch_leader(cluster.info.clone(), told),
    );
    let until = Instant::now() + PATIENCE;
    let node = loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(name) = leaders.recv_timeout(left) else {
            break None;
        };
        let mut nodes = cluster.info.nodes.iter();
        if let Some(node) = nodes.find(|node| node.name == name) {
            break Some(node.clone());
        }
    };
    watch.abort();
    node.with_context(|| format!("no leader within {} s", PATIENCE.as_secs()))
}
