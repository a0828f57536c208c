//! Rows of the error table, each drawn from a real server.

use std::time::Duration;

use workloads::consul::{ConsulClient, ConsulError, SessionAsk, Written};

use crate::server::{Server, on_cluster};
use crate::{LIMIT, consul, fail_code, info_code, only};

fn ask(ttl_ms: u64, behaviour: &str) -> SessionAsk {
    SessionAsk {
        ttl: Duration::from_millis(ttl_ms),
        lock_delay: Duration::ZERO,
        behaviour: behaviour.to_owned(),
        serf_health: true,
    }
}

#[track_caller]
fn definite<T: std::fmt::Debug>(result: Result<T, ConsulError>, code: &str, words: &str) {
    let error = result.expect_err("refused");
    assert_eq!(fail_code(error.reply::<()>()), code, "{error}");
    assert!(error.text.contains(words), "{error}");
}

#[track_caller]
fn unknown<T: std::fmt::Debug>(result: Result<T, ConsulError>, code: &str, words: &str) {
    let error = result.expect_err("cut off");
    assert_eq!(info_code(error.reply::<()>()), code, "{error}");
    assert!(error.text.contains(words), "{error}");
}

#[test]
fn what_a_server_refuses_was_not_done() {
    on_cluster(1, 1, |servers| async move {
        let server = only(servers);
        let consul = consul(&server).await;
        let nobody = "11111111-2222-3333-4444-555555555555";
        let refused = consul.acquire("k", nobody, "", LIMIT).await;
        definite(refused, "session-invalid", "invalid session");
        let refused = consul.create_session(&ask(1, "release"), LIMIT).await;
        definite(refused, "rejected", "Invalid Session TTL");
        let refused = consul
            .create_session(&ask(86_400_001, "release"), LIMIT)
            .await;
        definite(refused, "rejected", "Invalid Session TTL");
        let refused = consul.create_session(&ask(1_000, "explode"), LIMIT).await;
        definite(refused, "rejected", "Invalid Behavior setting");
        let refused = consul.put("k", &"x".repeat(600_000), LIMIT).await;
        definite(refused, "rejected", "too large");
        let refused = consul.put("", "x", LIMIT).await;
        definite(refused, "rejected", "Missing key name");
        assert_eq!(
            consul.release("k", nobody, "", LIMIT).await.ok(),
            Some(false)
        );
        assert_eq!(consul.renew_session(nobody, LIMIT).await.ok(), Some(false));
        let refused = consul.set("d", "1", Some(("k", nobody)), LIMIT).await;
        let Ok(Written::Refused(words)) = refused else {
            panic!("{refused:?}");
        };
        assert!(words.contains("failed to check session"), "{words}");
    });
}

#[test]
fn without_a_leader_nothing_is_done() {
    // It waits for a second server that never comes.
    on_cluster(1, 2, |servers| async move {
        let server = only(servers);
        let start = std::time::Instant::now();
        let consul = loop {
            match ConsulClient::connect(server.endpoint, LIMIT).await {
                Ok(consul) => break consul,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(consul.leader(LIMIT).await.ok(), Some(None));
        let refused = consul.put("k", "x", LIMIT).await;
        definite(refused, "no-leader", "No cluster leader");
        let refused = consul.create_session(&ask(1_000, "release"), LIMIT).await;
        definite(refused, "no-leader", "No cluster leader");
    });
}

/// The leader, and the others.
async fn by_role(servers: Vec<Server>) -> (Server, Vec<Server>) {
    let known = consul(&servers[0]).await.leader(LIMIT).await;
    let leader = known.expect("an answer").expect("a leader");
    let (mut leaders, others): (Vec<_>, Vec<_>) = servers
        .into_iter()
        .partition(|server| server.kind.rpc == leader);
    (leaders.pop().expect("one of the three"), others)
}

#[test]
fn a_leader_that_dies_leaves_what_was_handed_on_unknown() {
    on_cluster(3, 3, |servers| async move {
        let (mut leader, others) = by_role(servers).await;
        let follower = consul(&others[0]).await;
        follower.put("k", "1", LIMIT).await.expect("written");
        leader.pause();
        let kill = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            leader.kill();
        };
        let (cut_off, ()) = tokio::join!(follower.put("k", "2", LIMIT), kill);
        unknown(cut_off, "leader-silent", "rpc error making call");
        // Until the next election the follower knows only the dead one.
        let refused = follower.put("k", "3", LIMIT).await;
        definite(refused, "leader-unreachable", "rpc error getting client");
    });
}

#[test]
fn a_leader_that_loses_its_majority_leaves_its_proposals_unknown() {
    on_cluster(3, 3, |servers| async move {
        let (leader, others) = by_role(servers).await;
        let client = consul(&leader).await;
        client.put("k", "1", LIMIT).await.expect("written");
        others.iter().for_each(Server::pause);
        let lost = client.put("k", "2", LIMIT).await;
        unknown(
            lost,
            "leadership-lost",
            "leadership lost while committing log",
        );
        let refused = client.put("k", "3", LIMIT).await;
        definite(refused, "no-leader", "No cluster leader");
        others.iter().for_each(Server::resume);
    });
}
