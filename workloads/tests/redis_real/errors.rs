//! Each row of the table of errors, said by a real server.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    COUNTED, Server, client, config, connect, fail_code, info_code, ok, on_each_version, registers,
};
use workloads::lock::LockConfig;

/// What an acquire by `SET` and one by a script come to.
async fn both(server: &Server, lock: &str) -> [&'static str; 2] {
    let mut codes = [""; 2];
    for (code, pairs) in codes.iter_mut().zip([&[], COUNTED]) {
        let (mut client, _) = client("redis-lock", 1, config(&[server], 2_000, pairs)).await;
        *code = fail_code(client.acquire(lock).await);
    }
    codes
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited in vain for {what}"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_server_that_is_not_there_did_nothing_and_one_that_falls_silent_is_unknown() {
    on_each_version(|program: PathBuf| async move {
        let mut server = Server::start(&program, &[]).await;
        let (mut first, _) = client("redis-lock", 1, config(&[&server], 60_000, &[])).await;
        let (mut second, _) = client("redis-lock", 2, config(&[&server], 60_000, &[])).await;
        server.pause();
        assert_eq!(info_code(first.acquire("silent").await), "timeout");
        // The command waits in the server's socket: it is carried out later.
        server.resume();
        until("the late command", || {
            server.ask("EXISTS fencepost:lock:silent") == ":1"
        })
        .await;

        server.pause();
        let acquire = tokio::spawn(async move { (second.acquire("killed").await, second) });
        sleep(Duration::from_millis(200)).await;
        server.kill();
        let (reply, mut second) = acquire.await.expect("no panic");
        assert_eq!(info_code(reply), "connection-broken");
        assert_eq!(fail_code(second.acquire("gone").await), "connect-failed");
        server.restart().await;
        ok(second.acquire("back").await);
        // Reads change nothing, whatever became of them.
        let registers = registers(&server).await;
        server.pause();
        assert_eq!(fail_code(registers.read("r", None, None).await), "timeout");
        server.resume();
    });
}

#[test]
fn replicas_and_lonely_primaries_refuse() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        let (mut holder, _) = client("redis-lock", 3, config(&[&server], 60_000, &[])).await;
        ok(holder.acquire("held").await);
        assert_eq!(server.ask("CONFIG SET min-replicas-to-write 1"), "+OK");
        // Up to 6.2 only commands are held to it, not the writes of scripts.
        let [plain, _] = both_or_granted(&server, "lonely").await;
        assert_eq!(plain, "no-replicas");
        if server.is_since_7() {
            assert_eq!(both(&server, "lonely").await, ["no-replicas"; 2]);
        }
        assert_eq!(server.ask("CONFIG SET min-replicas-to-write 0"), "+OK");
        // Its primary does not exist.
        assert_eq!(server.ask("REPLICAOF 127.0.0.1 1"), "+OK");
        assert_eq!(both(&server, "follower").await, ["read-only"; 2]);
        assert_eq!(fail_code(holder.release("held").await), "read-only");
        assert_eq!(server.ask("CONFIG SET replica-serve-stale-data no"), "+OK");
        assert_eq!(both(&server, "stale").await[1], "master-down");
    });
}

/// As `both`, for servers that grant what others refuse.
async fn both_or_granted(server: &Server, lock: &str) -> [&'static str; 2] {
    let mut codes = [""; 2];
    for (code, pairs) in codes.iter_mut().zip([&[], COUNTED]) {
        let (mut client, _) = client("redis-lock", 4, config(&[server], 2_000, pairs)).await;
        *code = match client.acquire(lock).await {
            workloads::reply::Reply::Ok(_) => "granted",
            refused => fail_code(refused),
        };
        client.close().await;
    }
    codes
}

#[test]
fn servers_in_trouble_refuse_before_they_do_anything() {
    on_each_version(|program: PathBuf| async move {
        let mut server = Server::start(&program, &["--lua-time-limit", "20"]).await;
        assert_eq!(server.ask("CONFIG SET maxmemory 1"), "+OK");
        assert_eq!(both(&server, "full").await, ["out-of-memory"; 2]);
        assert_eq!(server.ask("CONFIG SET maxmemory 0"), "+OK");

        let endpoint = server.endpoint;
        let busy = std::thread::spawn(move || {
            let _ = super::server::ask(endpoint, "EVAL \"while true do end\" 0");
        });
        until("the script", || server.ask("GET x").starts_with("-BUSY")).await;
        assert_eq!(both(&server, "busy").await, ["busy"; 2]);
        assert_eq!(server.ask("SCRIPT KILL"), "+OK");
        busy.join().expect("no panic");

        assert_eq!(server.ask("CONFIG SET requirepass secret"), "+OK");
        assert_eq!(both(&server, "locked").await, ["refused"; 2]);

        if server.version.starts_with("6.0.") {
            println!(
                "redis {}: cannot be slowed down while it loads; not asked then",
                server.version
            );
            return;
        }
        // Slow enough to be caught at it: 200 us a key.
        server.kill();
        server.restart_with(&["--requirepass", ""]).await;
        let populate = "EVAL \"for i = 1, 20000 do redis.call('set', 'k' .. i, i) end\" 0";
        assert_eq!(server.ask(populate), "$-1");
        assert_eq!(server.ask("SAVE"), "+OK");
        server.kill();
        server
            .restart_with(&[
                "--key-load-delay",
                "200",
                "--loading-process-events-interval-bytes",
                "1024",
            ])
            .await;
        assert_eq!(both(&server, "loading").await, ["loading"; 2]);
    });
}

#[test]
fn a_server_that_cannot_save_refuses_to_write() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        assert_eq!(server.ask("CONFIG SET save \"3600 1\""), "+OK");
        std::fs::remove_dir_all(server.data()).expect("its folder");
        server.ask("BGSAVE");
        let failed = "rdb_last_bgsave_status:err";
        until("the failure", || {
            server.ask("INFO persistence").contains(failed)
        })
        .await;
        assert_eq!(both(&server, "unsaved").await, ["misconf"; 2]);
    });
}

#[test]
fn one_connection_too_many_is_refused() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        let connection = connect("redis-lock", config(&[&server], 2_000, &[])).await;
        assert_eq!(server.ask("CONFIG SET maxclients 1"), "+OK");
        let _taken = connection;
        let (mut late, _) = client("redis-lock", 2, config(&[&server], 2_000, &[])).await;
        // The server says so and closes; which of the two comes first decides the word.
        let code = fail_code(late.acquire("l").await);
        assert!(["max-clients", "connect-failed"].contains(&code), "{code}");
    });
}

#[test]
fn a_script_that_fails_midway_is_unknown() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        // What the counter holds is no number: the lock is set by then, and stays.
        assert_eq!(server.ask("SET fencepost:token:odd x"), "+OK");
        let counted = config(&[&server], 60_000, COUNTED);
        let (mut client, _) = client("redis-lock", 1, counted).await;
        info_code(client.acquire("odd").await);
        assert_eq!(server.ask("EXISTS fencepost:lock:odd"), ":1");
    });
}

#[test]
fn a_lock_that_too_few_replicas_have_is_given_back() {
    on_each_version(|program: PathBuf| async move {
        let server = Server::start(&program, &[]).await;
        let waiting = |timeout: &'static str| -> LockConfig {
            let pairs = [("wait_replicas", "1"), ("wait_timeout", timeout)];
            config(&[&server], 60_000, &pairs)
        };
        let (mut client, belief) = client("redis-lock", 1, waiting("100")).await;
        assert_eq!(fail_code(client.acquire("w").await), "not-replicated");
        assert_eq!(server.ask("EXISTS fencepost:lock:w"), ":0");
        assert!(belief.deadline().is_none());

        let port = server.endpoint.port().to_string();
        let replica = Server::start(&program, &["--replicaof", "127.0.0.1", &port]).await;
        // The primary must say so: 7.0 counts a replica only when the child that sent it the data has been reaped,
        // some while after the replica itself takes its link for up, and WAIT passes over it until then.
        until("the replica", || {
            server.ask("INFO replication").contains("state=online")
        })
        .await;
        let (mut client, _) = super::client("redis-lock", 2, waiting("5000")).await;
        ok(client.acquire("w").await);
        until("the copy", || {
            replica.ask("EXISTS fencepost:lock:w") == ":1"
        })
        .await;
        ok(client.release("w").await);

        // Demoted while it waits: the wait is broken off, and what was set cannot be taken back.
        replica.pause();
        let (mut demoted, _) = super::client("redis-lock", 3, waiting("5000")).await;
        let acquire = tokio::spawn(async move { demoted.acquire("d").await });
        // That the lock is set is not enough: a WAIT that comes after the demotion is refused in other words.
        until("the wait", || {
            server.ask("INFO clients").contains("blocked_clients:1")
        })
        .await;
        assert_eq!(server.ask("REPLICAOF 127.0.0.1 1"), "+OK");
        assert_eq!(info_code(acquire.await.expect("no panic")), "role-changed");
        replica.resume();
    });
}
