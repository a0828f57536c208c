//! Programs of ours that are measured under a clock: a hidden subcommand.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tokio::time;
use workloads::truth::now_ns;

/// Which program, and how long its waits are
#[derive(Debug, Args)]
pub struct SubjectArgs {
    program: Program,
    /// Milliseconds of its own time, or a number of calls
    number: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    /// Ticks, by Rust's standard library
    Rust,
    /// Ticks, by tokio
    Tokio,
    /// Says how many nanoseconds of true time a wait takes that is over at once
    Waits,
}

/// Runs it.
#[must_use]
pub fn main(args: &SubjectArgs) -> ExitCode {
    let length = Duration::from_millis(args.number);
    match args.program {
        Program::Rust => nemesis::ticking::main(length),
        Program::Tokio => tokio_ticks(length),
        Program::Waits => {
            println!("{}", wait_ns(args.number));
            ExitCode::SUCCESS
        }
    }
}

/// As [`nemesis::ticking`] says: a sleep, a future that times out, an interval.
fn tokio_ticks(length: Duration) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let origin = Instant::now();
        for turn in 0.. {
            if writeln!(std::io::stdout(), "{}", origin.elapsed().as_nanos()).is_err() {
                break;
            }
            match turn % 3 {
                0 => time::sleep(length).await,
                1 => drop(time::timeout(length, std::future::pending::<()>()).await),
                _ => {
                    let mut interval = time::interval(length);
                    interval.tick().await;
                    interval.tick().await;
                }
            }
        }
    });
    ExitCode::SUCCESS
}

/// How long a poll with a timeout takes on a descriptor that is ready, on average of so many.
fn wait_ns(calls: u64) -> u64 {
    let Ok((reader, writer)) = nix::unistd::pipe() else {
        return 0;
    };
    drop(writer);
    let ready = nix::poll::PollFlags::POLLIN;
    let mut descriptors = [nix::poll::PollFd::new(
        std::os::fd::AsFd::as_fd(&reader),
        ready,
    )];
    let began_ns = now_ns();
    for _ in 0..calls {
        // A pipe without a writer is ready at any time.
        let _ = nix::poll::poll(&mut descriptors, 1000_u16);
    }
    (now_ns() - began_ns) / calls.max(1)
}
