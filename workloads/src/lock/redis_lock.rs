//! `redis-lock`: the lock that Redis's own documentation describes for a single primary ("Distributed Locks with
//! Redis", "Correct implementation with a single instance"; the command reference of `SET`).
//!
//! `SET key value NX PX ttl` takes it, a script that compares the value deletes it, and another one renews it
//! every third of the TTL. Redis has no queue: whoever waits tries again after a while with jitter. With Sentinel
//! the commands go to whatever primary the Sentinels name. What must not be in here: a second try of a command
//! whose outcome is unknown, or any look at the lock before it is used.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use tokio::time::Instant;

use crate::belief::{Belief, Moment};
use crate::discipline::Discipline;
use crate::lock::{Grant, Guard, LockAsk, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::{OptionKind, OptionSpec, Options};
use crate::redis::{
    ACQUIRE_WITH_TOKEN, Command, Connection, KeepAlive, LOCK_PREFIX, RELEASE, RENEW, RedisError,
    Route, TOKEN_PREFIX, Topology, Value, jittered, retry_option, route_for_lock,
};
use crate::reply::{Reason, Reply};

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "redis-lock",
    summary: "SET NX PX with a value of one's own, deleted by a script that compares it.",
    backend: "redis",
    token: "none; with token = \"incr\" a counter in the same Redis",
    leased: true,
    disciplines: Discipline::ALL,
    options: &[RELEASE_BY, TOKEN, WAIT_REPLICAS, WAIT_TIMEOUT, RETRY],
    check,
    connect,
};

const RELEASE_BY: OptionSpec = OptionSpec {
    name: "release",
    kind: OptionKind::Word(&["script", "plain-del"]),
    default: "script",
    about: "How the lock is given back: deleted only if it is still ours, or deleted.",
};
const TOKEN: OptionSpec = OptionSpec {
    name: "token",
    kind: OptionKind::Word(&["none", "incr"]),
    default: "none",
    about: "Whether the script that takes the lock also counts the grants in the same Redis.",
};
const WAIT_REPLICAS: OptionSpec = OptionSpec {
    name: "wait_replicas",
    kind: OptionKind::Integer { min: 0, max: 16 },
    default: "0",
    about: "How many replicas must have the lock before its holder believes in it (WAIT).",
};
const WAIT_TIMEOUT: OptionSpec = OptionSpec {
    name: "wait_timeout",
    kind: OptionKind::Millis {
        min: 1,
        max: 60_000,
    },
    default: "100",
    about: "How long it waits for them.",
};
const RETRY: OptionSpec = retry_option("50");

fn check(ask: &LockAsk<'_>) -> Result<(), String> {
    let topology = Topology::of(ask.cluster);
    topology.has_one_primary()?;
    let replicas = match topology {
        Topology::Sentinel => u64::from(ask.nodes) - 1,
        _ => 0,
    };
    let wanted = ask.options.number(&WAIT_REPLICAS);
    if wanted > replicas {
        return Err(format!(
            "workload.options.wait_replicas to be at most {replicas}, the number of replicas, and not {wanted}"
        ));
    }
    if ask.discipline == Discipline::Token && ask.options.text(&TOKEN) == "none" {
        return Err(
            "workload.options.token = \"incr\" with the discipline `token`: the lock has no other token"
                .to_owned(),
        );
    }
    Ok(())
}

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        let settings = Settings::read(&config.options);
        let route = Arc::new(route_for_lock(SPEC.name, &config).await?);
        Ok(Box::new(Connected {
            config: Arc::new(config),
            settings,
            route,
        }) as Box<dyn LockConnection>)
    }
    .boxed()
}

/// The options, read.
#[derive(Clone, Copy, Debug)]
struct Settings {
    compares: bool,
    counts: bool,
    wait_replicas: u64,
    wait_timeout: Duration,
    retry: Duration,
}

impl Settings {
    fn read(options: &Options) -> Self {
        Self {
            compares: options.text(&RELEASE_BY) == "script",
            counts: options.text(&TOKEN) == "incr",
            wait_replicas: options.number(&WAIT_REPLICAS),
            wait_timeout: Duration::from_millis(options.number(&WAIT_TIMEOUT)),
            retry: Duration::from_millis(options.number(&RETRY)),
        }
    }
}

struct Connected {
    config: Arc<LockConfig>,
    settings: Settings,
    route: Arc<Route>,
}

impl LockConnection for Connected {
    fn client(&self, client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        // WAIT is about the writes of its own connection, and holds up whatever is sent after it.
        let route = if self.settings.wait_replicas > 0 {
            Arc::new(self.route.separate())
        } else {
            Arc::clone(&self.route)
        };
        Box::new(Client {
            config: Arc::clone(&self.config),
            settings: self.settings,
            route,
            belief,
            number: client,
            acquires: 0,
            rng: ChaCha8Rng::seed_from_u64(client.into()),
            held: None,
        })
    }
}

struct Client {
    config: Arc<LockConfig>,
    settings: Settings,
    route: Arc<Route>,
    belief: Arc<Belief>,
    number: u32,
    /// How often this client asked for a lock.
    acquires: u64,
    rng: ChaCha8Rng,
    held: Option<Held>,
}

/// A lock that this client took.
struct Held {
    key: String,
    value: String,
    /// Held for its drop, which ends the renewals; absent when the lock is not kept alive.
    keep_alive: Option<KeepAlive>,
}

impl Client {
    fn limit(&self) -> Duration {
        self.config.request_timeout()
    }

    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        self.acquires += 1;
        let deadline = Instant::now() + self.config.acquire_timeout();
        let key = format!("{LOCK_PREFIX}{lock}");
        // Nobody else has this value: numbers of clients are not used again.
        let value = format!("client-{}-{}", self.number, self.acquires);
        let take = self.take_command(lock, &key, &value);
        let (sent, connection, token) = loop {
            let sent = Moment::now();
            match self.take(&take).await {
                Ok((connection, Some(token))) => break (sent, connection, token),
                Ok((_, None)) => {}
                Err(error) => return error.reply(),
            }
            let pause = jittered(self.settings.retry, &mut self.rng);
            if Instant::now() + pause >= deadline {
                let text = format!("still taken after {} ms", self.config.acquire_timeout_ms);
                return Reply::fail("timeout", text);
            }
            tokio::time::sleep(pause).await;
        };
        if let Err(reason) = self.await_replicas(&connection).await {
            return self.give_back(&connection, &key, &value, reason).await;
        }
        self.belief.granted(sent, self.config.ttl());
        let keep_alive = self
            .config
            .keep_alive
            .then(|| self.keep_alive(&key, &value));
        let guard = Guard::Redis {
            key: key.clone(),
            value: value.clone(),
        };
        self.held = Some(Held {
            key,
            value,
            keep_alive,
        });
        Reply::Ok(Grant {
            token: token.number(),
            dead_on_arrival: false,
            guard: Some(guard),
        })
    }

    fn take_command(&self, lock: &str, key: &str, value: &str) -> Command {
        let ttl_ms = self.config.ttl_ms.to_string();
        if self.settings.counts {
            let counter = format!("{TOKEN_PREFIX}{lock}");
            Command::script(&ACQUIRE_WITH_TOKEN, &[key, &counter], &[value, &ttl_ms])
        } else {
            Command::write("SET", &["SET", key, value, "NX", "PX", &ttl_ms])
        }
    }

    /// One try: the connection that it was made on, and whether the lock is ours.
    async fn take(
        &self,
        command: &Command,
    ) -> Result<(Arc<Connection>, Option<Token>), RedisError> {
        let connection = self.route.connection().await?;
        let answer = connection.call(command, self.limit()).await?;
        let token = match &answer {
            Value::Nil => None,
            Value::Simple(_) => Some(Token::None),
            Value::Integer(count) => Some(Token::Counted(*count)),
            other => return Err(connection.malformed(command, other)),
        };
        Ok((connection, token))
    }

    /// Waits until enough replicas have what this connection wrote. It must be the same connection: on a fresh
    /// one there is nothing to wait for, and `WAIT` answers at once.
    async fn await_replicas(&self, connection: &Connection) -> Result<(), Reason> {
        let wanted = self.settings.wait_replicas;
        if wanted == 0 {
            return Ok(());
        }
        let (count, timeout) = (wanted.to_string(), self.settings.wait_timeout);
        let command = Command::read("WAIT", &["WAIT", &count, &timeout.as_millis().to_string()]);
        let answer = connection.call(&command, timeout + self.limit()).await;
        let reached = match answer {
            Ok(answer) => answer.integer().and_then(|count| u64::try_from(count).ok()),
            Err(error) => return Err(error.reason()),
        };
        match reached {
            Some(reached) if reached >= wanted => Ok(()),
            reached => {
                let reached = reached.unwrap_or(0);
                let text = format!(
                    "{reached} of {wanted} replicas have it after {} ms",
                    timeout.as_millis()
                );
                Err(Reason::new("not-replicated", text))
            }
        }
    }

    /// After a lock that was taken but may not be used. Only if it is gone is it certain that it was not taken.
    async fn give_back(
        &self,
        connection: &Connection,
        key: &str,
        value: &str,
        reason: Reason,
    ) -> Reply<Grant> {
        let release = Command::script(&RELEASE, &[key], &[value]);
        match connection.call(&release, self.limit()).await {
            Ok(_) => Reply::Fail(reason),
            Err(error) => Reply::info(
                reason.code,
                format!("{}; not given back: {}", reason.text, error.reason()),
            ),
        }
    }

    fn keep_alive(&self, key: &str, value: &str) -> KeepAlive {
        let command = Command::script(&RENEW, &[key], &[value, &self.config.ttl_ms.to_string()]);
        let (ttl, limit) = (self.config.ttl(), self.limit());
        KeepAlive::of_key(&self.belief, &self.route, command, ttl, limit)
    }

    async fn release(&mut self) -> Reply<()> {
        let Some(mut held) = self.held.take() else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        held.keep_alive = None;
        self.belief.cleared();
        let command = if self.settings.compares {
            Command::script(&RELEASE, &[&held.key], &[&held.value])
        } else {
            Command::write("DEL", &["DEL", &held.key])
        };
        released(&self.route, &command, self.limit()).await
    }
}

/// What a grant's token is.
#[derive(Clone, Copy, Debug)]
enum Token {
    None,
    Counted(i64),
}

impl Token {
    fn number(self) -> Option<u64> {
        match self {
            Token::None => None,
            Token::Counted(count) => u64::try_from(count).ok(),
        }
    }
}

/// Sends one release, which answers how many keys it deleted.
pub(super) async fn released(route: &Route, command: &Command, limit: Duration) -> Reply<()> {
    match route.call(command, limit).await {
        Ok(Value::Integer(0)) => Reply::fail("not-held", "the key was gone or another's"),
        Ok(_) => Reply::Ok(()),
        Err(error) => error.reply(),
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
                // If it fails, the key expires by itself.
                self.release().await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(
        nodes: u32,
        discipline: Discipline,
        topology: &str,
        options: &[(&str, &str)],
    ) -> Result<(), String> {
        let options = Options::from(options);
        let cluster = Options::from(&[("topology", topology)][..]);
        check(&LockAsk {
            nodes,
            ttl_ms: 1_000,
            keep_alive: true,
            discipline,
            options: &options,
            cluster: &cluster,
        })
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        let (ignore, token) = (Discipline::Ignore, Discipline::Token);
        assert_eq!(asked(1, token, "single", &[("token", "incr")]), Ok(()));
        assert_eq!(
            asked(3, ignore, "sentinel", &[("wait_replicas", "2")]),
            Ok(())
        );
        for (asked, expected) in [
            (
                asked(3, ignore, "independent", &[]),
                "or lock = \"redlock\"",
            ),
            (
                asked(3, ignore, "sentinel", &[("wait_replicas", "3")]),
                "at most 2",
            ),
            (
                asked(1, ignore, "single", &[("wait_replicas", "1")]),
                "at most 0",
            ),
            (asked(1, token, "single", &[]), "token = \"incr\""),
        ] {
            let why = asked.expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }
}
