//! What a clock of its own costs at rate 1 and at 2: a single wait, and a real etcd.
//!
//! One etcd a kind runs all the time, and they are measured in turns of a second or so, in another order each
//! round, because a busy machine drifts. A ratio is between two turns of one round; its spread over the
//! rounds says what it is worth.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nemesis::clock::HostClock;
use nemesis::clock::launch::Clocked;
use tokio::runtime::Runtime;
use workloads::reply::Reply;
use workloads::resource::{self, Resource, ResourceConfig, Write};

use super::{Scratch, free_address, quartiles};

/// Clients when it is busy.
const MANY: u64 = 32;
/// Rounds: a turn of each kind.
const ROUNDS: usize = 10;
/// Calls whose cost is averaged.
const CALLS: u64 = 20_000;

/// The kinds that are compared; the first is what the others are compared with.
const KINDS: [(&str, Option<f64>); 3] = [
    ("without", None),
    ("with, at 1×", Some(1.0)),
    ("with, at 2×", Some(2.0)),
];

/// Measures what a timed wait costs that is over at once, and prints it.
pub(super) fn measure_calls() -> Result<()> {
    let mut costs = Vec::new();
    for (name, rate) in KINDS {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["clock-subject", "waits", &CALLS.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut said = String::new();
        let mut process = Process::start(command, rate)?;
        process
            .out()
            .context("it has no standard output")?
            .read_to_string(&mut said)?;
        let ns: u64 = said.trim().parse().context("it said no number")?;
        costs.push(format!("{name} {:.2} µs", ns as f64 / 1e3));
    }
    println!(
        "a timed wait that is over at once, on average of {CALLS}: {}",
        costs.join(", ")
    );
    Ok(())
}

/// Measures what it costs etcd, and prints it.
pub(super) fn measure_etcd(etcd: &Path, length: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let scratch = Scratch::new("etcd")?;
    let servers = KINDS
        .iter()
        .enumerate()
        .map(|(index, (_, rate))| {
            Server::start(etcd, *rate, &scratch.0.join(index.to_string()), &runtime)
        })
        .collect::<Result<Vec<Server>>>()?;
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); KINDS.len()];
    for round in 0..ROUNDS {
        for place in 0..KINDS.len() {
            let index = (place + round) % KINDS.len();
            let turn = runtime.block_on(servers[index].turn(length / ROUNDS as u32))?;
            turns[index].push(turn);
        }
    }
    drop(servers);
    runtime.shutdown_background();
    println!(
        "etcd, one node, {ROUNDS} rounds; ratios: median, and what half of the rounds lie within"
    );
    for ((name, _), of_kind) in KINDS.iter().zip(&turns) {
        let figures = |of: fn(&Turn) -> f64| {
            let [_, median, _] = quartiles(of_kind.iter().map(of).collect());
            let pairs = of_kind.iter().zip(&turns[0]);
            let [low, middle, high] =
                quartiles(pairs.map(|(one, plain)| of(one) / of(plain)).collect());
            (median, format!("{middle:.3} ({low:.3} to {high:.3})"))
        };
        let (puts, puts_ratio) = figures(|turn| turn.puts_per_s);
        let (p50_ms, p50_ratio) = figures(|turn| turn.alone_p50_ms);
        println!(
            "  {name:<12} {MANY} clients: {puts:>6.0} puts/s, {puts_ratio}; one client: p50 {p50_ms:.3} ms, {p50_ratio}"
        );
    }
    Ok(())
}

/// A process with a clock of its own or without; it ends when this is dropped.
enum Process {
    Plain(Child),
    Clocked(Clocked),
}

impl Process {
    fn start(mut command: Command, rate: Option<f64>) -> Result<Self> {
        let Some(rate) = rate else {
            return Ok(Self::Plain(command.spawn()?));
        };
        let clock = HostClock::new("bench");
        // At 1 the clock is one that was never changed, as before a fault.
        if rate != 1.0 {
            clock.set_rate(rate)?;
        }
        Ok(Self::Clocked(clock.spawn(&mut command)?))
    }

    fn out(&mut self) -> Option<ChildStdout> {
        match self {
            Self::Plain(child) => child.stdout.take(),
            Self::Clocked(process) => process.stdout.take(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Plain(child) = self {
            // Already dead is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Figures of one turn.
#[derive(Clone, Copy)]
struct Turn {
    puts_per_s: f64,
    alone_p50_ms: f64,
}

/// A running etcd and its clients, the first of which is the one that is alone.
struct Server {
    clients: Vec<Arc<dyn Resource>>,
    /// Number of the next put of each client; elements are never written twice.
    next: AtomicU64,
    _process: Process,
}

impl Server {
    fn start(etcd: &Path, rate: Option<f64>, folder: &Path, runtime: &Runtime) -> Result<Self> {
        let (client, peer) = (free_address()?, free_address()?);
        let url = |address: SocketAddr| format!("http://{address}");
        let mut command = Command::new(etcd);
        command
            .args(["--name", "bench", "--data-dir"])
            .arg(folder)
            .args(["--listen-client-urls", &url(client)])
            .args(["--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer)])
            .args(["--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("bench={}", url(peer))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::start(command, rate).context("cannot start etcd")?;
        let clients = runtime.block_on(connect_all(client))?;
        Ok(Self {
            clients,
            next: AtomicU64::new(1),
            _process: process,
        })
    }

    /// One client alone for that long, and all of them for that long.
    async fn turn(&self, length: Duration) -> Result<Turn> {
        let mut times = Vec::new();
        let began = Instant::now();
        while began.elapsed() < length {
            let put_began = Instant::now();
            put(&*self.clients[0], 0, self.next()).await?;
            times.push(put_began.elapsed());
        }
        times.sort_unstable();
        let began = Instant::now();
        let busy = self.clients.iter().enumerate().map(|(number, client)| {
            let number = number as u64;
            async move {
                let mut done = 0_u64;
                while began.elapsed() < length {
                    put(&**client, number, self.next()).await?;
                    done += 1;
                }
                anyhow::Ok(done)
            }
        });
        let done = futures_util::future::try_join_all(busy).await?;
        Ok(Turn {
            puts_per_s: done.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64(),
            alone_p50_ms: times[times.len() / 2].as_secs_f64() * 1e3,
        })
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Connects every client, as soon as the server accepts writes.
async fn connect_all(endpoint: SocketAddr) -> Result<Vec<Arc<dyn Resource>>> {
    let began = Instant::now();
    let first = loop {
        match connect(endpoint).await {
            Ok(resource) if put(&*resource, 0, 0).await.is_ok() => break resource,
            _ if began.elapsed() > Duration::from_secs(20) => {
                bail!("etcd does not accept writes within 20 s")
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let mut clients = vec![first];
    for _ in 1..MANY {
        clients.push(connect(endpoint).await?);
    }
    Ok(clients)
}

async fn connect(endpoint: SocketAddr) -> Result<Arc<dyn Resource>> {
    let kind = resource::find("etcd").context("this build has no resource etcd")?;
    let config = ResourceConfig {
        endpoint: Some(endpoint),
        request_timeout_ms: 5_000,
        ..ResourceConfig::default()
    };
    (kind.connect)(config).await.map_err(|why| anyhow!(why))
}

async fn put(resource: &dyn Resource, client: u64, op: u64) -> Result<()> {
    let write = Write {
        key: &format!("bench-{client}"),
        op,
        elements: &[op],
        token: None,
        guard: None,
    };
    match resource.write(write).await {
        Reply::Fail(why) | Reply::Info(why) => bail!("a put failed: {why}"),
        Reply::Ok(_) => Ok(()),
    }
}
