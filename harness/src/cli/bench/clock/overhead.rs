//! What a clock of its own costs a real etcd at rate 1, and at 2.
//!
//! The same puts against the same binary, with and without, in turns, because a busy machine drifts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nemesis::clock::HostClock;
use nemesis::clock::launch::Clocked;
use workloads::reply::Reply;
use workloads::resource::{self, Resource, ResourceConfig, Write};

/// Clients of the busy arm.
const MANY: u64 = 32;
/// Turns of each arm.
const TURNS: usize = 3;

/// How etcd is started.
#[derive(Clone, Copy)]
enum Arm {
    Plain,
    At(f64),
}

/// Figures of one turn.
#[derive(Clone, Copy)]
struct Turn {
    puts_per_s: f64,
    alone_p50_ms: f64,
}

/// Measures and prints.
pub(super) fn measure(etcd: &Path, length: Duration) -> Result<()> {
    println!(
        "etcd, one node{:>27} {MANY} clients {:>16}",
        "", "one client"
    );
    let arms = [
        ("without", Arm::Plain),
        ("with, at 1×", Arm::At(1.0)),
        ("with, at 2×", Arm::At(2.0)),
    ];
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); arms.len()];
    for _ in 0..TURNS {
        for ((_, arm), turns) in arms.iter().zip(&mut turns) {
            turns.push(turn(etcd, *arm, length / TURNS as u32 / 2)?);
        }
    }
    let median = |turns: &[Turn], of: fn(&Turn) -> f64| {
        let mut all: Vec<f64> = turns.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let plain_puts = median(&turns[0], |turn| turn.puts_per_s);
    let plain_p50 = median(&turns[0], |turn| turn.alone_p50_ms);
    for ((name, _), turns) in arms.iter().zip(&turns) {
        let puts = median(turns, |turn| turn.puts_per_s);
        let p50 = median(turns, |turn| turn.alone_p50_ms);
        println!(
            "  {name:<32} {puts:>10.0} puts/s ({:+.1} %) {p50:>8.3} ms p50 ({:.2}×)",
            (puts / plain_puts - 1.0) * 100.0,
            p50 / plain_p50
        );
    }
    Ok(())
}

/// A running etcd; it ends when this is dropped.
enum Server {
    Plain(Child),
    Clocked { _process: Clocked },
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Plain(child) = self {
            // Already dead is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn turn(etcd: &Path, arm: Arm, length: Duration) -> Result<Turn> {
    // In memory where that can be had: a disk would drown everything else.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    let folder = parent.join(format!("fencepost-bench-clock-{}", std::process::id()));
    let turned = serve(etcd, arm, &folder, length);
    std::fs::remove_dir_all(&folder)
        .with_context(|| format!("cannot remove {}", folder.display()))?;
    turned
}

fn serve(etcd: &Path, arm: Arm, folder: &Path, length: Duration) -> Result<Turn> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
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
    let clock = HostClock::new("bench");
    let _server = match arm {
        Arm::Plain => Server::Plain(command.spawn().context("cannot start etcd")?),
        Arm::At(rate) => {
            let process = clock.spawn(&mut command)?;
            if rate != 1.0 {
                clock.set_rate(rate)?;
            }
            Server::Clocked { _process: process }
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let figures = runtime.block_on(puts(client, length));
    runtime.shutdown_background();
    figures
}

/// An address that nobody listens on just now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}

async fn puts(endpoint: SocketAddr, length: Duration) -> Result<Turn> {
    let began = Instant::now();
    let alone = loop {
        match connect(endpoint).await {
            Ok(resource) if put(&*resource, 0, 0).await.is_ok() => break resource,
            _ if began.elapsed() > Duration::from_secs(20) => {
                bail!("etcd does not accept writes within 20 s")
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let (mut times, mut op) = (Vec::new(), 1);
    let began = Instant::now();
    while began.elapsed() < length {
        let put_began = Instant::now();
        put(&*alone, 0, op).await?;
        times.push(put_began.elapsed());
        op += 1;
    }
    times.sort_unstable();
    let done = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    let began = Instant::now();
    for client in 0..MANY {
        let (resource, done) = (connect(endpoint).await?, Arc::clone(&done));
        clients.push(tokio::spawn(async move {
            let mut op = 0;
            while began.elapsed() < length {
                put(&*resource, client, op).await?;
                done.fetch_add(1, Ordering::Relaxed);
                op += 1;
            }
            anyhow::Ok(())
        }));
    }
    for client in clients {
        client.await??;
    }
    Ok(Turn {
        puts_per_s: done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64(),
        alone_p50_ms: times[times.len() / 2].as_secs_f64() * 1e3,
    })
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
