//! Consul clusters on loopback, for tests. They stop only the processes that they started themselves.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use workloads::consul::{ConsulClient, SessionAsk};

/// A running server. Its data is deleted with it.
pub(crate) struct Server {
    pub(crate) endpoint: SocketAddr,
    /// Where the servers talk to each other.
    pub(crate) rpc: SocketAddr,
    serf: SocketAddr,
    command: Vec<String>,
    binary: PathBuf,
    child: Option<Child>,
    data: tempfile::TempDir,
}

/// Runs a test on a cluster of `servers`, of which `expected` make it elect a leader, and says so when this
/// machine has no Consul.
pub(crate) fn on_cluster<F>(servers: u32, expected: u32, test: fn(Vec<Server>) -> F)
where
    F: Future<Output = ()>,
{
    let Some(binary) = binary() else {
        println!(
            "skipped: no consul binary. Run `fencepost backends fetch consul@1.8.7`, or name one in \
             FENCEPOST_TEST_CONSUL=PATH"
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let servers = start(&binary, servers, expected);
        if servers.len() >= expected as usize {
            for server in &servers {
                server.ready().await;
            }
        }
        test(servers).await;
    });
}

/// `FENCEPOST_TEST_CONSUL`, else what the cache holds.
fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("FENCEPOST_TEST_CONSUL").filter(|named| !named.is_empty());
    if let Some(named) = named {
        return Some(named.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    find(&cache.join("fencepost"), 6)
}

fn find(folder: &Path, depth: u32) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        let kind = entry.file_type().ok()?;
        if kind.is_dir() && depth > 0 {
            return find(&path, depth - 1);
        }
        let named = path.file_name().is_some_and(|name| name == "consul");
        (kind.is_file() && named && is_program(&path)).then_some(path)
    })
}

/// The package holds other files of the same name.
fn is_program(path: &Path) -> bool {
    let mut magic = [0; 4];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok()
        && magic == *b"\x7fELF"
}

/// An address that stays free while its server is down for a restart: below the range from which the kernel
/// takes ports by itself, and given out once.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id() * 100 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(20_000 + offset % 12_000).expect("below 32,000");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

fn start(binary: &Path, servers: u32, expected: u32) -> Vec<Server> {
    let mut servers: Vec<Server> = (0..servers)
        .map(|_| Server {
            endpoint: free_address(),
            rpc: free_address(),
            serf: free_address(),
            command: Vec::new(),
            binary: binary.to_owned(),
            child: None,
            data: tempfile::tempdir().expect("a temporary folder"),
        })
        .collect();
    let joins: Vec<SocketAddr> = servers.iter().map(|server| server.serf).collect();
    for (index, server) in servers.iter_mut().enumerate() {
        server.command = server.words(index, expected, &joins);
        server.spawn();
    }
    servers
}

impl Server {
    fn words(&self, index: usize, expected: u32, joins: &[SocketAddr]) -> Vec<String> {
        let mut words = vec!["agent".to_owned(), "-server".to_owned()];
        let mut flag = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        flag("node", format!("n{}", index + 1));
        flag("data-dir", self.data.path().display().to_string());
        flag("bind", "127.0.0.1".to_owned());
        flag("client", "127.0.0.1".to_owned());
        flag("bootstrap-expect", expected.to_string());
        flag("retry-interval", "200ms".to_owned());
        for join in joins.iter().filter(|join| **join != self.serf) {
            flag("retry-join", join.to_string());
        }
        let ports = format!(
            "ports {{ dns = -1, serf_wan = -1, http = {}, server = {}, serf_lan = {} }}",
            self.endpoint.port(),
            self.rpc.port(),
            self.serf.port()
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
        words
    }

    fn spawn(&mut self) {
        let child = Command::new(&self.binary)
            .args(&self.command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.binary.display()));
        self.child = Some(child);
    }

    /// The program, as a lock's configuration has it.
    pub(crate) fn program(&self) -> String {
        self.binary.display().to_string()
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the killed server again on its data and addresses.
    pub(crate) async fn restart(&mut self) {
        self.spawn();
        self.ready().await;
    }

    /// Stops the server in its tracks; it is stopped when this returns.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("our own child");
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("our own child");
    }

    fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("running").id();
        Pid::from_raw(i32::try_from(id).expect("a process id"))
    }

    /// Waits until a session can be had.
    async fn ready(&self) {
        let (start, limit) = (Instant::now(), Duration::from_millis(300));
        let ask = SessionAsk {
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            behaviour: "delete".to_owned(),
            serf_health: true,
        };
        loop {
            if let Ok(client) = ConsulClient::connect(self.endpoint, limit).await
                && let Ok(session) = client.create_session(&ask, limit).await
                && client.destroy_session(&session, limit).await.is_ok()
            {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(40),
                "{} gives no session",
                self.binary.display()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
