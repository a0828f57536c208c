//! Independent witnesses of a trial: who leads, which leases begin and end, which node died by itself.
//!
//! They only look. What they see goes to the history and to the world.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use checkers::history::{Event, FaultEvent, FaultPhase, LeaderSeen, LeaseEvent, LeasePhase};
use nemesis::Notice;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use workloads::truth::now_ns;

use super::cluster::Cluster;
use super::host::ManagedHost;
use super::progress::{Progress, ProgressSender};
use super::recorder::Recorder;
use super::wake::{Wake, Wakes};

/// How often nodes are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Numbers of events that no injection stands behind.
const FIRST_UNASKED_ID: u32 = 1_000_000_000;

/// The latest word on who leads.
pub type LeaderCell = Arc<Mutex<String>>;

/// The running observers; they end with this.
pub struct Observers(Vec<AbortHandle>);

impl Drop for Observers {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Starts watching a cluster. Leases are watched through every node where `every_node` is set, because
/// one that is paused tells late, and through the first one otherwise.
#[must_use]
pub fn start(
    cluster: &Cluster,
    every_node: bool,
    leader: &LeaderCell,
    recorder: &Recorder,
    wakes: &Wakes,
    progress: &ProgressSender,
    runtime: &Handle,
) -> Observers {
    let backend = cluster.spec.backend;
    let mut tasks = Vec::new();
    let found = leader_found(Arc::clone(leader), recorder.clone(), wakes.clone());
    tasks.push(
        runtime
            .spawn(backend.watch_leader(cluster.info.clone(), found))
            .abort_handle(),
    );
    let seen = Arc::new(Mutex::new(HashSet::new()));
    for node in cluster
        .info
        .nodes
        .iter()
        .take(if every_node { usize::MAX } else { 1 })
    {
        let (seen, recorder) = (Arc::clone(&seen), recorder.clone());
        let sink = Box::new(move |event: LeaseEvent| {
            // Every node tells of the same lease; the first word counts.
            let word = (
                event.lock.clone(),
                event.token,
                event.phase == LeasePhase::Ended,
            );
            if seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(word)
            {
                recorder.record(Event::Lease(event));
            }
        });
        tasks.push(
            runtime
                .spawn(backend.watch_leases(cluster.info.clone(), node.clone(), sink))
                .abort_handle(),
        );
    }
    let deaths = watch_deaths(cluster.hosts.clone(), recorder.clone(), progress.clone());
    tasks.push(runtime.spawn(deaths).abort_handle());
    Observers(tasks)
}

fn leader_found(
    leader: LeaderCell,
    recorder: Recorder,
    wakes: Wakes,
) -> Box<dyn Fn(&str) + Send + Sync> {
    Box::new(move |node| {
        let mut known = leader.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != node {
            let first = known.is_empty();
            node.clone_into(&mut known);
            recorder.record(Event::Leader(LeaderSeen {
                node: node.to_owned(),
                at_ns: now_ns(),
            }));
            if !first && !node.is_empty() {
                wakes.push(Wake::LeaderChanged);
            }
        }
    })
}

async fn watch_deaths(hosts: Vec<Arc<ManagedHost>>, recorder: Recorder, progress: ProgressSender) {
    let mut id = FIRST_UNASKED_ID;
    loop {
        for host in &hosts {
            if let Ok(Some(exit)) = host.unexpected_exit() {
                let name = host.host().name().to_owned();
                let receipt = format!(
                    "the server on {name} {} although nobody killed it",
                    exit.end
                );
                progress.send(&Progress::Warning(format!(
                    "{receipt}; see logs/{name}.log"
                )));
                recorder.record(Event::Fault(FaultEvent {
                    id,
                    kind: "unasked-exit".to_owned(),
                    target: format!("node:{name}"),
                    hosts: vec![name],
                    phase: FaultPhase::Failed,
                    at_ns: exit.at_ns,
                    requested_ns: exit.at_ns,
                    proven: false,
                    receipt,
                }));
                id += 1;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Records what the nemesis reports and tells the run loop when a fault has settled. Ends with the engine.
///
/// # Errors
/// When the thread cannot be started.
pub fn record_notices(
    notices: std::sync::mpsc::Receiver<Notice>,
    recorder: Recorder,
    wakes: Wakes,
) -> std::io::Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name("notices".into())
        .spawn(move || {
            for notice in notices {
                let firing = notice.id();
                let settled = !matches!(notice, Notice::Healed(_));
                recorder.record(Event::Fault(notice.into_event()));
                if settled {
                    wakes.push(Wake::FaultSettled { firing });
                }
            }
        })
}
