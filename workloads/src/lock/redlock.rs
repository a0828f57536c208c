//! `redlock`: the lock on several independent primaries that Redis's documentation describes ("Distributed Locks
//! with Redis", "The Redlock algorithm"), with the figures of node-redlock, its reference client.
//!
//! One value is set on every node at once, with a short limit a node; the lock is ours if more than half of them
//! took it and something is left of its validity, TTL - elapsed - drift, where the drift is a hundredth of the TTL
//! and 2 ms. If not, it is deleted everywhere and tried again after a random while. It is extended and released
//! the same way. It is safe as long as clocks run at about the same rate and a node that crashed comes back with
//! its keys, or later than the TTL; it has no fencing token. What must not be in here: any repair of that.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use tokio::time::Instant;

use crate::belief::{Belief, Moment};
use crate::discipline::Discipline;
use crate::lock::{Grant, LockAsk, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::{OptionKind, OptionSpec};
use crate::redis::{
    Command, KeepAlive, LOCK_PREFIX, RELEASE, RENEW, RedisError, Renewed, Route, Topology, Value,
    jittered, retry_option,
};
use crate::reply::Reply;

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "redlock",
    summary: "Redlock: the same key on most of several independent primaries.",
    backend: "redis",
    token: "none",
    leased: true,
    disciplines: &[
        Discipline::Ignore,
        Discipline::Session,
        Discipline::Deadline,
    ],
    options: &[NODE_TIMEOUT, RETRY],
    check,
    connect,
};

const NODE_TIMEOUT: OptionSpec = OptionSpec {
    name: "node_timeout",
    kind: OptionKind::Millis {
        min: 1,
        max: 60_000,
    },
    default: "50",
    about: "How long one node may take to answer before the client goes on without it.",
};
const RETRY: OptionSpec = retry_option("200");

fn check(ask: &LockAsk<'_>) -> Result<(), String> {
    if Topology::of(ask.cluster) != Topology::Independent {
        return Err(
            "cluster.options.topology to be \"independent\": Redlock wants primaries that know nothing of each other"
                .to_owned(),
        );
    }
    if ask.nodes < 3 || ask.nodes.is_multiple_of(2) {
        return Err(format!(
            "an odd number of nodes, 3 at least, so that a majority outlives the loss of one, and not {}",
            ask.nodes
        ));
    }
    let node_timeout_ms = ask.options.number(&NODE_TIMEOUT);
    let drift = drift(Duration::from_millis(ask.ttl_ms));
    if Duration::from_millis(ask.ttl_ms.saturating_sub(node_timeout_ms)) <= drift {
        return Err(format!(
            "a TTL that outlasts workload.options.node_timeout ({node_timeout_ms} ms) and the drift allowed for \
             ({drift:?}), and not {} ms",
            ask.ttl_ms
        ));
    }
    Ok(())
}

/// What clocks may differ by until the lock has expired.
fn drift(ttl: Duration) -> Duration {
    ttl / DRIFT_DIVISOR + DRIFT_LEAST
}

/// node-redlock: `driftFactor`, as its inverse.
const DRIFT_DIVISOR: u32 = 100;
/// Redis expires keys with the exactness of a millisecond, and a little more for small TTLs (node-redlock).
const DRIFT_LEAST: Duration = Duration::from_millis(2);

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        let node_timeout = Duration::from_millis(config.options.number(&NODE_TIMEOUT));
        let nodes = config.endpoints.iter();
        let nodes: Vec<Route> = nodes.map(|node| Route::to(*node, node_timeout)).collect();
        // A node that is down now may be up later; the quorum decides each time.
        Ok(Box::new(Connected {
            nodes: Arc::new(Nodes {
                nodes,
                limit: node_timeout,
                ttl: config.ttl(),
            }),
            config: Arc::new(config),
        }) as Box<dyn LockConnection>)
    }
    .boxed()
}

struct Connected {
    config: Arc<LockConfig>,
    nodes: Arc<Nodes>,
}

impl LockConnection for Connected {
    fn client(&self, client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        Box::new(Client {
            config: Arc::clone(&self.config),
            nodes: Arc::clone(&self.nodes),
            belief,
            number: client,
            tries: 0,
            rng: ChaCha8Rng::seed_from_u64(client.into()),
            held: None,
        })
    }
}

/// All nodes, and what they answered.
struct Nodes {
    nodes: Vec<Route>,
    /// Of one command to one node.
    limit: Duration,
    ttl: Duration,
}

/// How the nodes answered to one command.
#[derive(Debug, Default)]
struct Votes {
    /// They did it.
    yes: usize,
    /// They say that the key is another's, or gone.
    no: usize,
    /// They definitely did nothing.
    failed: usize,
    /// Nobody knows.
    unknown: usize,
    /// Why the first of those that answered neither yes nor no did not.
    why: Option<RedisError>,
}

impl Nodes {
    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// The TTL without the drift: as long as the lock may be used at most.
    fn usable(&self) -> Duration {
        self.ttl.saturating_sub(drift(self.ttl))
    }

    /// What is left of the lock's validity after a vote that was begun at `start`.
    fn validity(&self, start: Moment) -> Duration {
        self.usable().saturating_sub(start.own.elapsed())
    }

    async fn vote(&self, command: &Command) -> Votes {
        let asked = self.nodes.iter().map(|node| node.call(command, self.limit));
        let mut votes = Votes::default();
        for answer in join_all(asked).await {
            match answer {
                Ok(Value::Nil | Value::Integer(0)) => votes.no += 1,
                Ok(_) => votes.yes += 1,
                Err(error) => {
                    if error.is_definite() {
                        votes.failed += 1;
                    } else {
                        votes.unknown += 1;
                    }
                    votes.why.get_or_insert(error);
                }
            }
        }
        votes
    }

    async fn extend(&self, command: &Command) -> Renewed {
        let start = Moment::now();
        let votes = self.vote(command).await;
        if votes.yes >= self.quorum() && !self.validity(start).is_zero() {
            Renewed::For(start, self.usable())
        } else if self.nodes.len() - votes.no < self.quorum() {
            Renewed::Lost(format!("{} nodes do not have the key any more", votes.no))
        } else {
            Renewed::Unknown
        }
    }
}

struct Client {
    config: Arc<LockConfig>,
    nodes: Arc<Nodes>,
    belief: Arc<Belief>,
    number: u32,
    /// How often this client set its value.
    tries: u64,
    rng: ChaCha8Rng,
    held: Option<Held>,
}

/// A lock that this client took.
struct Held {
    release: Command,
    keep_alive: Option<KeepAlive>,
}

impl Client {
    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        let deadline = Instant::now() + self.config.acquire_timeout();
        let retry = Duration::from_millis(self.config.options.number(&RETRY));
        let key = format!("{LOCK_PREFIX}{lock}");
        let ttl_ms = self.config.ttl_ms.to_string();
        loop {
            self.tries += 1;
            // Nobody else has this value: numbers of clients are not used again.
            let value = format!("client-{}-{}", self.number, self.tries);
            let release = Command::script(&RELEASE, &[&key], &[&value]);
            let take = Command::write("SET", &["SET", &key, &value, "NX", "PX", &ttl_ms]);
            let start = Moment::now();
            let votes = self.nodes.vote(&take).await;
            if votes.yes >= self.nodes.quorum() && !self.nodes.validity(start).is_zero() {
                self.belief.granted(start, self.nodes.usable());
                let renew = Command::script(&RENEW, &[&key], &[&value, &ttl_ms]);
                let keep_alive = self.config.keep_alive.then(|| self.keep_alive(renew));
                self.held = Some(Held {
                    release,
                    keep_alive,
                });
                return Reply::Ok(Grant::default());
            }
            // Also where it was not taken as far as is known: the answer may have been lost.
            self.nodes.vote(&release).await;
            let pause = jittered(retry, &mut self.rng);
            if Instant::now() + pause >= deadline {
                // However many nodes still have the key: without a quorum it is nobody's lock.
                return Reply::fail("no-quorum", self.describe(&votes));
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn describe(&self, votes: &Votes) -> String {
        let why = votes.why.as_ref();
        let why = why.map_or_else(String::new, |error| format!("; {error}"));
        format!(
            "{} of {} nodes took it after {} ms, {} have another's{why}",
            votes.yes,
            self.nodes.nodes.len(),
            self.config.acquire_timeout_ms,
            votes.no
        )
    }

    fn keep_alive(&self, renew: Command) -> KeepAlive {
        let nodes = Arc::clone(&self.nodes);
        KeepAlive::start(Arc::clone(&self.belief), self.nodes.ttl, move || {
            let (nodes, renew) = (Arc::clone(&nodes), renew.clone());
            async move { nodes.extend(&renew).await }
        })
    }

    async fn release(&mut self) -> Reply<()> {
        let Some(mut held) = self.held.take() else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        held.keep_alive = None;
        self.belief.cleared();
        let votes = self.nodes.vote(&held.release).await;
        let quorum = self.nodes.quorum();
        if votes.yes >= quorum {
            return Reply::Ok(());
        }
        let text = format!(
            "{} of {} nodes had the key, {} did not",
            votes.yes,
            self.nodes.nodes.len(),
            votes.no
        );
        if votes.yes + votes.unknown >= quorum {
            Reply::info("no-quorum", text)
        } else {
            Reply::fail("not-held", text)
        }
    }
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if self.held.is_some() {
                // If it fails, the keys expire by themselves.
                self.release().await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::Options;

    fn asked(
        nodes: u32,
        ttl_ms: u64,
        topology: &str,
        options: &[(&str, &str)],
    ) -> Result<(), String> {
        let options = Options::from(options);
        let cluster = Options::from(&[("topology", topology)][..]);
        check(&LockAsk {
            nodes,
            ttl_ms,
            keep_alive: true,
            discipline: Discipline::Ignore,
            options: &options,
            cluster: &cluster,
        })
    }

    #[test]
    fn what_redlock_cannot_live_on_is_refused() {
        assert_eq!(asked(5, 1_000, "independent", &[]), Ok(()));
        for (asked, expected) in [
            (asked(5, 1_000, "sentinel", &[]), "\"independent\""),
            (
                asked(1, 1_000, "independent", &[]),
                "an odd number of nodes, 3 at least",
            ),
            (asked(2, 1_000, "independent", &[]), "and not 2"),
            (asked(4, 1_000, "independent", &[]), "and not 4"),
            (asked(3, 52, "independent", &[]), "a TTL that outlasts"),
            (
                asked(3, 1_000, "independent", &[("node_timeout", "990")]),
                "and not 1000 ms",
            ),
        ] {
            let why = asked.expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }
}
