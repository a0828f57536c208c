//! A single Redis of each version that this machine has, for tests. Loopback only; it stops only the processes
//! that it started itself.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A running server. Its data is deleted with it.
pub(crate) struct Server {
    pub(crate) endpoint: SocketAddr,
    pub(crate) version: String,
    program: PathBuf,
    flags: Vec<String>,
    child: Child,
    data: tempfile::TempDir,
}

/// Runs a test on every version there is, all at once, and says so when there is none.
pub(crate) fn on_each_version<F>(test: fn(PathBuf) -> F)
where
    F: Future<Output = ()>,
{
    let programs = programs();
    if programs.is_empty() {
        println!(
            "skipped: no redis-server. Run `fencepost backends fetch redis@7.0.15`, or name some in \
             FENCEPOST_TEST_REDIS=PATH[:PATH…]"
        );
        return;
    }
    std::thread::scope(|scope| {
        for program in programs {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(test(program));
            });
        }
    });
}

/// `FENCEPOST_TEST_REDIS`, else whatever the cache holds.
fn programs() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("FENCEPOST_TEST_REDIS").filter(|named| !named.is_empty())
    {
        return std::env::split_paths(&named).collect();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let mut found = Vec::new();
    if let Some(cache) = cache {
        for backend in ["redis", "valkey"] {
            find(&cache.join("fencepost").join(backend), 6, &mut found);
        }
    }
    found.sort();
    found
}

fn find(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Packages have other files of that name, such as `etc/default/redis-server`.
        let is_server = ["redis-server", "valkey-server"]
            .iter()
            .any(|name| path.ends_with(Path::new("usr/bin").join(name)));
        if path.is_dir() && depth > 0 {
            find(&path, depth - 1, found);
        } else if is_server && path.exists() {
            found.push(path);
        }
    }
}

/// A fetched server is started by the loader, and with the libraries, that were unpacked beside it
/// (`FILES/usr/bin/redis-server`); any other as it is.
fn launch(program: &Path) -> Command {
    let files = program.ancestors().nth(3).unwrap_or(Path::new("/"));
    let folders = ["lib", "usr/lib"].map(|lib| files.join(lib).join("x86_64-linux-gnu"));
    let loaders = folders
        .iter()
        .map(|folder| folder.join("ld-linux-x86-64.so.2"));
    match loaders.into_iter().find(|loader| loader.exists()) {
        Some(loader) if files != Path::new("/") => {
            let mut command = Command::new(loader);
            let search = std::env::join_paths(&folders).expect("no colons");
            command.arg("--library-path").arg(search).arg(program);
            command
        }
        _ => Command::new(program),
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
    /// Starts one with further flags, and waits until it answers.
    pub(crate) async fn start(program: &Path, flags: &[&str]) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let endpoint = free_address();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let child = spawn(program, data.path(), endpoint, &flags);
        let mut server = Self {
            endpoint,
            version: String::new(),
            program: program.to_owned(),
            flags,
            child,
            data,
        };
        server.ready().await;
        let info = server.ask("INFO server");
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        server.version = version.unwrap_or("unknown").to_owned();
        println!("redis {} at {}", server.version, server.endpoint);
        server
    }

    /// Kills the server, as the crash of its process does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the killed server again on its data and address, with further flags.
    pub(crate) async fn restart(&mut self, flags: &[&str]) {
        self.flags
            .extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.child = spawn(&self.program, self.data.path(), self.endpoint, &self.flags);
        self.ready().await;
    }

    /// Its data folder.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
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

    /// True for servers since Redis 7.0.
    pub(crate) fn is_since_7(&self) -> bool {
        let major = self
            .version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        major.expect("a version number") >= 7
    }

    /// Sends one command over a connection of its own, in the form that people type, and returns the answer.
    pub(crate) fn ask(&self, command: &str) -> String {
        ask(self.endpoint, command).expect("an answer")
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("our own child");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Waits until it answers anything at all, be it that it is loading.
    async fn ready(&mut self) {
        let start = Instant::now();
        while ask(self.endpoint, "PING").is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} ended at its start: {status}", self.program.display());
            }
            let late = start.elapsed() >= Duration::from_secs(20);
            assert!(!late, "{} does not answer", self.program.display());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One command and its answer: a line, or the text of a string.
pub(crate) fn ask(endpoint: SocketAddr, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(endpoint)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let Some(length) = line
        .strip_prefix('$')
        .and_then(|length| length.trim().parse::<usize>().ok())
    else {
        return Ok(line.trim_end().to_owned());
    };
    let mut text = vec![0; length];
    std::io::Read::read_exact(&mut reader, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn spawn(program: &Path, data: &Path, endpoint: SocketAddr, flags: &[String]) -> Child {
    let own: Vec<OsString> = vec![
        "--port".into(),
        endpoint.port().to_string().into(),
        "--bind".into(),
        endpoint.ip().to_string().into(),
        "--dir".into(),
        data.into(),
        "--save".into(),
        "".into(),
        "--notify-keyspace-events".into(),
        "Eg$x".into(),
    ];
    launch(program)
        .args(own)
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()))
}
