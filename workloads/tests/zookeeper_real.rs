//! The ZooKeeper lock, resource, session and observer against real servers on loopback, one for each version
//! found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use checkers::history::LeasePhase;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use workloads::belief::Belief;
use workloads::lock::{Grant, LockConfig};
use workloads::option::Options;
use workloads::resource::{Resource, Write};
use workloads::zookeeper::{LOCK_ROOT, LockSeen, Session, SessionConfig, Told, watch_locks};

#[path = "zookeeper_real/errors.rs"]
mod errors;
#[path = "zookeeper_real/proxy.rs"]
mod proxy;
mod real;
#[path = "zookeeper_real/server.rs"]
mod server;

use proxy::Proxy;
use real::clients::{
    Believer, assert_tokens_grow, connect, exclude_each_other, fail_code, info_code, numbered, ok,
    registers_of,
};
use server::{LONGEST_SESSION_MS, Server, TICK_MS, on_each_version};

const LOCK: &str = "zookeeper-lock";
const LIMIT: Duration = Duration::from_secs(15);

fn config(server: &Server, ttl_ms: u64, options: &[(&str, &str)]) -> LockConfig {
    LockConfig {
        endpoint: Some(server.endpoint),
        version: server.version.clone(),
        ttl_ms,
        keep_alive: true,
        request_timeout_ms: 15_000,
        acquire_timeout_ms: 30_000,
        options: Options::from(options),
        ..LockConfig::default()
    }
}

/// A logical client and its belief.
async fn client(config: LockConfig) -> Believer {
    real::clients::client(LOCK, config).await
}

async fn registers(server: &Server) -> Arc<dyn Resource> {
    registers_of("zookeeper", server.endpoint, 5_000).await
}

async fn session(server: &Server, timeout_ms: u64, told: Told) -> (Session, Arc<Belief>) {
    let belief = Arc::new(Belief::new());
    let config = SessionConfig {
        endpoint: server.endpoint,
        timeout: Duration::from_millis(timeout_ms),
        keep_alive: true,
        told,
    };
    let session = Session::open(config, Arc::clone(&belief), LIMIT).await;
    (session.expect("a session"), belief)
}

/// The nodes in the queue of a lock, by name.
async fn queue(session: &Session, lock: &str) -> Vec<String> {
    let mut names = session
        .children(&format!("{LOCK_ROOT}/{lock}"), false, LIMIT)
        .await
        .expect("the lock's node");
    names.sort();
    names
}

/// Waits until so many nodes are in the queue.
async fn until_queued(session: &Session, lock: &str, count: usize) {
    let start = Instant::now();
    loop {
        let found = session
            .children(&format!("{LOCK_ROOT}/{lock}"), false, LIMIT)
            .await;
        if found.is_ok_and(|names| names.len() == count) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "never {count} in the queue");
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn five_clients_exclude_each_other_tokens_grow_and_each_release_wakes_one() {
    on_each_version(|server| async move {
        for options in [&[][..], &[("node_names", "curator")]] {
            let connection = connect(LOCK, config(&server, 4_000, options)).await;
            let clients = (0..5).map(|number| numbered(&*connection, number));
            let taken = exclude_each_other(clients, "l0/x", 6).await;
            assert_tokens_grow(&taken, 30);
            let wakes = taken.iter().map(|taken| taken.wakes.expect("counted"));
            let wakes: u64 = wakes.sum();
            assert!((1..=29).contains(&wakes), "{wakes} wake-ups");
        }
    });
}

/// One holder and some waiters; the holder releases: how often each waiter was woken until all were served.
async fn wakes_of_three(server: &Server, lock: &str, options: &[(&str, &str)]) -> Vec<u64> {
    let (look, _) = session(server, 8_000, Told::Expired).await;
    let (mut holder, _) = client(config(server, 8_000, options)).await;
    ok(holder.acquire(lock).await);
    let mut waiters = Vec::new();
    for place in 2..=4 {
        let (mut waiter, _) = client(config(server, 8_000, options)).await;
        let name = lock.to_owned();
        waiters.push(tokio::spawn(async move {
            ok(waiter.acquire(&name).await);
            let wakes = waiter.wakes().expect("counted");
            ok(waiter.release(&name).await);
            wakes
        }));
        until_queued(&look, lock, place).await;
    }
    // The last one looks once more after it has entered the queue.
    sleep(Duration::from_millis(200)).await;
    ok(holder.release(lock).await);
    let wakes = join_all(waiters).await;
    wakes
        .into_iter()
        .map(|wakes| wakes.expect("served"))
        .collect()
}

#[test]
fn a_release_wakes_one_waiter_of_the_recipe_and_every_waiter_of_a_herd() {
    on_each_version(|server| async move {
        assert_eq!(wakes_of_three(&server, "recipe", &[]).await, [1, 1, 1]);
        let herd = wakes_of_three(&server, "herd", &[("waiters", "herd")]).await;
        // Changes that come while a waiter looks wake it once, so that six is not certain.
        assert!(herd.iter().sum::<u64>() > 3, "{herd:?}");
    });
}

/// The node in the middle of a queue of three is deleted, as by the crash of its owner.
async fn lose_the_middle(server: &Server, lock: &str, options: &[(&str, &str)]) -> Option<Grant> {
    let (look, _) = session(server, 8_000, Told::Expired).await;
    let (mut holder, _) = client(config(server, 8_000, options)).await;
    ok(holder.acquire(lock).await);
    let (mut middle, _) = client(config(server, 8_000, options)).await;
    let (mut last, _) = client(config(server, 8_000, options)).await;
    let name = lock.to_owned();
    let middle = tokio::spawn(async move { middle.acquire(&name).await });
    until_queued(&look, lock, 2).await;
    let (got, got_it) = tokio::sync::oneshot::channel();
    let name = lock.to_owned();
    tokio::spawn(async move {
        let _ = got.send(ok(last.acquire(&name).await));
    });
    until_queued(&look, lock, 3).await;
    sleep(Duration::from_millis(200)).await;
    let path = format!("{LOCK_ROOT}/{lock}/{}", queue(&look, lock).await[1]);
    assert!(look.delete(&path, LIMIT).await.expect("deleted"));
    let early = timeout(Duration::from_millis(700), got_it).await;
    ok(holder.release(lock).await);
    middle.abort();
    early.ok().map(|grant| grant.expect("it goes on"))
}

#[test]
fn a_waiter_behind_a_crashed_one_looks_again_before_it_believes() {
    on_each_version(|server| async move {
        assert_eq!(lose_the_middle(&server, "careful", &[]).await, None);
        let blind = lose_the_middle(&server, "blind", &[("look_again", "false")]).await;
        assert!(blind.is_some(), "it takes the lock beside its holder");
    });
}

#[test]
fn the_old_write_lock_ordering_lets_a_lower_session_in() {
    on_each_version(|server| async move {
        for (ordering, two_hold) in [("session-first", true), ("sequence", false)] {
            let options = [("node_names", "session"), ("ordering", ordering)];
            // The session that is opened first has the lower number, and asks later.
            let (mut low, _) = client(config(&server, 8_000, &options)).await;
            ok(low.acquire("other").await);
            ok(low.release("other").await);
            let (mut high, _) = client(config(&server, 8_000, &options)).await;
            ok(high.acquire(ordering).await);
            let second = timeout(Duration::from_millis(700), low.acquire(ordering)).await;
            assert_eq!(second.is_ok(), two_hold, "{ordering}: {second:?}");
        }
    });
}

#[test]
fn an_expired_session_is_told_on_the_next_connection_and_guards_the_resource() {
    on_each_version(|server| async move {
        let registers = registers(&server).await;
        let proxy = Proxy::to(server.endpoint).await;
        let mut through = config(&server, 1_500, &[]);
        through.endpoint = Some(proxy.endpoint);
        let (mut client, belief) = client(through).await;
        let grant = ok(client.acquire("g").await);
        let guard = grant.guard.clone();
        let write = |elements: &'static [u64], guarded: bool| Write {
            key: "g/0",
            op: 0,
            elements,
            token: grant.token,
            guard: guard.as_ref().filter(|_| guarded),
        };
        assert_eq!(
            ok(registers.read("g/0", None, None).await),
            Default::default()
        );
        // Kept alive, the lock outlives its timeout, and the client knows when it was renewed.
        let granted_ns = belief.renewed_ns().expect("granted");
        sleep(Duration::from_millis(2_500)).await;
        let first = ok(registers.write(write(&[1], true)).await);
        assert!(belief.renewed_ns().expect("renewed") > granted_ns + 1_000_000_000);
        assert!(belief.told_lost().is_none());
        let read = ok(registers.read("g/0", None, None).await);
        assert_eq!((read.version, read.elements), (first, vec![1]));

        // Cut off for longer than the timeout.
        proxy.cut();
        sleep(Duration::from_millis(3_000)).await;
        assert!(belief.told_lost().is_none(), "nobody could tell it");
        proxy.heal();
        let (_, why) = timeout(LIMIT, belief.until_told_lost())
            .await
            .expect("told in time");
        assert_eq!(why, "session expired");
        assert_eq!(
            fail_code(registers.write(write(&[1, 2], true)).await),
            "guard-failed"
        );
        let second = ok(registers.write(write(&[1, 3], false)).await);
        assert!(second > first);
        assert_eq!(ok(registers.read("g/0", None, None).await).elements, [1, 3]);

        // The loser can go on: with a new session and a greater token.
        assert_eq!(fail_code(client.release("g").await), "session-expired");
        assert!(ok(client.acquire("g").await).token > grant.token);
        assert!(belief.told_lost().is_none());
        client.close().await;
    });
}

#[test]
fn when_a_holder_is_told_depends_on_whom_it_believes() {
    on_each_version(|mut server| async move {
        let options = |told: &'static str| [("told", told)];
        let (mut doubter, doubt) = client(config(&server, 2_000, &options("suspended"))).await;
        let (mut curator, lost) = client(config(&server, 2_000, &options("lost"))).await;
        let (mut patient, expired) = client(config(&server, 8_000, &options("expired"))).await;
        ok(doubter.acquire("doubter").await);
        ok(curator.acquire("curator").await);
        ok(patient.acquire("patient").await);
        server.kill();
        let killed = Instant::now();
        let (_, why) = timeout(LIMIT, doubt.until_told_lost()).await.expect("told");
        assert!(why.starts_with("SUSPENDED"), "{why}");
        assert!(killed.elapsed() < Duration::from_millis(1_500));
        let (_, why) = timeout(LIMIT, lost.until_told_lost()).await.expect("told");
        assert!(why.starts_with("LOST"), "{why}");
        assert!(killed.elapsed() >= Duration::from_millis(1_900));
        assert!(expired.told_lost().is_none());

        // The session of the third lived on; its lock is still its own.
        server.restart().await;
        ok(patient.release("patient").await);
        assert!(expired.told_lost().is_none());
        // A new acquire starts from a clean sheet, whatever was suspected before.
        ok(curator.acquire("curator").await);
        assert!(lost.told_lost().is_none());
    });
}

#[test]
fn whoever_gives_up_waiting_leaves_no_trace_and_nor_does_a_session_that_nobody_renews() {
    on_each_version(|server| async move {
        let (mut holder, _) = client(config(&server, 8_000, &[])).await;
        ok(holder.acquire("t").await);
        let mut impatient = config(&server, 8_000, &[]);
        impatient.acquire_timeout_ms = 300;
        let (mut waiter, _) = client(impatient).await;
        assert_eq!(fail_code(waiter.acquire("t").await), "timeout");
        let (look, _) = session(&server, 8_000, Told::Expired).await;
        assert_eq!(queue(&look, "t").await.len(), 1);
        ok(holder.release("t").await);
        assert!(queue(&look, "t").await.is_empty());

        let mut unrenewed = config(&server, 1_000, &[]);
        unrenewed.keep_alive = false;
        let (mut client, belief) = client(unrenewed).await;
        ok(client.acquire("t").await);
        let (_, why) = timeout(LIMIT, belief.until_told_lost())
            .await
            .expect("told in time");
        assert_eq!(why, "session expired");
        assert!(queue(&look, "t").await.is_empty());
    });
}

#[test]
fn the_observer_sees_places_come_and_go_across_a_restart() {
    on_each_version(|mut server| async move {
        let (seen, mut events) = tokio::sync::mpsc::unbounded_channel::<LockSeen>();
        let endpoint = server.endpoint;
        tokio::spawn(async move {
            let sink = move |event| drop(seen.send(event));
            let ended = watch_locks(endpoint, Duration::from_secs(8), LIMIT, &sink).await;
            panic!("the observer ended: {ended:?}");
        });
        for round in 0..2 {
            let (mut client, _) = client(config(&server, 8_000, &[])).await;
            let token = ok(client.acquire("o/1").await).token.expect("a token");
            let granted = timeout(LIMIT, events.recv()).await.expect("seen").unwrap();
            // The node shows how the lock is called there.
            assert_eq!((granted.lock.as_str(), granted.token), ("o:1", token));
            assert_eq!(granted.phase, LeasePhase::Granted, "round {round}");
            ok(client.release("o/1").await);
            let ended = timeout(LIMIT, events.recv()).await.expect("seen").unwrap();
            assert_eq!((ended.token, ended.phase), (token, LeasePhase::Ended));
            assert!(ended.at_ns > granted.at_ns && ended.session == granted.session);
            client.close().await;
            if round == 0 {
                server.kill();
                server.restart().await;
            }
        }
    });
}

#[test]
fn timeouts_are_forced_between_two_ticks_and_the_servers_longest() {
    on_each_version(|server| async move {
        let expected = [
            (1, 2 * TICK_MS),
            (3 * TICK_MS, 3 * TICK_MS),
            (3_600_000, LONGEST_SESSION_MS),
        ];
        for (asked_ms, got_ms) in expected {
            let (session, _) = session(&server, asked_ms, Told::Expired).await;
            assert_eq!(
                session.timeout(),
                Duration::from_millis(got_ms),
                "asked for {asked_ms} ms"
            );
        }
    });
}
