//! A single ZooKeeper server of each version that this machine has, for tests. Loopback only; it stops only
//! the processes that it started itself.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use workloads::zookeeper::status;

/// Sessions last at least two of these.
pub(crate) const TICK_MS: u64 = 500;

/// And at most this long: longer than a restart takes on a busy machine, where the usual twenty ticks are not.
pub(crate) const LONGEST_SESSION_MS: u64 = 60_000;

/// A running server. Its data is deleted with it.
pub(crate) struct Server {
    pub(crate) endpoint: SocketAddr,
    pub(crate) version: String,
    jars: PathBuf,
    child: Child,
    data: tempfile::TempDir,
}

/// Runs a test on every version there is, all at once, and says so when there is none.
pub(crate) fn on_each_version<F>(test: fn(Server) -> F)
where
    F: Future<Output = ()>,
{
    let folders = folders();
    if folders.is_empty() {
        println!(
            "skipped: no ZooKeeper. Run `fencepost backends fetch zookeeper@3.8.0`, or name folders with its jars \
             in FENCEPOST_TEST_ZOOKEEPER=FOLDER[:FOLDER…]"
        );
        return;
    }
    if !Command::new("java")
        .arg("-version")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: no `java` on PATH");
        return;
    }
    std::thread::scope(|scope| {
        for jars in folders {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    let server = Server::start(jars).await;
                    println!("zookeeper {} at {}", server.version, server.endpoint);
                    test(server).await;
                });
            });
        }
    });
}

/// `FENCEPOST_TEST_ZOOKEEPER`, else whatever the cache holds.
fn folders() -> Vec<PathBuf> {
    if let Some(named) =
        std::env::var_os("FENCEPOST_TEST_ZOOKEEPER").filter(|named| !named.is_empty())
    {
        return std::env::split_paths(&named).collect();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let mut found = Vec::new();
    if let Some(cache) = cache {
        find(&cache.join("fencepost").join("zookeeper"), 6, &mut found);
    }
    found.sort();
    found
}

fn find(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    if folder.join("zookeeper.jar").exists() {
        found.push(folder.to_owned());
        return;
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find(&entry.path(), depth - 1, found);
        }
    }
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
    async fn start(jars: PathBuf) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let endpoint = free_address();
        let text = format!(
            "tickTime={TICK_MS}\ndataDir={}\nclientPort={}\nclientPortAddress={}\nmaxClientCnxns=0\n\
             maxSessionTimeout={LONGEST_SESSION_MS}\n",
            data.path().join("data").display(),
            endpoint.port(),
            endpoint.ip()
        );
        std::fs::write(data.path().join("zoo.cfg"), text).expect("a configuration");
        let child = spawn(&jars, data.path());
        let mut server = Self {
            endpoint,
            version: String::new(),
            jars,
            child,
            data,
        };
        server.version = server.ready().await;
        server
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the killed server again on its data and address.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.jars, self.data.path());
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
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Waits until it serves; returns the version.
    async fn ready(&mut self) -> String {
        let (start, limit) = (Instant::now(), Duration::from_millis(300));
        loop {
            if let Ok(status) = status(self.endpoint, limit).await {
                return status.version;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} ended at its start: {status}", self.jars.display());
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{} does not serve",
                self.jars.display()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(jars: &Path, data: &Path) -> Child {
    Command::new("java")
        .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args([
            "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.4lw.commands.whitelist=*",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Djava.net.preferIPv4Stack=true",
        ])
        .arg("-cp")
        .arg(class_path(jars))
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(data.join("zoo.cfg"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("java starts")
}

/// What a server needs of the folder, in which other jars may lie too.
fn class_path(jars: &Path) -> String {
    let names = [
        "zookeeper.jar",
        "zookeeper-jute.jar",
        "slf4j-api.jar",
        "slf4j-simple.jar",
        "metrics-core.jar",
        "snappy-java.jar",
    ];
    let paths = names.map(|name| jars.join(name).display().to_string());
    paths.join(":")
}
