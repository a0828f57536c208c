//! The etcd locks, resource and observer against real etcd servers on loopback, one for each version found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use checkers::history::LeasePhase;
use tokio::time::{sleep, timeout};
use workloads::etcd::{EtcdClient, LOCK_PREFIX, LockSeen, LockWatch, status, watch_locks};
use workloads::lock::{Grant, Guard, LockConfig};
use workloads::option::Options;
use workloads::reply::Reply;
use workloads::resource::{Resource, Write};

mod real;
#[path = "etcd_real/server.rs"]
mod server;

use real::clients::{
    assert_tokens_grow, client, connect, exclude_each_other, fail_code, info_code, numbered, ok,
    registers_of,
};
use server::{Server, on_each_version};

const LOCKS: [&str; 2] = ["etcd-v3lock", "etcd-mutex"];
const LIMIT: Duration = Duration::from_secs(3);

fn config(server: &Server, ttl_ms: u64) -> LockConfig {
    LockConfig {
        endpoint: Some(server.endpoint),
        version: server.version.clone(),
        ttl_ms,
        keep_alive: true,
        request_timeout_ms: 3_000,
        acquire_timeout_ms: 15_000,
        ..LockConfig::default()
    }
}

async fn registers(server: &Server) -> Arc<dyn Resource> {
    registers_of("etcd", server.endpoint, 3_000).await
}

/// The next event of the observer that fits.
async fn until(watch: &mut LockWatch, mut fits: impl FnMut(&LockSeen) -> bool) -> LockSeen {
    let search = async {
        loop {
            let seen = watch
                .next()
                .await
                .expect("the watch goes on")
                .expect("no gap");
            if fits(&seen) {
                return seen;
            }
        }
    };
    timeout(Duration::from_secs(10), search)
        .await
        .expect("the observer sees it within 10 s")
}

#[test]
fn five_clients_exclude_each_other_and_tokens_grow() {
    on_each_version(|server| async move {
        for name in LOCKS {
            let connection = connect(name, config(&server, 2_000)).await;
            let clients = (0..5).map(|number| numbered(&*connection, number));
            let taken = exclude_each_other(clients, &format!("l0-{name}"), 6).await;
            assert_tokens_grow(&taken, 30);
        }
    });
}

/// etcd-io/etcd#11456: what a client gets whose lease expired while it stood in the queue.
async fn expire_while_queued(
    server: &Server,
    name: &str,
    options: &[(&str, &str)],
) -> Reply<Grant> {
    let mut watch = watch_locks(server.endpoint, LOCK_PREFIX, LIMIT)
        .await
        .expect("a watch");
    let (mut holder, _) = client(name, config(server, 60_000)).await;
    let token = ok(holder.acquire("q").await).token;
    let mut short = config(server, 1_000);
    short.keep_alive = false;
    short.options = Options::from(options);
    let (mut waiter, _) = client(name, short).await;
    let queued = waiter.acquire("q");
    let expiry = async {
        let is_waiter = |seen: &LockSeen| Some(seen.token) != token;
        until(&mut watch, |seen| {
            is_waiter(seen) && seen.phase == LeasePhase::Granted
        })
        .await;
        until(&mut watch, |seen| {
            is_waiter(seen) && seen.phase == LeasePhase::Ended
        })
        .await;
        ok(holder.release("q").await);
    };
    tokio::join!(queued, expiry).0
}

#[test]
fn a_lease_that_expires_in_the_queue_is_handed_out_dead_up_to_3_4_and_refused_since() {
    on_each_version(|server| async move {
        let reply = expire_while_queued(&server, "etcd-v3lock", &[]).await;
        if server.is_since_3(5) {
            assert_eq!(fail_code(reply), "session-expired");
        } else {
            let dead = Grant {
                token: None,
                dead_on_arrival: true,
                guard: None,
            };
            assert_eq!(ok(reply), dead);
        }
    });
}

#[test]
fn the_mutex_recipe_looks_again_unless_it_is_the_one_up_to_3_4() {
    on_each_version(|server| async move {
        let reply = expire_while_queued(&server, "etcd-mutex", &[]).await;
        assert_eq!(fail_code(reply), "session-expired");
        let dead = ok(expire_while_queued(&server, "etcd-mutex", &[("recheck", "false")]).await);
        assert!(dead.dead_on_arrival && dead.token.is_some(), "{dead:?}");
    });
}

#[test]
fn a_revoked_lease_is_noticed_and_guards_the_resource() {
    on_each_version(|server| async move {
        let etcd = EtcdClient::connect(server.endpoint, LIMIT)
            .await
            .expect("connected");
        let registers = registers(&server).await;
        for name in LOCKS {
            let (mut client, belief) = client(name, config(&server, 1_000)).await;
            let grant = ok(client.acquire("g").await);
            let guard = grant.guard.clone();
            let write = |elements: &'static [u64], guarded: bool| Write {
                key: name,
                op: 0,
                elements,
                token: grant.token,
                guard: guard.as_ref().filter(|_| guarded),
            };
            // Kept alive, the lock outlives its TTL, and the client knows when it was renewed.
            let granted_ns = belief.renewed_ns().expect("granted");
            sleep(Duration::from_millis(2_500)).await;
            let first = ok(registers.write(write(&[1], true)).await);
            assert!(
                belief.renewed_ns().expect("renewed") > granted_ns + 1_000_000_000,
                "{name}: not renewed"
            );
            assert!(belief.told_lost().is_none());

            let Some(Guard::Etcd { key, .. }) = grant.guard.clone() else {
                panic!("{name}: {grant:?}");
            };
            let lease = etcd
                .get(&key, LIMIT)
                .await
                .expect("a read")
                .expect("the lock's key")
                .lease;
            etcd.lease_revoke(lease, LIMIT).await.expect("revoked");
            let (_, why) = timeout(LIMIT, belief.until_told_lost())
                .await
                .expect("told within 3 s");
            assert_eq!(why, "lease not found");

            assert_eq!(
                fail_code(registers.write(write(&[1, 2], true)).await),
                "guard-failed"
            );
            assert_eq!(ok(registers.read(name, None, None).await).elements, [1]);
            let second = ok(registers.write(write(&[1, 3], false)).await);
            assert!(second > first);
            let read = ok(registers.read(name, None, None).await);
            assert_eq!((read.version, read.elements), (second, vec![1, 3]));

            // The loser can go on: with a new lease and a greater token.
            ok(client.release("g").await);
            assert!(ok(client.acquire("g").await).token > grant.token, "{name}");
            assert!(belief.told_lost().is_none());
            client.close().await;
        }
    });
}

#[test]
fn a_silent_server_costs_the_lease_and_leaves_writes_unknown() {
    on_each_version(|server| async move {
        let etcd = EtcdClient::connect(server.endpoint, LIMIT)
            .await
            .expect("connected");
        let (mut client, belief) = client("etcd-mutex", config(&server, 1_000)).await;
        ok(client.acquire("s").await);
        let granted_ns = belief.renewed_ns();
        while belief.renewed_ns() == granted_ns {
            sleep(Duration::from_millis(20)).await; // until the first keep-alive is answered
        }
        server.pause();
        let limit = Duration::from_millis(200);
        let write = etcd
            .put(b"x", b"1".to_vec(), limit)
            .await
            .expect_err("nobody answers");
        assert_eq!(info_code(write.reply::<()>()), "timeout");
        let read = etcd.get(b"x", limit).await.expect_err("nobody answers");
        assert_eq!(fail_code(read.reply::<()>()), "timeout");
        let (_, why) = timeout(LIMIT, belief.until_told_lost())
            .await
            .expect("told within 3 s");
        assert_eq!(why, "keep-alive deadline passed");
        server.resume();
    });
}

#[test]
fn a_killed_server_leaves_requests_under_way_unknown_and_refuses_later_ones() {
    on_each_version(|mut server| async move {
        let etcd = EtcdClient::connect(server.endpoint, LIMIT)
            .await
            .expect("connected");
        let (mut holder, _) = client("etcd-v3lock", config(&server, 60_000)).await;
        ok(holder.acquire("k").await);
        let (mut v3lock, _) = client("etcd-v3lock", config(&server, 60_000)).await;
        let kill = async {
            sleep(Duration::from_millis(300)).await;
            server.pause();
            let put = etcd.put(b"x", b"1".to_vec(), LIMIT);
            let kill = async {
                sleep(Duration::from_millis(200)).await;
                server.kill();
            };
            tokio::join!(put, kill).0
        };
        let (waited, put) = tokio::join!(v3lock.acquire("k"), kill);
        assert_eq!(info_code(waited), "connection-broken");
        assert_eq!(
            info_code(put.expect_err("killed").reply::<()>()),
            "connection-broken"
        );

        let refused = etcd
            .put(b"x", b"1".to_vec(), LIMIT)
            .await
            .expect_err("nobody listens");
        assert_eq!(fail_code(refused.reply::<()>()), "connect-failed");
        assert!(refused.to_string().contains("refused"), "{refused}");
        let refused = EtcdClient::connect(server.endpoint, LIMIT)
            .await
            .err()
            .expect("nobody listens");
        assert_eq!(fail_code(refused.reply::<()>()), "connect-failed");

        // The channel connects again by itself, once there is somebody to connect to.
        server.restart().await;
        etcd.put(b"x", b"2".to_vec(), LIMIT).await.expect("written");
    });
}

#[test]
fn whoever_gives_up_waiting_leaves_no_trace() {
    on_each_version(|server| async move {
        for name in LOCKS {
            let (mut holder, _) = client(name, config(&server, 60_000)).await;
            ok(holder.acquire("t").await);
            let mut impatient = config(&server, 60_000);
            impatient.acquire_timeout_ms = 300;
            let (mut waiter, _) = client(name, impatient).await;
            let start = Instant::now();
            let reply = waiter.acquire("t").await;
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{name}: {:?}",
                start.elapsed()
            );
            // The service may have granted the lock just then; the recipe knows, for it removed its own key.
            let code = if name == "etcd-v3lock" {
                info_code(reply)
            } else {
                fail_code(reply)
            };
            assert_eq!(code, "timeout", "{name}");
            ok(holder.release("t").await);
            let (mut next, _) = client(name, config(&server, 60_000)).await;
            ok(timeout(LIMIT, next.acquire("t"))
                .await
                .expect("the lock is free"));
            next.close().await;
        }
    });
}

#[test]
fn the_observer_sees_locks_come_and_go_across_a_restart() {
    on_each_version(|mut server| async move {
        let seen = status(server.endpoint, LIMIT).await.expect("a status");
        assert_eq!(
            (seen.version.as_str(), seen.member_id),
            (server.version.as_str(), seen.leader_id)
        );
        assert!(seen.raft_term > 0);
        let etcd = EtcdClient::connect(server.endpoint, LIMIT)
            .await
            .expect("connected");
        let members = etcd.members(LIMIT).await.expect("members");
        assert_eq!(
            (members[0].id, members[0].name.as_str()),
            (seen.member_id, "n1")
        );
        assert_eq!(
            members[0].client_urls,
            [format!("http://{}", server.endpoint)]
        );

        for (round, name) in LOCKS.into_iter().enumerate() {
            let lock = format!("o{round}");
            let (mut client, _) = client(name, config(&server, 60_000)).await;
            let token = ok(client.acquire(&lock).await).token.expect("a token");
            // What is there already comes first.
            let mut watch = watch_locks(server.endpoint, LOCK_PREFIX, LIMIT)
                .await
                .expect("a watch");
            let created = until(&mut watch, |seen| seen.lock == lock).await;
            assert_eq!((created.token, created.phase), (token, LeasePhase::Granted));
            ok(client.release(&lock).await);
            let deleted = until(&mut watch, |seen| seen.lock == lock).await;
            assert_eq!(
                (deleted.token, deleted.phase, deleted.lease),
                (token, LeasePhase::Ended, created.lease)
            );
            assert!(deleted.revision > created.revision && deleted.at_ns > created.at_ns);
            client.close().await;

            server.kill();
            server.restart().await;
            let (mut client, _) = self::client(name, config(&server, 60_000)).await;
            let token = ok(client.acquire(&lock).await).token.expect("a token");
            let created = until(&mut watch, |seen| seen.lock == lock).await;
            assert_eq!(
                (created.token, created.phase),
                (token, LeasePhase::Granted),
                "{name} after the restart"
            );
            client.close().await;
            let deleted = until(&mut watch, |seen| seen.lock == lock).await;
            assert_eq!(
                (deleted.token, deleted.phase),
                (token, LeasePhase::Ended),
                "{name} after close"
            );
        }
    });
}
