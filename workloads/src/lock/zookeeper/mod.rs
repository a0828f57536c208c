//! `zookeeper-lock`: the lock recipe of ZooKeeper's documentation (`recipes.md`, "Locks"), and on request the
//! ways in which it is known to be done otherwise.
//!
//! Whoever wants the lock creates an ephemeral sequential node below the lock's own; the lowest number holds
//! it, and each waiter watches the node before its own. Each logical client has a session of its own, as a
//! process has that uses the library: the session is the lease. It keeps one session for all its acquires
//! and opens a new one when the old one is over.

mod client;
mod names;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use self::client::Client;
use self::names::{NodeNames, Ordering};
use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::lock::{LockAsk, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::{OptionKind, OptionSpec, Options};
use crate::zookeeper::{Told, status};

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "zookeeper-lock",
    summary: "ZooKeeper's lock recipe: ephemeral sequential nodes, each waiter watches the one before it.",
    backend: "zookeeper",
    token: "czxid of the own node",
    leased: true,
    disciplines: Discipline::ALL,
    options: &[WAITERS, ORDERING, NODE_NAMES, LOOK_AGAIN, TOLD],
    check,
    connect,
};

const WAITERS: OptionSpec = OptionSpec {
    name: "waiters",
    kind: OptionKind::Word(&["predecessor", "herd"]),
    default: "predecessor",
    about: "What a waiter watches: the node before its own, or all nodes of the queue, so that every change wakes \
            every waiter.",
};

const ORDERING: OptionSpec = OptionSpec {
    name: "ordering",
    kind: OptionKind::Word(&["sequence", "session-first"]),
    default: "sequence",
    about: "Who is first in the queue: the lowest sequence number, or the lowest session and then number, as \
            WriteLock had it before ZOOKEEPER-2931 (needs node_names = \"session\").",
};

const NODE_NAMES: OptionSpec = OptionSpec {
    name: "node_names",
    kind: OptionKind::Word(&["recipe", "session", "curator"]),
    default: "recipe",
    about: "Names of the nodes: `lock-NUMBER`, WriteLock's `x-SESSION-NUMBER`, or Curator's \
            `_c_ID-lock-NUMBER`, by which a node is found again whose creation was not answered.",
};

const LOOK_AGAIN: OptionSpec = OptionSpec {
    name: "look_again",
    kind: OptionKind::Flag,
    default: "true",
    about: "Whether a waiter that is woken looks at the queue again, as the recipe says; without, it takes the \
            lock when the node before its own has gone, whatever became of the others.",
};

const TOLD: OptionSpec = OptionSpec {
    name: "told",
    kind: OptionKind::Word(&["expired", "lost", "suspended"]),
    default: "expired",
    about: "When a holder is told that its lock is lost: when a server says that the session has expired, also \
            when there was no connection for the session's timeout (Curator's LOST), or as soon as the \
            connection is gone (Curator's SUSPENDED).",
};

/// The recipe that the options ask for.
#[derive(Clone, Copy, Debug)]
struct Recipe {
    herd: bool,
    ordering: Ordering,
    names: NodeNames,
    look_again: bool,
    told: Told,
}

impl Recipe {
    fn of(options: &Options) -> Self {
        Self {
            herd: options.text(&WAITERS) == "herd",
            ordering: match options.text(&ORDERING) {
                "session-first" => Ordering::SessionFirst,
                _ => Ordering::Sequence,
            },
            names: match options.text(&NODE_NAMES) {
                "session" => NodeNames::Session,
                "curator" => NodeNames::Curator,
                _ => NodeNames::Recipe,
            },
            look_again: options.flag(&LOOK_AGAIN),
            told: match options.text(&TOLD) {
                "lost" => Told::Lost,
                "suspended" => Told::Suspended,
                _ => Told::Expired,
            },
        }
    }
}

fn check(ask: &LockAsk<'_>) -> Result<(), String> {
    let recipe = Recipe::of(ask.options);
    if recipe.ordering == Ordering::SessionFirst && recipe.names != NodeNames::Session {
        return Err("node_names = \"session\" with ordering = \"session-first\"".to_owned());
    }
    if recipe.herd && !recipe.look_again {
        return Err("look_again = true with waiters = \"herd\": any change wakes them".to_owned());
    }
    Ok(())
}

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        let endpoint = config.endpoint.ok_or_else(|| {
            format!(
                "lock `{}` expects the address of a ZooKeeper server, found none: give its cluster at least one node",
                SPEC.name
            )
        })?;
        status(endpoint, config.request_timeout())
            .await
            .map_err(|error| {
                format!(
                    "lock `{}` expects a ZooKeeper server that serves at {endpoint}: {error}; see the node's log",
                    SPEC.name
                )
            })?;
        Ok(Box::new(Connection {
            endpoint,
            recipe: Recipe::of(&config.options),
            config: Arc::new(config),
        }) as Box<dyn LockConnection>)
    }
    .boxed()
}

/// Nothing is shared: each logical client has a session of its own.
struct Connection {
    endpoint: SocketAddr,
    recipe: Recipe,
    config: Arc<LockConfig>,
}

impl LockConnection for Connection {
    fn client(&self, _client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        let config = Arc::clone(&self.config);
        Box::new(Client::new(self.endpoint, self.recipe, config, belief))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(options: &[(&str, &str)]) -> Result<(), String> {
        let options = Options::from(options);
        options.check(SPEC.options).expect("options that there are");
        check(&LockAsk {
            nodes: 3,
            ttl_ms: 2000,
            keep_alive: true,
            discipline: Discipline::Ignore,
            options: &options,
            cluster: &Options::default(),
        })
    }

    #[test]
    fn options_that_make_no_recipe_are_refused() {
        assert_eq!(ask(&[]), Ok(()));
        let session_first = ("ordering", "session-first");
        assert_eq!(ask(&[session_first, ("node_names", "session")]), Ok(()));
        assert!(ask(&[session_first]).unwrap_err().contains("node_names"));
        let blind_herd = [("waiters", "herd"), ("look_again", "false")];
        assert!(ask(&blind_herd).unwrap_err().contains("look_again"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_missing_node_is_named() {
        let refused = connect(LockConfig::default())
            .await
            .err()
            .expect("no node to talk to");
        assert!(
            refused.contains("zookeeper-lock") && refused.contains("found none"),
            "{refused}"
        );
    }
}
