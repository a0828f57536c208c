//! `cpu`: the target gets only a share of the CPU time that it wants, as on an overloaded machine or under
//! a tight quota.
//!
//! In every period it may run for a share of the time and stands still for the rest: what the kernel's
//! own bandwidth control does (cgroup cpu.max, Documentation/scheduler/sched-bwc.rst), but with the means
//! of `pause`, since the cpu controller is rarely ours to use. The receipt says how long it stood still
//! and how much CPU time it had. This file must never leave a host stopped: the thread that stops it lets
//! it go on in every way out.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::fault::on_hosts::{HostReceipt, OnHost, OnHosts};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request, contained};
use crate::mechanism::probe;
use crate::mechanism::proof::Census;
use crate::mechanism::stopper::Stopper;
use crate::receipt::{count, ms};
use crate::target::ALL_FORMS;
use crate::{HostControl, Now, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "cpu",
    summary: "starves the target of CPU time: it runs for a share of each period and stands still for the rest",
    targets: ALL_FORMS,
    needs_lasts: true,
    params: PARAMS,
    check,
    layer: Layer::Processes,
    needs: &[],
    build: || Box::new(Cpu),
    probe: || vec![probe::freezer(), probe::sigstop()],
};

const SHARE: &str = "share";
const PERIOD: &str = "period";
const DEFAULT_SHARE: f64 = 0.1;
const DEFAULT_PERIOD_NS: u64 = 100_000_000;
/// Below this, stopping and confirming would take more of a period than the fault itself.
const SHORTEST_PERIOD_NS: u64 = 10_000_000;

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: SHARE,
        kind: ParamKind::Share,
        default: Some("0.1"),
        summary: "The share of the time for which it may run.",
    },
    ParamSpec {
        name: PERIOD,
        kind: ParamKind::Duration,
        default: Some("\"100ms\""),
        summary: "The time in which it gets that share once, at the beginning; 10 ms at least.",
    },
];

/// How long confirming a stop may take, and confirming that it is over.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A share that starves, and a period that can be kept.
fn check(_: &Target, params: &Params) -> Result<(), String> {
    let share = params.share(SHARE).unwrap_or(DEFAULT_SHARE);
    if !(share > 0.0 && share < 1.0) {
        return Err(format!(
            "`share` between 0 and 1 (and neither: that is a pause, or nothing), found {share}"
        ));
    }
    let period_ns = params.duration_ns(PERIOD).unwrap_or(DEFAULT_PERIOD_NS);
    if period_ns < SHORTEST_PERIOD_NS {
        return Err(format!(
            "`period` of at least {} ms, found {} ms",
            ms(SHORTEST_PERIOD_NS),
            ms(period_ns)
        ));
    }
    Ok(())
}

/// The fault.
struct Cpu;

impl Fault for Cpu {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let share = request.params.share(SHARE).unwrap_or(DEFAULT_SHARE);
        let period_ns = request.params.duration_ns(PERIOD);
        let rhythm = Rhythm {
            share,
            period_ns: period_ns.unwrap_or(DEFAULT_PERIOD_NS),
        };
        // When one fails, dropping the others ends them.
        let hosts: Result<Vec<Starved>, FaultError> = hosts
            .iter()
            .map(|host| Starved::begin(host, rhythm, request.now))
            .collect();
        Ok(Box::new(OnHosts(hosts?)))
    }
}

/// When to run and when to stand still.
#[derive(Clone, Copy)]
struct Rhythm {
    share: f64,
    period_ns: u64,
}

impl Rhythm {
    fn runs(self) -> Duration {
        Duration::from_nanos((self.period_ns as f64 * self.share) as u64)
    }

    /// How long to stand still now, so that it has run for its share in all: on a busy machine whoever stops
    /// it comes late. At most twice as long as when all goes well, so as not to be a pause.
    fn stands(self, stood_ns: u64, lasted_ns: u64) -> Duration {
        let well_ns = self.period_ns as f64 * (1.0 - self.share);
        let due_ns = ((1.0 - self.share) * lasted_ns as f64 - stood_ns as f64) / self.share;
        Duration::from_nanos(due_ns.clamp(0.0, 2.0 * well_ns) as u64)
    }
}

/// What the thread of a host has done so far.
#[derive(Clone, Default)]
struct Done {
    /// Times that the host stood still.
    stops: u64,
    /// For how long, from confirmation to lifting, in all.
    stood_ns: u64,
    /// What stopped it.
    method: String,
    /// Why it could not go on.
    failed: Option<String>,
}

/// A host that is starved by a thread. The thread is ended when this is dropped.
struct Starved {
    host: Arc<dyn HostControl>,
    now: Now,
    rhythm: Rhythm,
    requested_ns: u64,
    before: Census,
    end: Arc<AtomicBool>,
    done: Arc<Mutex<Done>>,
    thread: Option<JoinHandle<()>>,
}

impl Starved {
    fn begin(host: &Arc<dyn HostControl>, rhythm: Rhythm, now: Now) -> Result<Self, FaultError> {
        let before = Census::take(&host.tree());
        if before.threads() == 0 {
            let host = host.name().to_owned();
            return Err(FaultError::NothingRuns { host });
        }
        let refused = |what| FaultError::Refused {
            host: host.name().to_owned(),
            what,
        };
        let requested_ns = now();
        let (end, done) = (Arc::new(AtomicBool::new(false)), Arc::default());
        // The first stop is made here, so that a host that cannot be stopped is an error at once.
        stand(&**host, Duration::ZERO, now, &done).map_err(refused)?;
        let thread = {
            let (host, end, done) = (Arc::clone(host), Arc::clone(&end), Arc::clone(&done));
            let builder = thread::Builder::new().name(format!("cpu-{}", host.name()));
            builder.spawn(move || starve(&*host, rhythm, now, &end, &done))
        };
        let thread = thread.map_err(|error| {
            refused(format!(
                "a thread could not be started: {error}; is a limit reached?"
            ))
        })?;
        Ok(Self {
            host: Arc::clone(host),
            now,
            rhythm,
            requested_ns,
            before,
            end,
            done,
            thread: Some(thread),
        })
    }

    fn done(&self) -> Done {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.clone()
    }

    /// Ends the thread; the host runs when this returns.
    fn finish(&mut self) -> Result<CpuReceipt, FaultError> {
        let lifted_ns = (self.now)();
        self.end.store(true, Ordering::SeqCst);
        let joined = self.thread.take().map(JoinHandle::join);
        let done = self.done();
        let failed = match joined {
            Some(Err(_)) => Some("its thread panicked; this is a bug in the harness".to_owned()),
            _ => done.failed.clone(),
        };
        if let Some(found) = failed {
            return Err(FaultError::Ended {
                host: self.name(),
                found,
            });
        }
        let after = Census::take(&self.host.tree());
        let died = after.ended_since(&self.before);
        if !died.is_empty() {
            return Err(FaultError::Died {
                host: self.name(),
                pids: died,
                of: self.before.processes(),
            });
        }
        Ok(CpuReceipt {
            host: self.name(),
            rhythm: self.rhythm,
            requested_ns: self.requested_ns,
            lifted_ns,
            used_ns: after.cpu_since_ns(&self.before),
            done,
        })
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        if self.thread.is_some() {
            contained(|| drop(self.finish()));
        }
    }
}

/// The thread: lets the host run and stand still in turn until it is told to end.
fn starve(host: &dyn HostControl, rhythm: Rhythm, now: Now, end: &AtomicBool, done: &Mutex<Done>) {
    let began_ns = now();
    while !end.load(Ordering::SeqCst) {
        thread::sleep(rhythm.runs());
        if end.load(Ordering::SeqCst) {
            return;
        }
        let stood_ns = done.lock().unwrap_or_else(PoisonError::into_inner).stood_ns;
        let time = rhythm.stands(stood_ns, now().saturating_sub(began_ns));
        if let Err(found) = stand(host, time, now, done) {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.failed = Some(found);
            return;
        }
    }
}

/// Stops a host, waits so long, and lets it go on, whatever happens in between.
fn stand(
    host: &dyn HostControl,
    time: Duration,
    now: Now,
    done: &Mutex<Done>,
) -> Result<(), String> {
    let stopper = Stopper::stop(host)?;
    let stopped = stopper.wait_stopped(host, now() + PATIENCE_NS, now);
    if stopped.is_ok() {
        thread::sleep(time);
    }
    let lifted_ns = now();
    let resumed = stopper
        .resume(host)
        .or_else(|_| stopper.resume(host))
        .and_then(|()| stopper.wait_running(host, now() + PATIENCE_NS, now));
    let stopped_ns = stopped?;
    resumed?;
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    done.stops += 1;
    done.stood_ns += lifted_ns.saturating_sub(stopped_ns);
    done.method = stopper.describe();
    Ok(())
}

/// What was measured of one host's starvation. Truth times throughout.
struct CpuReceipt {
    host: String,
    rhythm: Rhythm,
    requested_ns: u64,
    lifted_ns: u64,
    /// CPU time of all its threads meanwhile.
    used_ns: u64,
    done: Done,
}

impl CpuReceipt {
    /// Share of the time for which it could run.
    fn share(&self) -> f64 {
        let lasted_ns = self.lifted_ns.saturating_sub(self.requested_ns).max(1);
        1.0 - self.done.stood_ns as f64 / lasted_ns as f64
    }
}

impl HostReceipt for CpuReceipt {
    /// It stood still for at least nine tenths of what was asked, over one whole period at least.
    fn proven(&self) -> bool {
        // The first stop is a trial of no length.
        self.done.stops > 1 && 1.0 - self.share() >= 0.9 * (1.0 - self.rhythm.share)
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns
    }
}

impl fmt::Display for CpuReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasted_ns = self.lifted_ns.saturating_sub(self.requested_ns);
        write!(
            f,
            "{}: {} let it run for {:.1} % of {:.2} ms ({:.1} % asked), in {}; it used {:.2} ms of CPU time",
            self.host,
            self.done.method,
            self.share() * 100.0,
            ms(lasted_ns),
            self.rhythm.share * 100.0,
            count(
                usize::try_from(self.done.stops.saturating_sub(1)).unwrap_or(usize::MAX),
                "period",
                "periods"
            ),
            ms(self.used_ns),
        )?;
        if !self.proven() {
            f.write_str(
                "; NOT PROVEN: it stood still for less than nine tenths of what was asked",
            )?;
        }
        Ok(())
    }
}

impl OnHost for Starved {
    type Receipt = CpuReceipt;

    fn name(&self) -> String {
        self.host.name().to_owned()
    }

    fn requested_ns(&self) -> u64 {
        self.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.requested_ns
    }

    fn words(&self) -> String {
        format!(
            "may run for {:.1} % of each {:.2} ms",
            self.rhythm.share * 100.0,
            ms(self.rhythm.period_ns)
        )
    }

    fn check(&self) -> Result<(), FaultError> {
        self.done().failed.map_or(Ok(()), |found| {
            let host = self.name();
            Err(FaultError::Ended { host, found })
        })
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<CpuReceipt, FaultError>> {
        hosts.iter_mut().map(Self::finish).collect()
    }
}
