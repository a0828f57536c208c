//! How long a lease of a real etcd lives by true time, at several rates of its clock at once.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use workloads::etcd::EtcdClient;
use workloads::truth::now_ns;

use super::Scratch;
use super::process::Process;

/// The rates that are measured.
const RATES: [f64; 3] = [0.5, 1.0, 2.0];
/// The lease.
const TTL: Duration = Duration::from_secs(20);
/// The longest that one request may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Measures and prints.
pub(super) fn measure(etcd: &Path) -> Result<()> {
    let scratch = Scratch::new("lease")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let lives = RATES.map(|rate| {
        let folder = scratch.0.join(rate.to_string());
        async move {
            let (_process, address) = Process::etcd(etcd, Some(rate), &folder)?;
            let client = ready(address).await?;
            life(&client).await
        }
    });
    let lived = runtime.block_on(futures_util::future::try_join_all(lives))?;
    let lived: Vec<String> = RATES
        .iter()
        .zip(lived)
        .map(|(rate, lived)| format!("at {rate}× {:.2} s", lived.as_secs_f64()))
        .collect();
    println!(
        "a lease of etcd of {} s (which looks for dead ones twice a second): {}",
        TTL.as_secs(),
        lived.join(", ")
    );
    Ok(())
}

/// A client, as soon as its server grants leases.
async fn ready(address: SocketAddr) -> Result<EtcdClient> {
    let began = Instant::now();
    loop {
        if let Ok(client) = EtcdClient::connect(address, LIMIT).await
            && client
                .lease_grant(Duration::from_secs(60), LIMIT)
                .await
                .is_ok()
        {
            return Ok(client);
        }
        if began.elapsed() > Duration::from_secs(20) {
            bail!("etcd grants no lease within 20 s");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How long a lease lives that nobody keeps alive, by true time.
async fn life(client: &EtcdClient) -> Result<Duration> {
    let lease = client.lease_grant(TTL, LIMIT).await?;
    let granted_ns = now_ns();
    while client.lease_time_to_live(lease.id, LIMIT).await?.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(Duration::from_nanos(now_ns() - granted_ns))
}
