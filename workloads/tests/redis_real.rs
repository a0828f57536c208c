//! The Redis locks, resource and observer against real servers on loopback, of each version found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkers::history::LeasePhase;
use tokio::time::{sleep, timeout};
use workloads::lock::LockConfig;
use workloads::option::Options;
use workloads::redis::{LockSeen, LockWatch, watch_locks};
use workloads::resource::{Resource, Write};

#[path = "redis_real/errors.rs"]
mod errors;
mod real;
#[path = "redis_real/server.rs"]
mod server;

use real::clients::{
    Believer, connect, exclude_each_other, fail_code, info_code, numbered, ok, registers_of,
};
use server::{Server, on_each_version};

const LIMIT: Duration = Duration::from_secs(3);
const COUNTED: &[(&str, &str)] = &[("token", "incr")];

fn config(servers: &[&Server], ttl_ms: u64, pairs: &[(&str, &str)]) -> LockConfig {
    LockConfig {
        endpoint: Some(servers[0].endpoint),
        endpoints: servers.iter().map(|server| server.endpoint).collect(),
        version: servers[0].version.clone(),
        ttl_ms,
        keep_alive: true,
        request_timeout_ms: 1_000,
        acquire_timeout_ms: 10_000,
        options: Options::from(pairs),
        ..LockConfig::default()
    }
}

/// A logical client on a connection of its own, and its belief.
async fn client(name: &str, number: u32, config: LockConfig) -> Believer {
    numbered(&*connect(name, config).await, number)
}

async fn registers(server: &Server) -> Arc<dyn Resource> {
    registers_of("redis", server.endpoint, 1_000).await
}

/// The next event of the observer that fits.
async fn until(watch: &mut LockWatch, mut fits: impl FnMut(&LockSeen) -> bool) -> LockSeen {
    let search = async {
        loop {
            let seen = watch.next().await.expect("the watch goes on");
            if fits(&seen) {
                return seen;
            }
        }
    };
    timeout(Duration::from_secs(10), search)
        .await
        .expect("the observer sees it within 10 s")
}

/// Five clients of one connection take a lock six times each. Returns their tokens.
async fn five_exclude_each_other(name: &str, config: LockConfig) -> Vec<Option<u64>> {
    let connection = connect(name, config).await;
    let clients = (0..5).map(|number| numbered(&*connection, number));
    let taken = exclude_each_other(clients, "l0", 6).await;
    taken.iter().map(|taken| taken.grant.token).collect()
}

#[test]
fn five_clients_exclude_each_other_and_counted_tokens_grow() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        let quick = ("retry", "5");
        let counted = config(&[&server], 2_000, &[quick, COUNTED[0]]);
        let tokens = five_exclude_each_other("redis-lock", counted).await;
        let numbers: Vec<u64> = tokens
            .into_iter()
            .map(|token| token.expect("a token"))
            .collect();
        assert_eq!(numbers, (1..=30).collect::<Vec<u64>>());
        let plain = config(&[&server], 2_000, &[quick]);
        let tokens = five_exclude_each_other("redis-lock", plain).await;
        assert!(tokens.len() == 30 && tokens.iter().all(Option::is_none));
        let looking = config(&[&server], 2_000, &[quick, ("same_uuid", "true")]);
        let tokens = five_exclude_each_other("redis-exclusive-lease", looking).await;
        assert!(tokens.len() == 30 && tokens.iter().all(Option::is_none));
    });
}

#[test]
fn redlock_excludes_with_one_node_down_and_gives_up_with_two() {
    on_each_version(|program: PathBuf| async move {
        let [first, mut second, mut third] = [
            Server::start(&program, &[]).await,
            Server::start(&program, &[]).await,
            Server::start(&program, &[]).await,
        ];
        let mut quick = config(
            &[&first, &second, &third],
            2_000,
            &[("retry", "5"), ("node_timeout", "500")],
        );
        five_exclude_each_other("redlock", quick.clone()).await;
        third.kill();
        five_exclude_each_other("redlock", quick.clone()).await;
        let (mut holder, belief) = client("redlock", 8, quick.clone()).await;
        ok(holder.acquire("kept").await);
        sleep(Duration::from_millis(3_000)).await;
        assert!(belief.told_lost().is_none(), "two of three nodes extend it");
        second.kill();
        quick.acquire_timeout_ms = 300;
        let (mut other, _) = client("redlock", 9, quick).await;
        assert_eq!(fail_code(other.acquire("free").await), "no-quorum");
        let (_, why) = timeout(LIMIT, belief.until_told_lost())
            .await
            .expect("told");
        assert_eq!(why, "no renewal was answered within the TTL");
    });
}

/// The rule that a crashed node must stay away for the TTL is there for this.
#[test]
fn redlock_lets_two_in_when_a_node_forgets() {
    on_each_version(|program: PathBuf| async move {
        let [first, second, mut third] = [
            Server::start(&program, &[]).await,
            Server::start(&program, &[]).await,
            Server::start(&program, &[]).await,
        ];
        let common = [("node_timeout", "500"), ("retry", "20")];
        let mut longer = config(&[&first, &second, &third], 5_000, &common);
        longer.keep_alive = false;
        longer.acquire_timeout_ms = 500;
        let (mut early, belief) = client("redlock", 1, longer.clone()).await;
        // A node that did not get the key: as if it had been down at that moment.
        ok(early.acquire("l").await);
        assert!(second.ask("DEL fencepost:lock:l") == ":1");
        let (mut late, _) = client("redlock", 2, longer).await;
        assert_eq!(fail_code(late.acquire("l").await), "no-quorum");
        third.kill();
        third.restart().await;
        ok(late.acquire("l").await);
        assert!(
            belief
                .deadline()
                .is_some_and(|deadline| deadline > Instant::now()),
            "both believe"
        );
        // One node of three still has the key of the first.
        assert_eq!(fail_code(early.release("l").await), "not-held");
        ok(late.release("l").await);
    });
}

#[test]
fn an_expired_lock_is_anothers_and_only_the_script_leaves_it_alone() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        let mut watch = watch_locks(server.endpoint, LIMIT).await.expect("a watch");
        for release in ["script", "plain-del"] {
            let pairs = [COUNTED[0], ("release", release)];
            let mut short = config(&[&server], 300, &pairs);
            short.keep_alive = false;
            let (mut early, _) = client("redis-lock", 1, short).await;
            let (mut late, _) = client("redis-lock", 2, config(&[&server], 60_000, &pairs)).await;
            let token = ok(early.acquire(release).await).token.expect("a token");
            let start = Instant::now();
            let next = ok(late.acquire(release).await).token.expect("a token");
            assert!(next > token && start.elapsed() >= Duration::from_millis(250));
            let ended = until(&mut watch, |seen| seen.phase == LeasePhase::Ended).await;
            assert_eq!((ended.lock.as_str(), ended.token), (release, token));
            if release == "script" {
                assert_eq!(fail_code(early.release(release).await), "not-held");
                ok(late.release(release).await);
            } else {
                ok(early.release(release).await);
                assert_eq!(fail_code(late.release(release).await), "not-held");
            }
            let ended = until(&mut watch, |seen| seen.phase == LeasePhase::Ended).await;
            assert_eq!((ended.lock.as_str(), ended.token), (release, next));
        }
    });
}

#[test]
fn a_kept_lock_outlives_its_ttl_and_its_loss_is_noticed() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        for (name, key) in [
            ("redis-lock", "fencepost:lock:k"),
            ("redis-exclusive-lease", "gitlab:exclusive_lease:k"),
        ] {
            let (mut client, belief) = client(name, 1, config(&[&server], 1_000, &[])).await;
            ok(client.acquire("k").await);
            let granted_ns = belief.renewed_ns().expect("granted");
            sleep(Duration::from_millis(2_000)).await;
            assert!(belief.told_lost().is_none(), "{name}");
            assert!(belief.renewed_ns().expect("renewed") > granted_ns + 1_000_000_000);
            assert_eq!(server.ask(&format!("DEL {key}")), ":1", "{name}");
            let (_, why) = timeout(LIMIT, belief.until_told_lost())
                .await
                .expect("told");
            assert_eq!(why, "the key is gone or another's");
            assert_eq!(fail_code(client.release("k").await), "not-held");
        }
    });
}

#[test]
fn a_write_can_be_made_to_depend_on_the_lock() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        let registers = registers(&server).await;
        for name in ["redis-lock", "redis-exclusive-lease"] {
            let (mut client, _) = client(name, 1, config(&[&server], 60_000, &[])).await;
            let grant = ok(client.acquire("g").await);
            let write = |elements: &'static [u64], guarded: bool| Write {
                key: name,
                op: 0,
                elements,
                token: None,
                guard: grant.guard.as_ref().filter(|_| guarded),
            };
            assert_eq!(ok(registers.read(name, None, None).await).version, 0);
            assert_eq!(ok(registers.write(write(&[1], true)).await), 1);
            ok(client.release("g").await);
            let refused = registers.write(write(&[1, 2], true)).await;
            assert_eq!(fail_code(refused), "guard-failed");
            assert_eq!(ok(registers.write(write(&[1, 3], false)).await), 2);
            let read = ok(registers.read(name, None, None).await);
            assert_eq!((read.version, read.elements), (2, vec![1, 3]));
        }
    });
}
