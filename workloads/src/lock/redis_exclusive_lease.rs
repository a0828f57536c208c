//! `redis-exclusive-lease`: GitLab's general-purpose lock, `Gitlab::ExclusiveLease`
//! (gitlab-org/gitlab, `lib/gitlab/exclusive_lease.rb`, with `in_lock` of `exclusive_lease_helpers.rb`).
//!
//! `try_obtain` is `SET gitlab:exclusive_lease:<key> <uuid> NX EX <timeout>`, in whole seconds; `cancel` and `renew`
//! compare the uuid in a script. It hands its caller nothing that a resource could compare: the lock is only as good
//! as the work is short. Whoever waits sleeps and tries again, as `in_lock` does. `renew` is the caller's
//! business; here it is called every third of the timeout when leases are kept alive.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use tokio::time::Instant;

use super::redis_lock::released;
use crate::belief::{Belief, Moment};
use crate::discipline::Discipline;
use crate::lock::{Grant, Guard, LockAsk, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::{OptionKind, OptionSpec};
use crate::redis::{
    Command, KeepAlive, RELEASE, RENEW_SECONDS, RedisError, Route, Topology, Value, jittered,
    retry_option, route_for_lock,
};
use crate::reply::Reply;

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "redis-exclusive-lease",
    summary: "GitLab's ExclusiveLease: SET NX EX with a uuid, cancelled and renewed by scripts that compare it.",
    backend: "redis",
    token: "none",
    leased: true,
    disciplines: &[
        Discipline::Ignore,
        Discipline::Session,
        Discipline::Deadline,
        Discipline::Txn,
    ],
    options: &[SAME_UUID, RETRY],
    check,
    connect,
};

const SAME_UUID: OptionSpec = OptionSpec {
    name: "same_uuid",
    kind: OptionKind::Flag,
    default: "false",
    about: "Whether the holder asks `same_uuid?` right after it obtained the lease, and reports one that was gone.",
};
const RETRY: OptionSpec = retry_option("50");

fn check(ask: &LockAsk<'_>) -> Result<(), String> {
    Topology::of(ask.cluster).has_one_primary()?;
    if ask.ttl_ms == 0 || !ask.ttl_ms.is_multiple_of(1000) {
        return Err(format!(
            "a TTL of whole seconds, since the lease is set with EX, and not {} ms",
            ask.ttl_ms
        ));
    }
    Ok(())
}

/// `PREFIX` of the class.
const PREFIX: &str = "gitlab:exclusive_lease:";

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        let route = Arc::new(route_for_lock(SPEC.name, &config).await?);
        Ok(Box::new(Connected {
            retry: Duration::from_millis(config.options.number(&RETRY)),
            looks: config.options.flag(&SAME_UUID),
            config: Arc::new(config),
            route,
        }) as Box<dyn LockConnection>)
    }
    .boxed()
}

struct Connected {
    config: Arc<LockConfig>,
    route: Arc<Route>,
    retry: Duration,
    looks: bool,
}

impl LockConnection for Connected {
    fn client(&self, client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        Box::new(Client {
            config: Arc::clone(&self.config),
            route: Arc::clone(&self.route),
            retry: self.retry,
            looks: self.looks,
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
    route: Arc<Route>,
    retry: Duration,
    looks: bool,
    belief: Arc<Belief>,
    number: u32,
    acquires: u64,
    rng: ChaCha8Rng,
    held: Option<Held>,
}

/// A lease that this client obtained.
struct Held {
    key: String,
    uuid: String,
    keep_alive: Option<KeepAlive>,
}

impl Client {
    fn limit(&self) -> Duration {
        self.config.request_timeout()
    }

    /// Ruby: `in_lock`, up to its yield.
    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        self.acquires += 1;
        let deadline = Instant::now() + self.config.acquire_timeout();
        let key = format!("{PREFIX}{lock}");
        // As unique as a uuid: numbers of clients are not used again.
        let uuid = format!("client-{}-{}", self.number, self.acquires);
        let sent = loop {
            let sent = Moment::now();
            match self.try_obtain(&key, &uuid).await {
                Ok(true) => break sent,
                Ok(false) => {}
                Err(error) => return error.reply(),
            }
            let pause = jittered(self.retry, &mut self.rng);
            if Instant::now() + pause >= deadline {
                // Ruby: FailedToObtainLockError.
                let text = format!("still taken after {} ms", self.config.acquire_timeout_ms);
                return Reply::fail("timeout", text);
            }
            tokio::time::sleep(pause).await;
        };
        self.belief.granted(sent, self.config.ttl());
        let gone = self.looks && self.is_gone(&key, &uuid).await;
        let keep_alive = self.config.keep_alive.then(|| self.keep_alive(&key, &uuid));
        let guard = Guard::Redis {
            key: key.clone(),
            value: uuid.clone(),
        };
        self.held = Some(Held {
            key,
            uuid,
            keep_alive,
        });
        Reply::Ok(Grant {
            token: None,
            dead_on_arrival: gone,
            guard: Some(guard),
        })
    }

    /// The timeout in the unit of `EX`.
    fn seconds(&self) -> String {
        (self.config.ttl_ms / 1000).to_string()
    }

    /// Ruby: `try_obtain`.
    async fn try_obtain(&self, key: &str, uuid: &str) -> Result<bool, RedisError> {
        let words = ["SET", key, uuid, "NX", "EX", &self.seconds()];
        let command = Command::write("SET", &words);
        let answer = self.route.call(&command, self.limit()).await?;
        Ok(answer != Value::Nil)
    }

    /// Ruby: not `same_uuid?`. An error leaves the question open.
    async fn is_gone(&self, key: &str, uuid: &str) -> bool {
        let command = Command::read("GET", &["GET", key]);
        let answer = self.route.call(&command, self.limit()).await;
        answer.is_ok_and(|answer| answer.text() != Some(uuid))
    }

    /// Ruby: `renew`, again and again.
    fn keep_alive(&self, key: &str, uuid: &str) -> KeepAlive {
        let command = Command::script(&RENEW_SECONDS, &[key], &[uuid, &self.seconds()]);
        let (ttl, limit) = (self.config.ttl(), self.limit());
        KeepAlive::of_key(&self.belief, &self.route, command, ttl, limit)
    }

    /// Ruby: `cancel`.
    async fn release(&mut self) -> Reply<()> {
        let Some(mut held) = self.held.take() else {
            return Reply::fail("not-held", "this client holds no lease");
        };
        held.keep_alive = None;
        self.belief.cleared();
        let command = Command::script(&RELEASE, &[&held.key], &[&held.uuid]);
        released(&self.route, &command, self.limit()).await
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
    use crate::option::Options;

    #[test]
    fn only_whole_seconds_can_be_asked_for() {
        let asked = |ttl_ms| {
            check(&LockAsk {
                nodes: 1,
                ttl_ms,
                keep_alive: false,
                discipline: Discipline::Ignore,
                options: &Options::default(),
                cluster: &Options::default(),
            })
        };
        assert_eq!(asked(2_000), Ok(()));
        for bad in [0, 500, 1_500] {
            assert!(
                asked(bad).is_err_and(|why| why.contains("whole seconds")),
                "{bad}"
            );
        }
    }
}
