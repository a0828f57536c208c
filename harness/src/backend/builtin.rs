//! `builtin`: fencepost's own lease-lock server, a model. It runs where no server can be had, needs no
//! download, and its bugs prove that each check can fail.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use workloads::line::client::{Address, LineClient};
use workloads::lock::builtin::wire::{Answer, Request, Verb};

use super::{
    Backend, BackendSpec, ClusterInfo, CommandLine, LeaseSink, NodeInfo, arguments, each_is_ready,
};
use crate::provision::Launch;

/// Registry entry.
pub const SPEC: BackendSpec = BackendSpec {
    name: "builtin",
    summary: "a model: fencepost's own lease-lock server, correct by default and wrong on request",
    default_version: "model",
    nodes: &[1],
    bugs: &[
        "double-grant",
        "early-expiry",
        "repeated-token",
        "forgets-on-restart",
    ],
    options: &[],
    check: |_| Ok(()),
    ttl_ms: |_| 50..=u64::MAX,
    helpers: |_| 0,
    model: true,
    backend: &Builtin,
};

const PORT: u16 = 7070;
const ASK: Duration = Duration::from_millis(500);

/// The model server.
struct Builtin;

impl Backend for Builtin {
    fn client_port(&self) -> u16 {
        PORT
    }

    fn stagger(&self) -> Duration {
        Duration::ZERO
    }

    fn command(&self, cluster: &ClusterInfo, node: &NodeInfo) -> CommandLine {
        let state = node.data.join("state.json").display().to_string();
        let mut flags = vec!["builtin-server".to_owned(), "--listen".to_owned()];
        flags.extend([
            cluster.endpoint(self, node).to_string(),
            "--state".to_owned(),
            state,
        ]);
        flags.extend(
            cluster
                .plan
                .bug
                .iter()
                .flat_map(|bug| ["--bug".to_owned(), bug.clone()]),
        );
        let argv: Vec<OsString> = arguments(&Launch::direct(Path::new("/proc/self/exe")), flags);
        CommandLine {
            argv,
            env: Vec::new(),
        }
    }

    fn is_ready<'a>(&'a self, cluster: &'a ClusterInfo) -> BoxFuture<'a, Result<(), String>> {
        each_is_ready(self, cluster, |endpoint, _| ping(endpoint)).boxed()
    }

    fn watch_leader(
        &self,
        cluster: ClusterInfo,
        found: Box<dyn Fn(&str) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        // A server of one leads itself.
        found(cluster.nodes.first().map_or("", |node| node.name.as_str()));
        pending().boxed()
    }

    fn watch_leases(
        &self,
        _cluster: ClusterInfo,
        _node: NodeInfo,
        _sink: LeaseSink,
    ) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

async fn ping(endpoint: SocketAddr) -> Result<(), String> {
    let client: LineClient<Answer> = LineClient::new(Address::Tcp(endpoint, ASK));
    let request = |id| Request {
        id,
        verb: Verb::Ping,
        lock: "".into(),
        owner: 0,
        ttl_ms: None,
        wait_ms: None,
        token: None,
    };
    match tokio::time::timeout(ASK, client.call(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{error:?}")),
        Err(_) => Err(format!("no answer within {ASK:?}")),
    }
}
