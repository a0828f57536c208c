//! Each row of the table of errors, said by a real server, and what is known of requests that got no answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use workloads::belief::Belief;
use workloads::zookeeper::{
    CreateMode, EventKind, Multi, Op, Session, SessionConfig, SessionEvent, Told, ZkError,
};

use super::{LIMIT, client, config, fail_code, info_code, ok, on_each_version, queue, session};

#[test]
fn each_row_of_the_error_table_is_what_the_server_says() {
    on_each_version(|server| async move {
        let (session, _) = session(&server, 8_000, Told::Expired).await;
        let create = |path, mode| session.create(path, b"", mode, LIMIT);
        let code = |reply: Result<_, ZkError>| fail_code(reply.expect_err("refused").reply::<()>());
        let no_parent = create("/a/b", CreateMode::Persistent).await;
        assert_eq!(code(no_parent.map(drop)), "no-node");
        assert_eq!(
            create("/a", CreateMode::Persistent).await.expect("created"),
            "/a"
        );
        let again = create("/a", CreateMode::Persistent).await;
        assert_eq!(code(again.map(drop)), "node-exists");
        session.make_path("/a/b/c", LIMIT).await.expect("made");
        assert_eq!(
            code(session.delete("/a", LIMIT).await.map(drop)),
            "not-empty"
        );
        create("/e", CreateMode::Ephemeral).await.expect("created");
        let child = create("/e/x", CreateMode::Persistent).await;
        assert_eq!(code(child.map(drop)), "no-children-for-ephemerals");
        let stale = session.set_data("/a", b"1", 7, LIMIT).await;
        assert_eq!(code(stale.map(drop)), "bad-version");
        let malformed = create("a", CreateMode::Persistent).await;
        assert_eq!(code(malformed.map(drop)), "bad-arguments");

        assert!(!session.delete("/nowhere", LIMIT).await.expect("no error"));
        assert_eq!(session.exists("/nowhere", LIMIT).await.expect("read"), None);
        let stat = session.exists("/e", LIMIT).await.expect("read");
        assert_eq!(stat.expect("there").ephemeral_owner, session.id());
        session.sync("/a", LIMIT).await.expect("synced");

        let ops = |version| {
            [
                Op::Check {
                    path: "/e",
                    version,
                },
                Op::SetData {
                    path: "/a",
                    data: b"2",
                },
            ]
        };
        match session.multi(&ops(9), LIMIT).await.expect("answered") {
            Multi::Refused { index: 0, why } => assert_eq!(why.code(), "bad-version"),
            other => panic!("{other:?}"),
        }
        match session.multi(&ops(0), LIMIT).await.expect("answered") {
            Multi::Done(Some(stat)) => assert_eq!(stat.version, 1),
            other => panic!("{other:?}"),
        }
        let (data, _) = session
            .get_data("/a", false, LIMIT)
            .await
            .expect("read")
            .expect("there");
        assert_eq!(data, b"2");
    });
}

#[test]
fn what_was_under_way_when_the_server_died_is_unknown_and_what_was_not_sent_is_not() {
    on_each_version(|mut server| async move {
        // Several tries to connect, of a third each, and one restart, on a busy machine.
        let (mut session, belief) = session(&server, 12_000, Told::Expired).await;
        session.make_path("/k", LIMIT).await.expect("made");
        session.get_data("/k", true, LIMIT).await.expect("watched");
        server.pause();
        let limit = Duration::from_millis(200);
        let write = session.set_data("/k", b"1", -1, limit).await;
        assert_eq!(
            info_code(write.expect_err("silent").reply::<()>()),
            "timeout"
        );
        let read = session.exists("/k", limit).await;
        assert_eq!(
            fail_code(read.expect_err("silent").reply::<()>()),
            "timeout"
        );
        let write = session.set_data("/k", b"2", -1, LIMIT);
        let kill = async {
            sleep(Duration::from_millis(200)).await;
            server.kill();
        };
        let (write, ()) = tokio::join!(write, kill);
        assert_eq!(
            info_code(write.expect_err("killed").reply::<()>()),
            "connection-loss"
        );
        let unsent = session.set_data("/k", b"3", -1, limit).await;
        assert_eq!(
            fail_code(unsent.expect_err("nobody there").reply::<()>()),
            "connect-failed"
        );
        let config = SessionConfig {
            endpoint: server.endpoint,
            timeout: Duration::from_secs(4),
            keep_alive: true,
            told: Told::Expired,
        };
        let refused = Session::open(config, Arc::new(Belief::new()), LIMIT).await;
        let refused = refused.err().expect("nobody listens");
        assert!(refused.to_string().contains("refused"), "{refused}");
        assert_eq!(fail_code(refused.reply::<()>()), "connect-failed");

        // The session is taken up again, and its watch with it.
        server.restart().await;
        session
            .set_data("/k", b"4", -1, LIMIT)
            .await
            .expect("written");
        assert!(belief.told_lost().is_none() && session.over().is_none());
        let watched = async {
            loop {
                if let Some(SessionEvent::Watch(event)) = session.event().await {
                    return event;
                }
            }
        };
        let event = timeout(LIMIT, watched).await.expect("the watch goes off");
        assert_eq!(
            (event.path.as_str(), event.kind),
            ("/k", EventKind::DataChanged)
        );
    });
}

#[test]
fn a_creation_that_was_not_answered_is_unknown_unless_its_name_is_found_again() {
    on_each_version(|server| async move {
        let (mut plain, _) = client(config(&server, 6_000, &[])).await;
        let (mut curator, _) = client(config(&server, 6_000, &[("node_names", "curator")])).await;
        // The locks' own nodes are there.
        for (client, lock) in [(&mut plain, "u"), (&mut curator, "f")] {
            ok(client.acquire(lock).await);
            ok(client.release(lock).await);
        }
        // Both give the connection up after 4 s of silence; then the server does what it was asked.
        server.pause();
        let resume = async {
            sleep(Duration::from_millis(4_200)).await;
            server.resume();
        };
        let (unknown, found, ()) = tokio::join!(plain.acquire("u"), curator.acquire("f"), resume);
        assert_eq!(info_code(unknown), "connection-loss");
        assert!(ok(found).token.is_some());
        ok(curator.release("f").await);
        let (look, _) = session(&server, 8_000, Told::Expired).await;
        assert_eq!(queue(&look, "u").await.len(), 1, "it was created");
        assert!(queue(&look, "f").await.is_empty());
        // Whoever does not know gives its session up, and its node with it.
        plain.close().await;
        assert!(queue(&look, "u").await.is_empty());
    });
}
