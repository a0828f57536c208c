//! What the controller sees of a cluster: who holds or awaits which lock, and who leads.
//!
//! It only looks. ZooKeeper's watches go off once and say little, so what was there is compared with what is
//! there: a place in a queue that came and went between two looks was not seen. One watch sees what its
//! server sees: behind a partition or a pause it sees everything later, so run one a server and believe the
//! earliest.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use checkers::history::{LeasePhase, Ns};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::errors::ZkError;
use super::session::{Session, SessionConfig, SessionEvent, Told};
use super::{LOCK_ROOT, node_name};
use crate::belief::Belief;
use crate::truth;

/// What a server says about itself (the four-letter word `srvr`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its version, for instance `3.8.0`.
    pub version: String,
    /// `leader`, `follower` or `standalone`.
    pub mode: String,
    /// The latest transaction it knows; the upper half counts the leaders there were.
    pub zxid: u64,
}

/// A place in a lock's queue appeared or vanished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSeen {
    /// The lock, for instance `l0`.
    pub lock: String,
    /// Transaction that created the node: the fencing token of whoever has it.
    pub token: u64,
    /// The session that it goes with.
    pub session: i64,
    /// Whether it appeared or vanished.
    pub phase: LeasePhase,
    /// Truth time at which the observer heard of it.
    pub at_ns: Ns,
}

/// Asks a server about itself, over a connection of its own, within `limit`.
///
/// # Errors
/// When it cannot be reached, does not answer, or does not serve (without a quorum it does not).
pub async fn status(endpoint: SocketAddr, limit: Duration) -> io::Result<ServerStatus> {
    let ask = async {
        let mut stream = TcpStream::connect(endpoint).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        read_status(&answer).ok_or_else(|| io::Error::other(answer.trim().to_owned()))
    };
    tokio::time::timeout(limit, ask).await.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it does not answer",
        ))
    })
}

fn read_status(answer: &str) -> Option<ServerStatus> {
    let line = |name: &str| {
        let mut lines = answer.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    // "Zookeeper version: 3.4.13-6+deb11u1-…, built on …"
    let version = line("Zookeeper version")?;
    let version = version.split(['-', ',', '+']).next()?;
    let zxid = line("Zxid")?.strip_prefix("0x")?;
    Some(ServerStatus {
        version: version.to_owned(),
        mode: line("Mode")?.to_owned(),
        zxid: u64::from_str_radix(zxid, 16).ok()?,
    })
}

/// Watches the locks through one server and tells `sink` of each place in a queue that comes or goes, those
/// that are there already included. Ends when its session does.
///
/// # Errors
/// When the server cannot be reached, or a request fails.
pub async fn watch_locks(
    endpoint: SocketAddr,
    session_timeout: Duration,
    limit: Duration,
    sink: &(dyn Fn(LockSeen) + Send + Sync),
) -> Result<(), ZkError> {
    let config = SessionConfig {
        endpoint,
        timeout: session_timeout,
        keep_alive: true,
        told: Told::Expired,
    };
    let mut session = Session::open(config, Arc::new(Belief::new()), limit).await?;
    session.make_path(LOCK_ROOT, limit).await?;
    let mut queues = BTreeMap::new();
    look_for_locks(&session, &mut queues, limit, sink).await?;
    while let Some(event) = session.event().await {
        match event {
            SessionEvent::Watch(event) if event.path == LOCK_ROOT => {
                look_for_locks(&session, &mut queues, limit, sink).await?;
            }
            SessionEvent::Watch(event) => {
                let lock = event.path.strip_prefix(LOCK_ROOT).unwrap_or_default();
                if let Some(queue) = queues.get_mut(lock.trim_start_matches('/')) {
                    look_at_queue(&session, lock, queue, limit, sink).await?;
                }
            }
            SessionEvent::Suspended(_) | SessionEvent::Connected => {}
            SessionEvent::Over(_) => break,
        }
    }
    Ok(())
}

/// The places of a queue: the token and session of each node.
type Queue = BTreeMap<String, (u64, i64)>;

/// Begins to watch the locks that are new. A lock's node stays, once it is there.
async fn look_for_locks(
    session: &Session,
    queues: &mut BTreeMap<String, Queue>,
    limit: Duration,
    sink: &(dyn Fn(LockSeen) + Send + Sync),
) -> Result<(), ZkError> {
    for lock in session.children(LOCK_ROOT, true, limit).await? {
        if !queues.contains_key(&lock) {
            let queue = queues.entry(lock.clone()).or_default();
            look_at_queue(session, &lock, queue, limit, sink).await?;
        }
    }
    Ok(())
}

/// Compares a queue with what it was.
async fn look_at_queue(
    session: &Session,
    lock: &str,
    queue: &mut Queue,
    limit: Duration,
    sink: &(dyn Fn(LockSeen) + Send + Sync),
) -> Result<(), ZkError> {
    let lock = lock.trim_start_matches('/');
    let parent = format!("{LOCK_ROOT}/{lock}");
    let present = session.children(&parent, true, limit).await?;
    let at_ns = truth::now_ns();
    let tell = |(token, session), phase, at_ns| {
        sink(LockSeen {
            lock: node_name(lock),
            token,
            session,
            phase,
            at_ns,
        });
    };
    queue.retain(|name, place| {
        let stays = present.contains(name);
        if !stays {
            tell(*place, LeasePhase::Ended, at_ns);
        }
        stays
    });
    for name in present {
        if queue.contains_key(&name) {
            continue;
        }
        let stat = session.exists(&format!("{parent}/{name}"), limit).await?;
        // One that is gone again was not seen.
        if let Some(stat) = stat {
            let place = (stat.czxid.unsigned_abs(), stat.ephemeral_owner);
            tell(place, LeasePhase::Granted, truth::now_ns());
            queue.insert(name, place);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let answer = "Zookeeper version: 3.4.13-6+deb11u1--1, built on Sat, 28 Oct 2023 12:08:34 +0200\n\
                      Latency min/avg/max: 0/0/0\nReceived: 3\nSent: 2\nConnections: 1\nOutstanding: 0\n\
                      Zxid: 0x100000002\nMode: follower\nNode count: 4\n";
        let status = read_status(answer).expect("a status");
        assert_eq!(
            (status.version.as_str(), status.mode.as_str(), status.zxid),
            ("3.4.13", "follower", 0x1_0000_0002)
        );
        assert_eq!(
            read_status("This ZooKeeper instance is not currently serving requests\n"),
            None
        );
    }
}
