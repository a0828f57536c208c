//! Clients of the locks and resources of a real server, what they were answered, and the test that every lock
//! must pass: nobody meets another inside.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;
use workloads::belief::Belief;
use workloads::lock::{self, Grant, LockClient, LockConfig, LockConnection};
use workloads::reply::Reply;
use workloads::resource::{self, Resource, ResourceConfig};

pub(crate) async fn connect(name: &str, config: LockConfig) -> Box<dyn LockConnection> {
    (lock::find(name).expect("registered").connect)(config)
        .await
        .expect("connected")
}

/// A logical client, and its belief.
pub(crate) type Believer = (Box<dyn LockClient>, Arc<Belief>);

/// A logical client on a connection of its own.
pub(crate) async fn client(name: &str, config: LockConfig) -> Believer {
    numbered(&*connect(name, config).await, 0)
}

/// One of the logical clients of a connection.
pub(crate) fn numbered(connection: &dyn LockConnection, number: u32) -> Believer {
    let belief = Arc::new(Belief::new());
    (connection.client(number, Arc::clone(&belief)), belief)
}

/// The resource of a backend.
pub(crate) async fn registers_of(
    backend: &str,
    endpoint: SocketAddr,
    request_timeout_ms: u64,
) -> Arc<dyn Resource> {
    let config = ResourceConfig {
        endpoint: Some(endpoint),
        request_timeout_ms,
        ..ResourceConfig::default()
    };
    (resource::find(backend).expect("registered").connect)(config)
        .await
        .expect("connected")
}

#[track_caller]
pub(crate) fn ok<T: std::fmt::Debug>(reply: Reply<T>) -> T {
    match reply {
        Reply::Ok(value) => value,
        other => panic!("expected ok, found {other:?}"),
    }
}

#[track_caller]
pub(crate) fn fail_code<T: std::fmt::Debug>(reply: Reply<T>) -> &'static str {
    match reply {
        Reply::Fail(reason) => reason.code,
        other => panic!("expected fail, found {other:?}"),
    }
}

#[track_caller]
pub(crate) fn info_code<T: std::fmt::Debug>(reply: Reply<T>) -> &'static str {
    match reply {
        Reply::Info(reason) => reason.code,
        other => panic!("expected info, found {other:?}"),
    }
}

/// A lock as one of several clients got it.
pub(crate) struct Taken {
    pub(crate) grant: Grant,
    /// How often the client was woken while it waited, where that is known.
    pub(crate) wakes: Option<u64>,
}

/// Each client takes a lock so many times, and nobody ever meets another. Returns what they got, in its order.
pub(crate) async fn exclude_each_other(
    clients: impl IntoIterator<Item = Believer>,
    lock: &str,
    rounds: u32,
) -> Vec<Taken> {
    let (inside, taken) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let clients = clients.into_iter().map(|(mut client, belief)| {
        let (inside, taken) = (&inside, &taken);
        async move {
            for _ in 0..rounds {
                let grant = ok(client.acquire(lock).await);
                let others = inside.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "{lock}: two holders");
                assert!(!grant.dead_on_arrival);
                // The end of an earlier lease must not touch what is known of this one.
                let deadline = belief.deadline().expect("a lease");
                assert!(deadline > Instant::now());
                let wakes = client.wakes();
                taken.lock().unwrap().push(Taken { grant, wakes });
                sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                ok(client.release(lock).await);
            }
            client.close().await;
        }
    });
    join_all(clients).await;
    taken.into_inner().unwrap()
}

/// Asserts that each of so many grants has a guard, and a greater token than the one before.
#[track_caller]
pub(crate) fn assert_tokens_grow(taken: &[Taken], count: usize) {
    assert!(taken.iter().all(|taken| taken.grant.guard.is_some()));
    let token = |taken: &Taken| taken.grant.token.expect("a token");
    let tokens: Vec<u64> = taken.iter().map(token).collect();
    assert_eq!(tokens.len(), count);
    let grow = tokens.is_sorted_by(|earlier, later| earlier < later);
    assert!(grow, "{tokens:?}");
}
