//! What a clock of its own costs at rate 1 and at 2: a single wait, and a real etcd.
//!
//! One etcd a kind runs all the time, and they are measured in short turns, in another order each round,
//! because a busy machine drifts. A ratio is between two turns of one round; its spread over the rounds says
//! what it is worth. The CPU time of a put, supervisor included, is what a busy machine spoils least.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::Runtime;
use workloads::reply::Reply;
use workloads::resource::{self, Resource, ResourceConfig, Write};

use super::process::Process;
use super::{Scratch, quartiles};

/// Clients when it is busy.
const MANY: u64 = 32;
/// Rounds: a turn of each kind.
const ROUNDS: usize = 40;
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
        let (cpu_us, cpu_ratio) = figures(|turn| turn.cpu_us);
        println!("  {name}");
        println!("    {MANY} clients   {puts:>8.0} puts/s      {puts_ratio}");
        println!("    the same     {cpu_us:>8.1} µs CPU/put  {cpu_ratio}");
        println!("    one client   {p50_ms:>8.3} ms p50      {p50_ratio}");
    }
    Ok(())
}

/// Figures of one turn.
#[derive(Clone, Copy)]
struct Turn {
    puts_per_s: f64,
    /// CPU time of the server and its supervisor for each of these puts.
    cpu_us: f64,
    alone_p50_ms: f64,
}

/// A running etcd and its clients, the first of which is the one that is alone.
struct Server {
    clients: Vec<Arc<dyn Resource>>,
    /// Number of the next put of each client; elements are never written twice.
    next: AtomicU64,
    process: Process,
}

impl Server {
    fn start(etcd: &Path, rate: Option<f64>, folder: &Path, runtime: &Runtime) -> Result<Self> {
        let (process, client) = Process::etcd(etcd, rate, folder)?;
        let clients = runtime.block_on(connect_all(client))?;
        Ok(Self {
            clients,
            next: AtomicU64::new(1),
            process,
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
        let cpu_before_ns = self.process.cpu_ns()?;
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
        let done = done.iter().sum::<u64>() as f64;
        let cpu_ns = self.process.cpu_ns()?.saturating_sub(cpu_before_ns);
        Ok(Turn {
            puts_per_s: done / began.elapsed().as_secs_f64(),
            cpu_us: cpu_ns as f64 / 1e3 / done,
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
