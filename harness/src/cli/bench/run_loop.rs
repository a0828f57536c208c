//! `fencepost bench loop`: operations recorded a second, and bytes of history an operation.
//!
//! The whole way of an operation is in it (run loop, worker process, lock, recorder), only the lock is
//! kept in the controller, so that nothing but the harness is measured. No sandbox, no faults.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use checkers::history::{End, EndReason, Event, FORMAT_VERSION, Header};
use clap::Args;
use workloads::discipline::Discipline;
use workloads::lock::LockConfig;
use workloads::resource::ResourceConfig;
use workloads::resource::memory::server::MemoryServer;
use workloads::resource::memory::store::TokenPolicy;
use workloads::script::{self, ScriptConfig};
use workloads::truth::now_ns;
use workloads::worker::protocol::{PROTOCOL_VERSION, Setup};

use crate::exit::Exit;
use crate::run::drive::{Drive, DriveConfig};
use crate::run::progress::ProgressSender;
use crate::run::recorder::Recorder;
use crate::run::wake::Wakes;
use crate::run::worker::Worker;
use crate::run::world::World;
use crate::say;

/// Operations recorded per second, with a lock that is kept in the controller
#[derive(Debug, Args)]
pub struct LoopArgs {
    /// How long to measure
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Logical clients
    #[arg(long, default_value_t = 64)]
    clients: u32,
    /// Worker processes
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Named locks
    #[arg(long, default_value_t = 1000)]
    locks: u32,
}

/// Does it.
///
/// # Errors
/// What keeps the measurement from running.
pub fn run(args: &LoopArgs) -> Result<Exit> {
    let folder = std::env::temp_dir().join(format!("fencepost-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let measured = measure(args, &folder);
    std::fs::remove_dir_all(&folder)
        .with_context(|| format!("cannot remove {}", folder.display()))?;
    measured.map(|()| Exit::Met)
}

fn measure(args: &LoopArgs, folder: &std::path::Path) -> Result<()> {
    let history = folder.join("history.jsonl.zst");
    let (recorder, recording) = Recorder::start(&history)?;
    let memory = folder.join("memory.sock");
    let sink = recorder.clone();
    let _store = MemoryServer::start(
        &memory,
        TokenPolicy::Record,
        Box::new(move |access| sink.record(Event::Access(access))),
    )?;
    recorder.record(Event::Header(header(args)));
    let (mut children, mut workers) = (Vec::new(), Vec::new());
    for index in 0..args.workers {
        let mut child = Command::new("/proc/self/exe")
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let (input, output) = (
            child.stdin.take().context("no pipe")?,
            child.stdout.take().context("no pipe")?,
        );
        let mut worker = Worker::new(
            format!("c{}", index + 1),
            String::new(),
            input.into(),
            output.into(),
        )?;
        worker.set_up(&setup(&memory))?;
        workers.push(worker);
        children.push(child);
    }
    let world = Arc::new(World::new(Vec::new(), Vec::new(), Box::new(|| None)));
    let config = DriveConfig {
        workload: script::find("mutex").context("no workload is called mutex")?,
        script: ScriptConfig {
            locks: args.locks,
            hold_ns: 0..=0,
            think_ns: 0..=0,
        },
        seed: 1,
        clients: args.clients,
        duration_ns: args.seconds * 1_000_000_000,
        heeds_lost: false,
        rate_per_s: None,
    };
    let began = Instant::now();
    let drive = Drive::new(
        config,
        workers,
        recorder.clone(),
        ProgressSender::new(None),
        world,
        None,
        Wakes::new()?,
    );
    let end = drive.run();
    let driven = began.elapsed().as_secs_f64();
    // Workers end when their input closes, and the drive has closed it.
    for mut child in children {
        child.wait().context("cannot wait for a worker")?;
    }
    recorder.record(Event::End(End {
        reason: EndReason::Completed,
        at_ns: now_ns(),
    }));
    recorder.close();
    recording.finish()?;
    let recorded = began.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&history)?.len();
    let operations = end.operations;
    say!("operations            {operations}");
    say!(
        "operations a second   {:.0} (until the last is on disk: {:.0})",
        operations as f64 / driven,
        operations as f64 / recorded
    );
    say!(
        "history bytes         {bytes} ({:.1} an operation)",
        bytes as f64 / operations.max(1) as f64
    );
    say!("clients, workers      {}, {}", args.clients, args.workers);
    Ok(())
}

fn header(args: &LoopArgs) -> Header {
    Header {
        format: FORMAT_VERSION,
        title: format!("bench loop, {} clients", args.clients),
        arm: "bench".to_owned(),
        trial: 1,
        seed: 1,
        backend: String::new(),
        workload: "mutex".to_owned(),
        lock: "memory".to_owned(),
        resource: String::new(),
        discipline: Discipline::Ignore.name().to_owned(),
        tokens: "record".to_owned(),
        ttl_ms: 0,
        faults: false,
        clock_error_ns: 0,
        at_ns: now_ns(),
    }
}

fn setup(memory: &std::path::Path) -> Setup {
    Setup {
        protocol: PROTOCOL_VERSION,
        lock: "memory".to_owned(),
        lock_config: LockConfig {
            endpoint: None,
            version: String::new(),
            memory: memory.to_owned(),
            ttl_ms: 0,
            keep_alive: false,
            request_timeout_ms: 5000,
            acquire_timeout_ms: 60_000,
            ..LockConfig::default()
        },
        resource: None,
        resource_config: ResourceConfig {
            endpoint: None,
            memory: memory.to_owned(),
            request_timeout_ms: 5000,
            ..ResourceConfig::default()
        },
        discipline: Discipline::Ignore,
    }
}
