//! The two locks that need no foreign server, against their own servers in this process.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use workloads::belief::Belief;
use workloads::lock::builtin::server::{self, Bug};
use workloads::lock::{LockClient, LockConfig, find};
use workloads::reply::Reply;
use workloads::resource::memory::server::MemoryServer;
use workloads::resource::memory::store::TokenPolicy;
use workloads::resource::{self, ResourceConfig, Write};

fn config(endpoint: Option<SocketAddr>, memory: PathBuf) -> LockConfig {
    LockConfig {
        endpoint,
        version: "model".into(),
        memory,
        ttl_ms: 300,
        keep_alive: true,
        request_timeout_ms: 1000,
        acquire_timeout_ms: 5000,
        ..LockConfig::default()
    }
}

fn start_builtin(directory: &tempfile::TempDir, bug: Option<Bug>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = directory.path().join("state.json");
    std::thread::spawn(move || server::serve(listener, &state, bug));
    address
}

async fn clients(
    lock: &str,
    config: LockConfig,
    count: u32,
) -> Vec<(Box<dyn LockClient>, Arc<Belief>)> {
    let connection = (find(lock).unwrap().connect)(config).await.unwrap();
    (0..count)
        .map(|id| {
            let belief = Arc::new(Belief::new());
            (connection.client(id, Arc::clone(&belief)), belief)
        })
        .collect()
}

async fn token(client: &mut Box<dyn LockClient>) -> u64 {
    match client.acquire("l0").await {
        Reply::Ok(grant) => grant.token.unwrap(),
        other => panic!("not granted: {other:?}"),
    }
}

#[tokio::test]
async fn builtin_waits_for_the_holder_and_raises_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let address = start_builtin(&directory, None);
    let mut clients = clients("builtin", config(Some(address), PathBuf::new()), 2).await;
    let (mut second, _) = clients.pop().unwrap();
    let (mut first, _) = clients.pop().unwrap();
    assert_eq!(token(&mut first).await, 1);
    let waiting = tokio::spawn(async move { token(&mut second).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(
        !waiting.is_finished(),
        "kept alive for more than two TTLs, and still the second got it"
    );
    assert_eq!(first.release("l0").await, Reply::Ok(()));
    assert_eq!(waiting.await.unwrap(), 2);
}

#[tokio::test]
async fn builtin_grants_nothing_to_whoever_gave_up_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let address = start_builtin(&directory, None);
    let hasty = LockConfig {
        acquire_timeout_ms: 200,
        ..config(Some(address), PathBuf::new())
    };
    let (mut second, _) = clients("builtin", hasty, 1).await.remove(0);
    let mut others = clients("builtin", config(Some(address), PathBuf::new()), 2).await;
    let (mut third, _) = others.pop().unwrap();
    let (mut first, _) = others.pop().unwrap();
    assert_eq!(token(&mut first).await, 1);
    match second.acquire("l0").await {
        Reply::Fail(why) => assert_eq!(why.code, "refused"),
        other => panic!("{other:?}"),
    }
    assert_eq!(first.release("l0").await, Reply::Ok(()));
    assert_eq!(token(&mut third).await, 2, "nobody had it in between");
}

#[tokio::test]
async fn builtin_tells_a_holder_whose_lease_ended_early() {
    let directory = tempfile::tempdir().unwrap();
    let address = start_builtin(&directory, Some(Bug::EarlyExpiry));
    let mut clients = clients("builtin", config(Some(address), PathBuf::new()), 1).await;
    let (mut client, belief) = clients.pop().unwrap();
    token(&mut client).await;
    let (_, why) = tokio::time::timeout(Duration::from_secs(5), belief.until_told_lost())
        .await
        .unwrap();
    assert_eq!(why, "the server does not know the lease");
}

#[tokio::test]
async fn builtin_keeps_its_tokens_over_a_restart_unless_told_to_forget() {
    for (bug, expected) in [(None, 2), (Some(Bug::ForgetsOnRestart), 1)] {
        let directory = tempfile::tempdir().unwrap();
        let address = start_builtin(&directory, bug);
        let mut before = clients("builtin", config(Some(address), PathBuf::new()), 1).await;
        assert_eq!(token(&mut before[0].0).await, 1);
        assert_eq!(before[0].0.release("l0").await, Reply::Ok(()));
        let address = start_builtin(&directory, bug);
        let mut after = clients("builtin", config(Some(address), PathBuf::new()), 1).await;
        assert_eq!(token(&mut after[0].0).await, expected, "{bug:?}");
    }
}

#[tokio::test]
async fn builtin_refuses_a_connection_to_nobody_as_definite() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut clients = clients("builtin", config(Some(nobody), PathBuf::new()), 1).await;
    let reply = clients[0].0.acquire("l0").await;
    assert!(
        matches!(&reply, Reply::Fail(reason) if reason.code == "disconnected"),
        "{reply:?}"
    );
}

#[tokio::test]
async fn memory_hands_the_lock_over_and_reports_accesses_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("memory.sock");
    let accesses = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&accesses);
    let store = MemoryServer::start(
        &socket,
        TokenPolicy::Enforce,
        Box::new(move |access| sink.lock().unwrap().push(access)),
    )
    .unwrap();
    let mut clients = clients("memory", config(None, socket.clone()), 2).await;
    let (mut second, _) = clients.pop().unwrap();
    let (mut first, _) = clients.pop().unwrap();
    assert_eq!(token(&mut first).await, 1);
    let waiting = tokio::spawn(async move { token(&mut second).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    assert_eq!(first.release("l0").await, Reply::Ok(()));
    assert_eq!(waiting.await.unwrap(), 2);

    let resource = (resource::find("memory").unwrap().connect)(ResourceConfig {
        endpoint: None,
        memory: socket,
        request_timeout_ms: 1000,
        ..ResourceConfig::default()
    })
    .await
    .unwrap();
    let write = |op, token, elements: &'static [u64]| Write {
        key: "l0/0",
        op,
        elements,
        token,
        guard: None,
    };
    assert_eq!(resource.write(write(1, Some(2), &[7])).await, Reply::Ok(1));
    assert!(
        matches!(resource.write(write(2, Some(1), &[8])).await, Reply::Fail(reason) if reason.code == "stale-token")
    );
    let Reply::Ok(read) = resource.read("l0/0", Some(3), Some(2)).await else {
        panic!("no read")
    };
    assert_eq!((read.version, read.elements), (1, vec![7]));
    let seen: Vec<_> = accesses
        .lock()
        .unwrap()
        .iter()
        .map(|access| (access.seq, access.op, access.accepted))
        .collect();
    assert_eq!(seen, [(0, 1, true), (1, 2, false), (2, 3, true)]);
    assert_eq!(store.registers()[0].1.elements, [7]);
}
