//! How long a put to a real etcd takes, over the network that is measured.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::Runtime;
use workloads::reply::Reply;
use workloads::resource::{self, ResourceConfig, Write};

use super::sample::Sample;
use crate::backend::{self, NodeInfo};
use crate::provision::Launch;
use crate::run::cluster::Cluster;
use crate::run::place::Place;
use crate::scenario::ArmPlan;

/// Puts that are timed, one after the other.
const PUTS: u64 = 1_000;

/// How long the cluster may take to elect a leader.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts three nodes and times writes from the controller through the leader: a follower passes each write on,
/// and which node leads would decide the comparison.
pub(super) fn measure(arm: &ArmPlan, etcd: &Path, place: &Place) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let spec = backend::find(&arm.cluster.backend).context("this build has no etcd")?;
    let etcd = Launch::direct(etcd);
    let cluster = Cluster::start(spec, &arm.cluster, &etcd, place, runtime.handle())?;
    let leader = leader(&cluster, &runtime)?;
    let config = ResourceConfig {
        endpoint: Some(cluster.info.endpoint(spec.backend, &leader)),
        request_timeout_ms: 5_000,
        ..ResourceConfig::default()
    };
    let kind = resource::find("etcd").context("this build has no resource etcd")?;
    let sample = runtime.block_on(async {
        let resource = (kind.connect)(config).await.map_err(|why| anyhow!(why))?;
        let mut sample = Sample::default();
        for op in 0..PUTS {
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
            sample.add(u64::try_from(started.elapsed().as_nanos())?);
        }
        Ok(sample)
    })?;
    sample.row("etcd put, three nodes, one client");
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
