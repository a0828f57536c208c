//! Consul clusters.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use workloads::consul::{ConsulClient, SessionAsk};

use crate::real::search::{Search, block_on, is_program};
use crate::real::server::{self, Kind, free_address};

pub(crate) type Server = server::Server<Consul>;

const SEARCH: Search = Search {
    variable: "FENCEPOST_TEST_CONSUL",
    folder: "consul",
    is_one: |path| is_program(path, "consul"),
    lack: "no consul binary. Run `fencepost backends fetch consul@1.8.7`, or name one in \
           FENCEPOST_TEST_CONSUL=PATH",
};

/// Runs a test on a cluster of `servers`, of which `expected` make it elect a leader, and says so when this
/// machine has no Consul.
pub(crate) fn on_cluster<F>(servers: u32, expected: u32, test: fn(Vec<Server>) -> F)
where
    F: Future<Output = ()>,
{
    let Some(binary) = SEARCH.found().into_iter().next() else {
        return;
    };
    block_on(async {
        let mut servers = start(&binary, servers, expected);
        if servers.len() >= expected as usize {
            for server in &mut servers {
                server.ready().await;
            }
        }
        test(servers).await;
    });
}

fn start(binary: &Path, servers: u32, expected: u32) -> Vec<Server> {
    let member = |number| Consul {
        rpc: free_address(),
        serf: free_address(),
        name: format!("n{number}"),
        expected,
        joins: Vec::new(),
    };
    let mut servers: Vec<Server> = (1..=servers)
        .map(|number| Server::new(binary, member(number)))
        .collect();
    let serfs: Vec<SocketAddr> = servers.iter().map(|server| server.kind.serf).collect();
    for server in &mut servers {
        let own = server.kind.serf;
        server.kind.joins = serfs.iter().copied().filter(|serf| *serf != own).collect();
        server.spawn();
    }
    servers
}

/// A member of a cluster.
pub(crate) struct Consul {
    /// Where the servers talk to each other.
    pub(crate) rpc: SocketAddr,
    serf: SocketAddr,
    name: String,
    expected: u32,
    joins: Vec<SocketAddr>,
}

impl Kind for Consul {
    const READY_WITHIN: Duration = Duration::from_secs(40);

    fn command(server: &Server) -> Command {
        let member = &server.kind;
        let mut words = vec!["agent".to_owned(), "-server".to_owned()];
        let mut flag = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        flag("node", member.name.clone());
        flag("data-dir", server.data().display().to_string());
        flag("bind", "127.0.0.1".to_owned());
        flag("client", "127.0.0.1".to_owned());
        flag("bootstrap-expect", member.expected.to_string());
        flag("retry-interval", "200ms".to_owned());
        for join in &member.joins {
            flag("retry-join", join.to_string());
        }
        let ports = format!(
            "ports {{ dns = -1, serf_wan = -1, http = {}, server = {}, serf_lan = {} }}",
            server.endpoint.port(),
            member.rpc.port(),
            member.serf.port()
        );
        for setting in [
            &ports,
            // A request that finds no leader is held back only briefly, not for 7 s.
            "performance { raft_multiplier = 1, rpc_hold_timeout = \"200ms\" }",
            "session_ttl_min = \"100ms\"",
            "connect { enabled = false }",
            "disable_update_check = true",
        ] {
            flag("hcl", setting.to_owned());
        }
        let mut command = Command::new(server.path());
        command.args(words);
        command
    }

    /// A session can be had.
    async fn is_ready(server: &Server) -> bool {
        let limit = Duration::from_millis(300);
        let ask = SessionAsk {
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            behaviour: "delete".to_owned(),
            serf_health: true,
        };
        let Ok(client) = ConsulClient::connect(server.endpoint, limit).await else {
            return false;
        };
        match client.create_session(&ask, limit).await {
            Ok(session) => client.destroy_session(&session, limit).await.is_ok(),
            Err(_) => false,
        }
    }
}
