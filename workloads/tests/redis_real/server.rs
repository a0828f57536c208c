//! Single Redis servers of each version that this machine has.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::real::search::{Search, is_program, on_each};
use crate::real::server::{self, Kind};

pub(crate) type Server = server::Server<Redis>;

const SEARCH: Search = Search {
    variable: "FENCEPOST_TEST_REDIS",
    folder: "redis",
    is_one: |path| is_program(path, "redis-server") || is_program(path, "valkey-server"),
    lack: "no redis-server. Run `fencepost backends fetch redis@7.0.15`, or name some in \
           FENCEPOST_TEST_REDIS=PATH[:PATH…]",
};

/// Runs a test on every version there is, all at once, and says so when there is none.
pub(crate) fn on_each_version<F>(test: fn(PathBuf) -> F)
where
    F: Future<Output = ()>,
{
    on_each(SEARCH.found(), test);
}

/// A server that knows of no other, unless its flags say so.
pub(crate) struct Redis {
    flags: Vec<String>,
}

impl Kind for Redis {
    const READY_WITHIN: Duration = Duration::from_secs(20);

    fn command(server: &Server) -> Command {
        let mut command = launch(server.path());
        command
            .args(["--port", &server.endpoint.port().to_string()])
            .args(["--bind", &server.endpoint.ip().to_string()])
            .arg("--dir")
            .arg(server.data())
            .args(["--save", "", "--notify-keyspace-events", "Eg$x"])
            .args(&server.kind.flags);
        command
    }

    /// It answers anything at all, be it that it is loading.
    async fn is_ready(server: &Server) -> bool {
        ask(server.endpoint, "PING").is_ok()
    }
}

impl Server {
    /// Starts one with further flags, and waits until it answers.
    pub(crate) async fn start(program: &Path, flags: &[&str]) -> Self {
        let mut server = Self::new(program, Redis { flags: Vec::new() });
        server.restart_with(flags).await;
        let info = server.ask("INFO server");
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        server.version = version.unwrap_or("unknown").to_owned();
        println!("redis {} at {}", server.version, server.endpoint);
        server
    }

    /// As `restart`, with further flags.
    pub(crate) async fn restart_with(&mut self, flags: &[&str]) {
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        self.kind.flags.extend(flags);
        self.restart().await;
    }

    /// True for servers since Redis 7.0.
    pub(crate) fn is_since_7(&self) -> bool {
        self.version_part(0) >= 7
    }

    /// Sends one command over a connection of its own, in the form that people type, and returns the answer.
    pub(crate) fn ask(&self, command: &str) -> String {
        ask(self.endpoint, command).expect("an answer")
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
