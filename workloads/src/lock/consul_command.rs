//! `consul-command`: the command `consul lock` itself, which runs a child for as long as it holds the lock.
//!
//! The child says when it was started, waits until it is told to end, and says so when it is killed because
//! the lock was lost. Everything else is the command's own: a session of 15 s that cannot be changed, its
//! renewals, a monitor that puts up with three errors. The command tells its child no token. What must not
//! be in here: requests to Consul.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::belief::{Belief, Moment};
use crate::consul::LOCK_PREFIX;
use crate::discipline::Discipline;
use crate::lock::{Grant, LockAsk, LockClient, LockConfig, LockConnection, LockSpec};
use crate::reply::Reply;

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "consul-command",
    summary: "The command `consul lock` itself: a foreign holder, whose child is the one that believes.",
    backend: "consul",
    token: "none",
    leased: true,
    disciplines: &[Discipline::Ignore, Discipline::Session],
    options: &[],
    check,
    connect,
};

/// Go: `DefaultLockSessionTTL`.
const TTL_MS: u64 = 15_000;

/// Says `held` when it starts, `lost` when it is told to end, and ends by itself with its input.
const CHILD: &str =
    r#"trap 'echo lost; exit 0' TERM; exec 3<&0; echo held; cat <&3 >/dev/null & wait $!"#;

fn check(ask: &LockAsk<'_>) -> Result<(), String> {
    if ask.ttl_ms != TTL_MS {
        return Err("a `ttl` of 15s, as `consul lock` takes no other".to_owned());
    }
    if !ask.keep_alive {
        return Err("`keep_alive`, as `consul lock` cannot do without".to_owned());
    }
    Ok(())
}

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        if config.endpoint.is_none() || config.program.is_empty() {
            return Err(format!(
                "lock `{}` expects a Consul server and its program, found endpoint {:?} and program {:?}",
                SPEC.name, config.endpoint, config.program
            ));
        }
        Ok(Box::new(Connection(Arc::new(config))) as Box<dyn LockConnection>)
    }
    .boxed()
}

struct Connection(Arc<LockConfig>);

impl LockConnection for Connection {
    fn client(&self, _client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        Box::new(Client {
            config: Arc::clone(&self.0),
            belief,
            running: None,
        })
    }
}

struct Client {
    config: Arc<LockConfig>,
    belief: Arc<Belief>,
    running: Option<Running>,
}

/// A command whose child runs. Dropped, it is killed; its child then ends with its input.
struct Running {
    command: Child,
    /// Its end is the child's.
    input: ChildStdin,
    /// Waits for the child's last word.
    listening: tokio::task::AbortHandle,
}

impl Client {
    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        if self.running.is_some() {
            return Reply::fail("lock-held", "this client holds a lock already");
        }
        // The session is not there before the command is: it lives at least 15 s from here.
        let sent = Moment::now();
        let mut command = match self.command(lock).spawn() {
            Ok(command) => command,
            Err(error) => {
                let program = self.config.program.join(" ");
                return Reply::fail("not-started", format!("{program}: {error}"));
            }
        };
        let (Some(input), Some(output)) = (command.stdin.take(), command.stdout.take()) else {
            return Reply::fail("not-started", "the command has no pipes");
        };
        let mut lines = BufReader::new(output).lines();
        // The command's own limit ends only its waiting, not requests that nobody answers.
        let limit = self.config.acquire_timeout() + self.config.request_timeout();
        match tokio::time::timeout(limit, until_held(&mut lines)).await {
            Ok(true) => {}
            Ok(false) => return refused(command).await,
            // Dropped, it is killed; what it asked for may still come to be.
            Err(_) => return Reply::info("timeout", "the command neither holds nor ends"),
        }
        self.belief.granted(sent, Duration::from_millis(TTL_MS));
        let listening = tokio::spawn(listen(lines, Arc::clone(&self.belief))).abort_handle();
        self.running = Some(Running {
            command,
            input,
            listening,
        });
        Reply::Ok(Grant::default())
    }

    fn command(&self, lock: &str) -> Command {
        let mut words = self.config.program.iter();
        let mut command = Command::new(words.next().map_or("consul", String::as_str));
        let endpoint = self
            .config
            .endpoint
            .map_or_else(String::new, |it| it.to_string());
        command
            .args(words)
            .arg("lock")
            .arg(format!("-http-addr={endpoint}"))
            .arg(format!("-timeout={}ms", self.config.acquire_timeout_ms))
            .args(["-pass-stdin", "-shell=false", "-child-exit-code"])
            .arg(format!("{LOCK_PREFIX}{lock}"))
            .args(["/bin/sh", "-c", CHILD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Ends the child, upon which the command frees the lock, removes its key, and ends.
    async fn release(&mut self) -> Reply<()> {
        let Some(running) = self.running.take() else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        self.belief.cleared();
        let Running {
            command,
            input,
            listening,
        } = running;
        listening.abort();
        drop(input);
        let ended = tokio::time::timeout(self.config.request_timeout(), words(command));
        match ended.await {
            Ok((true, _)) => Reply::Ok(()),
            Ok((false, text)) => Reply::info("command-failed", text),
            // Dropped, it is killed.
            Err(_) => Reply::info("timeout", "the command does not end"),
        }
    }
}

/// Waits for the child's first word: whether there was one.
async fn until_held(lines: &mut Lines<BufReader<ChildStdout>>) -> bool {
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "held" {
            return true;
        }
    }
    false
}

/// Waits for the child's last word.
async fn listen(mut lines: Lines<BufReader<ChildStdout>>, belief: Arc<Belief>) {
    let why = match lines.next_line().await {
        Ok(Some(line)) if line == "lost" => "`consul lock` ended its child",
        _ => "`consul lock` ended",
    };
    belief.lost(why);
}

/// What came of a command that ended before its child was started.
async fn refused(command: Child) -> Reply<Grant> {
    let (_, text) = words(command).await;
    if text.contains("failed to acquire lock") {
        // It was asked for, and nobody gives it back: the session ends by itself.
        return Reply::info("command-failed", text);
    }
    let code = if text.contains("timeout during lock acquisition") {
        "timeout"
    } else {
        "command-failed"
    };
    Reply::fail(code, text)
}

/// Waits for a command's end: whether it succeeded, and what it complained of.
async fn words(mut command: Child) -> (bool, String) {
    let mut text = String::new();
    if let Some(mut complaints) = command.stderr.take() {
        // Its end is the command's; what cannot be read is only missing from a message.
        let _ = complaints.read_to_string(&mut text).await;
    }
    let succeeded = command.wait().await.is_ok_and(|status| status.success());
    (succeeded, text.trim().replace('\n', "; "))
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // If that fails, the session ends by itself.
            let _ = self.release().await;
        }
        .boxed()
    }
}
