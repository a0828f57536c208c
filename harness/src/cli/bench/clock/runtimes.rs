//! Programs of several runtimes and a real redis-server, seen from outside: what they read, how long they
//! wait. All at once, because they sleep most of the time.

use std::io;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nemesis::clock::HostClock;
use nemesis::ticking::{self, Lived, Program, Tick, Ticking};
use workloads::truth::now_ns;

use super::redis::Redis;
use super::{Scratch, free_address};
use crate::provision::{Launch, ProvisionError};

/// The rates that are measured.
const RATES: [f64; 4] = [0.5, 1.01, 2.0, 10.0];
/// How long the programs' waits are, in their own time.
const WAIT: Duration = Duration::from_secs(1);

/// Somebody who ticks.
enum Subject {
    Program(Program),
    Redis(Result<Launch, ProvisionError>),
}

/// Measures and prints.
pub(super) fn measure(length: Duration, redis: Result<Launch, ProvisionError>) -> Result<()> {
    let folder = Scratch::new("runtimes")?;
    let own = |runtime, program: &str| Program {
        runtime,
        argv: std::env::current_exe()
            .map(|path| vec![path.into(), "clock-subject".into(), program.into()])
            .map_err(|error| error.to_string()),
    };
    let programs = [own("Rust std", "rust"), own("Rust tokio", "tokio")];
    let mut subjects: Vec<Subject> = programs
        .into_iter()
        .chain(ticking::programs(&folder.0))
        .map(Subject::Program)
        .collect();
    subjects.push(Subject::Redis(redis));
    subjects.retain(|subject| {
        let missing = subject.missing();
        if let Some(why) = &missing {
            println!("{} is left out: {why}", subject.name());
        }
        missing.is_none()
    });
    println!(
        "waits of 1 s of their own, {} s each{:>19} {:>14} {:>14}",
        length.as_secs(),
        "rate error",
        "late (median)",
        "(worst)"
    );
    for rate in RATES {
        let lived: Vec<Result<Lived>> = thread::scope(|scope| {
            let all: Vec<_> = subjects
                .iter()
                .map(|subject| scope.spawn(move || subject.live(rate, length)))
                .collect();
            let joined = all.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .map(|lived| lived.unwrap_or_else(|_| Err(anyhow!("it panicked"))))
                .collect()
        });
        for (subject, lived) in subjects.iter().zip(lived) {
            let name = format!("{} at {rate}×", subject.name());
            let lived = lived.with_context(|| name.clone())?;
            let (median_ms, worst_ms) = lived.lateness_ms();
            println!(
                "  {name:<24} {:>30.6} % {median_ms:>+11.3} ms {worst_ms:>+11.3} ms",
                (lived.rate / rate - 1.0) * 100.0
            );
        }
    }
    Ok(())
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Self::Program(program) => program.runtime,
            Self::Redis(_) => "redis-server",
        }
    }

    /// Why it cannot be had.
    fn missing(&self) -> Option<String> {
        match self {
            Self::Program(program) => program.argv.as_ref().err().cloned(),
            Self::Redis(server) => server.as_ref().err().map(ToString::to_string),
        }
    }

    /// Lives at a rate for at least that long, its first wait left out: runtimes warm up.
    fn live(&self, rate: f64, length: Duration) -> Result<Lived> {
        let clock = HostClock::new("bench");
        clock.set_rate(rate)?;
        let mut next: Box<dyn FnMut() -> io::Result<Tick>> = match self {
            Self::Program(program) => {
                let argv = program.argv.as_ref().map_err(|why| anyhow!("{why}"))?;
                let mut ticking = Ticking::start(&clock, argv, WAIT, now_ns)?;
                Box::new(move || ticking.next_tick())
            }
            Self::Redis(server) => {
                let server = server.as_ref().map_err(|why| anyhow!("{why}"))?;
                let mut redis = Redis::start(&clock, server, free_address()?)?;
                Box::new(move || redis.next_tick())
            }
        };
        next()?;
        let mut ticks = vec![next()?];
        let began_ns = ticks[0].true_ns;
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        while ticks[ticks.len() - 1].true_ns - began_ns < length_ns || ticks.len() < 3 {
            ticks.push(next()?);
        }
        Lived::of(&ticks, WAIT, rate).context("it did not tick")
    }
}
