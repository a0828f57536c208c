//! A single etcd node of each version that this machine has.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use workloads::etcd::EtcdClient;

use crate::real::search::{Search, is_program, on_each};
use crate::real::server::{self, Kind, free_address};

pub(crate) type Server = server::Server<Etcd>;

const SEARCH: Search = Search {
    variable: "FENCEPOST_TEST_ETCD",
    folder: "etcd",
    is_one: |path| is_program(path, "etcd"),
    lack: "no etcd binary. Run `fencepost backends fetch etcd@3.5.16`, or name some in \
           FENCEPOST_TEST_ETCD=PATH[:PATH…]",
};

/// Runs a test on every version there is, all at once, and says so when there is none.
pub(crate) fn on_each_version<F>(test: fn(Server) -> F)
where
    F: Future<Output = ()>,
{
    on_each(SEARCH.found(), |binary| async move {
        let peer = free_address();
        let mut server = Server::new(&binary, Etcd { peer });
        server.restart().await;
        let etcd = EtcdClient::connect(server.endpoint, Etcd::READY_WITHIN).await;
        let status = etcd.expect("connected").status(Etcd::READY_WITHIN).await;
        server.version = status.expect("a status").version;
        println!("etcd {} at {}", server.version, server.endpoint);
        test(server).await;
    });
}

/// A cluster of one.
pub(crate) struct Etcd {
    peer: SocketAddr,
}

impl Etcd {
    const LIMIT: Duration = Duration::from_millis(300);
}

impl Kind for Etcd {
    const READY_WITHIN: Duration = Duration::from_secs(20);

    fn command(server: &Server) -> Command {
        let url = |address: SocketAddr| format!("http://{address}");
        let (endpoint, peer) = (url(server.endpoint), url(server.kind.peer));
        let mut command = Command::new(server.path());
        command
            .args(["--name", "n1", "--data-dir"])
            .arg(server.data().join("data"))
            .args(["--listen-client-urls", &endpoint])
            .args(["--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("n1={peer}")])
            // The least TTL is 1.5 election timeouts, rounded up to seconds: 1 s here.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        command
    }

    /// It accepts a write.
    async fn is_ready(server: &Server) -> bool {
        match EtcdClient::connect(server.endpoint, Self::LIMIT).await {
            Ok(client) => client.put(b"ready", Vec::new(), Self::LIMIT).await.is_ok(),
            Err(_) => false,
        }
    }
}

impl Server {
    /// True for servers since a minor version of etcd 3.
    pub(crate) fn is_since_3(&self, minor: u32) -> bool {
        self.version_part(1) >= minor
    }
}
