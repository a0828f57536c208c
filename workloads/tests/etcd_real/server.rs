//! A single etcd node of each version that this machine has, for tests. Loopback only; it stops only the
//! processes that it started itself.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use workloads::etcd::EtcdClient;

/// A running node. Its data is deleted with it.
pub(crate) struct Server {
    pub(crate) endpoint: SocketAddr,
    pub(crate) version: String,
    binary: PathBuf,
    peer: SocketAddr,
    child: Child,
    data: tempfile::TempDir,
}

/// Runs a test on every version there is, all at once, and says so when there is none.
pub(crate) fn on_each_version<F>(test: fn(Server) -> F)
where
    F: Future<Output = ()>,
{
    let binaries = binaries();
    if binaries.is_empty() {
        println!(
            "skipped: no etcd binary. Run `fencepost backends fetch etcd@3.5.16`, or name some in \
             FENCEPOST_TEST_ETCD=PATH[:PATH…]"
        );
        return;
    }
    std::thread::scope(|scope| {
        for binary in binaries {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    let server = Server::start(binary).await;
                    println!("etcd {} at {}", server.version, server.endpoint);
                    test(server).await;
                });
            });
        }
    });
}

/// `FENCEPOST_TEST_ETCD`, else whatever the cache holds.
fn binaries() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("FENCEPOST_TEST_ETCD").filter(|named| !named.is_empty()) {
        return std::env::split_paths(&named).collect();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let mut found = Vec::new();
    if let Some(cache) = cache {
        find(&cache.join("fencepost"), 6, &mut found);
    }
    found.sort();
    found
}

fn find(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => find(&path, depth - 1, found),
            Ok(kind)
                if kind.is_file()
                    && path.file_name().is_some_and(|name| name == "etcd")
                    && is_program(&path) =>
            {
                found.push(path);
            }
            _ => {}
        }
    }
}

/// The packages hold a start script of the same name.
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

impl Server {
    async fn start(binary: PathBuf) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let (endpoint, peer) = (free_address(), free_address());
        let child = spawn(&binary, data.path(), endpoint, peer);
        let mut server = Self {
            endpoint,
            version: String::new(),
            binary,
            peer,
            child,
            data,
        };
        server.version = server.ready().await;
        server
    }

    /// Kills the node, as power loss of its process does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the killed node again on its data and address.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.binary, self.data.path(), self.endpoint, self.peer);
        self.ready().await;
    }

    /// Stops the node in its tracks; it is stopped when this returns.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("our own child");
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// True for servers since a minor version of etcd 3.
    pub(crate) fn is_since_3(&self, minor: u32) -> bool {
        let found = self
            .version
            .split('.')
            .nth(1)
            .and_then(|minor| minor.parse::<u32>().ok());
        found.expect("a version number") >= minor
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("our own child");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Waits until a write is accepted; returns the version.
    async fn ready(&mut self) -> String {
        let (start, limit) = (Instant::now(), Duration::from_millis(300));
        loop {
            if let Ok(client) = EtcdClient::connect(self.endpoint, limit).await
                && client.put(b"ready", Vec::new(), limit).await.is_ok()
            {
                return client.status(limit).await.expect("a status").version;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} ended at its start: {status}", self.binary.display());
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{} accepts no write",
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

fn spawn(binary: &Path, data: &Path, endpoint: SocketAddr, peer: SocketAddr) -> Child {
    let url = |address: SocketAddr| format!("http://{address}");
    Command::new(binary)
        .args(["--name", "n1", "--data-dir"])
        .arg(data.join("data"))
        .args([
            "--listen-client-urls",
            &url(endpoint),
            "--advertise-client-urls",
            &url(endpoint),
        ])
        .args([
            "--listen-peer-urls",
            &url(peer),
            "--initial-advertise-peer-urls",
            &url(peer),
        ])
        .args(["--initial-cluster", &format!("n1={}", url(peer))])
        // The least TTL is 1.5 election timeouts, rounded up to seconds: 1 s here.
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", binary.display()))
}
