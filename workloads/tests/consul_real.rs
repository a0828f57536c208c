//! The Consul locks, resource and observer against real Consul servers on loopback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use checkers::history::LeasePhase;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use workloads::consul::{ConsulClient, LOCK_PREFIX, LockSeen, LockWatch, Mode, Query, watch_locks};
use workloads::lock::{Grant, Guard, LockConfig};
use workloads::option::Options;
use workloads::resource::{Resource, Write};

#[path = "consul_real/errors.rs"]
mod errors;
mod real;
#[path = "consul_real/server.rs"]
mod server;

use real::clients::{
    assert_tokens_grow, client, exclude_each_other, fail_code, info_code, ok, registers_of,
};
use server::{Server, on_cluster};

const LOCKS: [&str; 2] = ["consul-lock", "consul-kv"];
const LIMIT: Duration = Duration::from_secs(3);

/// A lock without lock-delay, and further options.
fn config(server: &Server, ttl_ms: u64, options: &[(&str, &str)]) -> LockConfig {
    let own = [("lock-delay", "0"), ("retry", "50")];
    LockConfig {
        endpoint: Some(server.endpoint),
        version: "1.8.7".to_owned(),
        ttl_ms,
        keep_alive: true,
        request_timeout_ms: 3_000,
        acquire_timeout_ms: 15_000,
        options: Options::from(&[&own, options].concat()[..]),
        ..LockConfig::default()
    }
}

async fn consul(server: &Server) -> ConsulClient {
    ConsulClient::connect(server.endpoint, LIMIT)
        .await
        .expect("connected")
}

fn only(servers: Vec<Server>) -> Server {
    servers.into_iter().next().expect("one server")
}

fn session_of(grant: &Grant) -> String {
    match &grant.guard {
        Some(Guard::Consul { session, .. }) => session.clone(),
        other => panic!("expected a session, found {other:?}"),
    }
}

#[test]
fn five_clients_exclude_each_other_and_tokens_grow() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        for (name, token) in [
            ("consul-lock", "modify-index"),
            ("consul-lock", "lock-index"),
            ("consul-kv", "modify-index"),
        ] {
            let lock = format!("{name}-{token}");
            let config = config(&server, 2_000, &[("token", token)]);
            let clients = (0..5).map(|_| client(name, config.clone()));
            let taken = exclude_each_other(join_all(clients).await, &lock, 5).await;
            assert_tokens_grow(&taken, 25);
        }
    });
}

#[test]
fn a_session_lives_for_twice_its_ttl_and_the_lock_delay_follows() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        for name in LOCKS {
            for (ttl_ms, delay_ms) in [(400, 0), (400, 900)] {
                let delay = delay_ms.to_string();
                let options = [("lock-delay", delay.as_str())];
                let mut silent = config(&server, ttl_ms, &options);
                silent.keep_alive = false;
                let lock = format!("{name}-{delay}");
                let (mut holder, belief) = client(name, silent).await;
                let start = Instant::now();
                ok(holder.acquire(&lock).await);
                let (mut next, _) = client(name, config(&server, 60_000, &options)).await;
                ok(next.acquire(&lock).await);
                let least = Duration::from_millis(2 * ttl_ms + delay_ms);
                assert!(
                    start.elapsed() >= least,
                    "{lock}: {:?} < {least:?}",
                    start.elapsed()
                );
                // The Go client's monitor hears of it; without one and without renewals nobody does.
                let told = timeout(Duration::from_millis(500), belief.until_told_lost()).await;
                assert_eq!(told.is_ok(), name == "consul-lock", "{lock}: {told:?}");
                next.close().await;
            }
        }
    });
}

#[test]
fn a_destroyed_session_is_noticed_and_guards_the_resource() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        let consul = consul(&server).await;
        let registers = registers(&server).await;
        for (name, words) in [
            ("consul-lock", "the key is no longer held by the session"),
            ("consul-kv", "session not found"),
        ] {
            let (mut client, belief) = client(name, config(&server, 600, &[])).await;
            let grant = ok(client.acquire("g").await);
            let write = |elements: &'static [u64], guarded: bool| Write {
                key: name,
                op: 0,
                elements,
                token: grant.token,
                guard: grant.guard.as_ref().filter(|_| guarded),
            };
            // Kept alive, the lock outlives twice its TTL, and the client knows when it was renewed.
            let granted_ns = belief.renewed_ns().expect("granted");
            sleep(Duration::from_millis(1_500)).await;
            let first = ok(registers.write(write(&[1], true)).await);
            let renewed_ns = belief.renewed_ns().expect("renewed");
            assert!(renewed_ns > granted_ns + 600_000_000, "{name}: not renewed");
            assert!(belief.told_lost().is_none());

            let session = session_of(&grant);
            consul
                .destroy_session(&session, LIMIT)
                .await
                .expect("destroyed");
            let (_, why) = timeout(LIMIT, belief.until_told_lost())
                .await
                .expect("told within 3 s");
            assert_eq!(why, words);

            let refused = registers.write(write(&[1, 2], true)).await;
            assert_eq!(fail_code(refused), "guard-failed");
            assert_eq!(ok(registers.read(name, None, None).await).elements, [1]);
            let second = ok(registers.write(write(&[1, 3], false)).await);
            assert!(second > first);
            let read = ok(registers.read(name, None, None).await);
            assert_eq!((read.version, read.elements), (second, vec![1, 3]));

            // Go does not look whether it still held the lock; who does is told so. Either can go on.
            let released = client.release("g").await;
            if name == "consul-lock" {
                ok(released);
            } else {
                assert_eq!(fail_code(released), "not-held");
            }
            assert!(ok(client.acquire("g").await).token > grant.token, "{name}");
            assert!(belief.told_lost().is_none());
            client.close().await;
        }
    });
}

async fn registers(server: &Server) -> Arc<dyn Resource> {
    registers_of("consul", server.endpoint, 3_000).await
}

#[test]
fn lock_index_starts_over_when_the_key_is_written_or_deleted() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        for name in LOCKS {
            for (token, options, grows) in [
                ("lock-index", ("publish", "true"), false),
                ("lock-index", ("publish", "false"), true),
                ("lock-index", ("behaviour", "delete"), false),
                ("modify-index", ("publish", "true"), true),
                ("modify-index", ("behaviour", "delete"), true),
            ] {
                let lock = format!("{name}-{token}-{}-{}", options.0, options.1);
                let config = config(&server, 5_000, &[("token", token), options]);
                let consul = consul(&server).await;
                let mut tokens = Vec::new();
                for _ in 0..3 {
                    let (mut client, _) = client(name, config.clone()).await;
                    let grant = ok(client.acquire(&lock).await);
                    tokens.push(grant.token.expect("a token"));
                    // The session ends without a release, which is what `behaviour` is about.
                    let session = session_of(&grant);
                    consul.destroy_session(&session, LIMIT).await.expect("gone");
                    drop(client);
                }
                let grew = tokens.is_sorted_by(|earlier, later| earlier < later);
                assert_eq!(grew, grows, "{lock}: {tokens:?}");
            }
        }
    });
}

#[test]
fn a_silent_server_tells_the_go_client_nothing() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        let mut holders = Vec::new();
        for name in LOCKS {
            let mut config = config(&server, 800, &[]);
            config.request_timeout_ms = 200;
            let (mut holder, belief) = client(name, config).await;
            ok(holder.acquire(name).await);
            holders.push((holder, belief));
        }
        let consul = consul(&server).await;
        server.pause();
        let limit = Duration::from_millis(200);
        let write = consul
            .put("x", "1", limit)
            .await
            .expect_err("nobody answers");
        assert_eq!(info_code(write.reply::<()>()), "timeout");
        let read = consul.get("x", Query::now(Mode::Consistent), limit).await;
        let read = read.expect_err("nobody answers");
        assert_eq!(fail_code(read.reply::<()>()), "timeout");
        let (_, told) = &holders[1];
        let (_, why) = timeout(LIMIT, told.until_told_lost())
            .await
            .expect("told within 3 s");
        assert!(why.starts_with("not renewed for its time-to-live"), "{why}");
        assert_eq!(
            holders[0].1.told_lost().map(|(_, why)| why),
            None,
            "the monitor's read waits on"
        );
        server.resume();
    });
}

#[test]
fn a_killed_server_leaves_requests_under_way_unknown_and_refuses_later_ones() {
    on_cluster(1, 1, |servers| async move {
        let mut server = only(servers);
        let consul = consul(&server).await;
        let (mut holder, belief) = client("consul-lock", config(&server, 60_000, &[])).await;
        ok(holder.acquire("k").await);
        let (mut waiter, _) = client("consul-lock", config(&server, 60_000, &[])).await;
        let kill = async {
            sleep(Duration::from_millis(300)).await;
            server.pause();
            let put = consul.put("x", "1", LIMIT);
            let kill = async {
                sleep(Duration::from_millis(200)).await;
                server.kill();
            };
            tokio::join!(put, kill).0
        };
        let (waited, put) = tokio::join!(waiter.acquire("k"), kill);
        // The waiter had only a read under way.
        assert_eq!(fail_code(waited), "connection-broken");
        let put = put.expect_err("killed");
        assert_eq!(info_code(put.reply::<()>()), "connection-broken");
        let (_, why) = timeout(LIMIT, belief.until_told_lost())
            .await
            .expect("told within 3 s");
        assert!(why.starts_with("the monitor's read failed"), "{why}");

        let refused = consul
            .put("x", "1", LIMIT)
            .await
            .expect_err("nobody listens");
        assert_eq!(fail_code(refused.reply::<()>()), "connect-failed");
        assert!(refused.to_string().contains("refused"), "{refused}");
        let refused = ConsulClient::connect(server.endpoint, LIMIT).await;
        let refused = refused.err().expect("nobody listens");
        assert_eq!(fail_code(refused.reply::<()>()), "connect-failed");

        server.restart().await;
        consul.put("x", "2", LIMIT).await.expect("written");
    });
}

#[test]
fn whoever_gives_up_waiting_leaves_no_trace() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        for name in LOCKS {
            let (mut holder, _) = client(name, config(&server, 60_000, &[])).await;
            ok(holder.acquire("t").await);
            let mut impatient = config(&server, 60_000, &[]);
            impatient.acquire_timeout_ms = 300;
            let (mut waiter, _) = client(name, impatient).await;
            let start = Instant::now();
            assert_eq!(fail_code(waiter.acquire("t").await), "timeout", "{name}");
            assert!(start.elapsed() < Duration::from_secs(2), "{name}");
            ok(holder.release("t").await);
            let (mut next, _) = client(name, config(&server, 60_000, &[])).await;
            ok(timeout(LIMIT, next.acquire("t"))
                .await
                .expect("the lock is free"));
            next.close().await;
        }
    });
}

#[test]
fn a_key_of_another_kind_is_no_lock_to_the_go_client() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        let registers = registers(&server).await;
        let write = Write {
            key: "../lock/c",
            op: 0,
            elements: &[1],
            token: None,
            guard: None,
        };
        ok(registers.write(write).await);
        let consul = consul(&server).await;
        // The register's key is not the lock's: Consul's keys have no `..`.
        let query = Query::now(Mode::Consistent);
        let (entry, _) = consul.get("fencepost/lock/c", query, LIMIT).await.unwrap();
        assert_eq!(entry, None);
        consul
            .set("fencepost/lock/c", "mine", None, LIMIT)
            .await
            .expect("written");
        let (mut holder, _) = client("consul-lock", config(&server, 60_000, &[])).await;
        assert_eq!(fail_code(holder.acquire("c").await), "lock-conflict");
        let (mut holder, _) = client("consul-kv", config(&server, 60_000, &[])).await;
        ok(holder.acquire("c").await);
    });
}

/// Waits for the next change of a lock that the observer hears of.
async fn until(watch: &mut LockWatch, lock: &str, phase: LeasePhase) -> LockSeen {
    let search = async {
        loop {
            // A server that is down is asked again, as the observer does.
            let changes = watch.next().await.unwrap_or_default();
            let found = changes
                .into_iter()
                .find(|seen| seen.lock == lock && seen.phase == phase);
            match found {
                Some(seen) => return seen,
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(Duration::from_secs(20), search)
        .await
        .expect("the observer sees it within 20 s")
}

#[test]
fn the_observer_sees_locks_come_and_go_across_a_restart() {
    on_cluster(1, 1, |servers| async move {
        let mut server = only(servers);
        let watch = watch_locks(server.endpoint, LOCK_PREFIX, LIMIT).await;
        let mut watch = watch.expect("a watch");
        for name in LOCKS {
            let (mut client, _) = client(name, config(&server, 60_000, &[])).await;
            let grant = ok(client.acquire(name).await);
            let taken = until(&mut watch, name, LeasePhase::Granted).await;
            assert_eq!(Some(taken.token), grant.token);
            assert_eq!(taken.session, session_of(&grant));
            ok(client.release(name).await);
            let freed = until(&mut watch, name, LeasePhase::Ended).await;
            assert_eq!((freed.token, freed.session), (taken.token, taken.session));
            assert!(freed.at_ns > taken.at_ns);
            client.close().await;
        }
        server.kill();
        server.restart().await;
        // A plain put to a lock that is held is no end of it, and does not change its token.
        let published = config(&server, 60_000, &[("publish", "true")]);
        let (mut client, _) = client("consul-lock", published).await;
        let token = ok(client.acquire("again").await).token;
        let taken = until(&mut watch, "again", LeasePhase::Granted).await;
        client.close().await;
        let freed = until(&mut watch, "again", LeasePhase::Ended).await;
        assert_eq!(freed.token, taken.token);
        // The observer may hear of the acquire only together with the put that followed it.
        assert!(Some(freed.token) >= token, "{freed:?} {token:?}");
    });
}

#[test]
fn the_command_runs_its_child_until_the_lock_is_given_back_or_lost() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        let command = || {
            let mut config = config(&server, 15_000, &[]);
            config.options.0.clear();
            config.program = vec![server.program()];
            config
        };
        let (mut holder, belief) = client("consul-command", command()).await;
        assert_eq!(ok(holder.acquire("c").await), Grant::default());
        let mut impatient = command();
        impatient.acquire_timeout_ms = 300;
        let (mut waiter, _) = client("consul-command", impatient).await;
        assert_eq!(fail_code(waiter.acquire("c").await), "timeout");
        ok(holder.release("c").await);

        let (mut next, told) = client("consul-command", command()).await;
        ok(next.acquire("c").await);
        assert!(told.deadline().is_some() && belief.deadline().is_none());
        let consul = consul(&server).await;
        let query = Query::now(Mode::Consistent);
        let (entry, _) = consul
            .get("fencepost/lock/c/.lock", query, LIMIT)
            .await
            .unwrap();
        let session = entry.expect("the command's key").session;
        consul.destroy_session(&session, LIMIT).await.expect("gone");
        let (_, why) = timeout(LIMIT, told.until_told_lost())
            .await
            .expect("told within 3 s");
        assert_eq!(why, "`consul lock` ended its child");
    });
}
