//! `pause`: every thread of the target stops for a while, as in a stop-the-world collection, a stalled
//! virtual machine or a laptop's lid.
//!
//! The receipt measures four edges (asked to stop, confirmed stopped, asked to go on, confirmed
//! running) and compares the CPU time of all threads after the second and before the third. The
//! kernel goes on acknowledging what the target's sockets receive. This file must never leave a host
//! stopped: `Stopping` lets it go on when dropped.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::fault::on_hosts::{HostReceipt, OnHost, OnHosts};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request, contained, no_check};
use crate::mechanism::probe;
use crate::mechanism::proof::{Census, ProcessId};
use crate::mechanism::stopper::Stopper;
use crate::receipt::{PauseReceipt, count, ms};
use crate::target::ALL_FORMS;
use crate::{HostControl, Now};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "pause",
    summary: "stops every thread of the target for a while, as a long garbage collection does",
    targets: ALL_FORMS,
    needs_lasts: true,
    params: &[],
    check: no_check,
    layer: Layer::Processes,
    needs: &[],
    build: || Box::new(Pause),
    probe: || vec![probe::freezer(), probe::sigstop()],
};

/// How long confirming a stop may take, and how long confirming that it is over.
const PATIENCE_MS: u64 = 1000;
const PATIENCE_NS: u64 = PATIENCE_MS * 1_000_000;

/// Between two censuses that must agree before the baseline counts: a thread is reported as stopped
/// a moment before it has left its CPU.
const SETTLE: Duration = Duration::from_micros(200);

/// The fault.
struct Pause;

impl Fault for Pause {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        // All hosts are asked before any is waited for, so that they stop close together. When one
        // fails, dropping the others lets them go on.
        let asked: Result<Vec<Stopping>, FaultError> = hosts
            .iter()
            .map(|host| Stopping::ask(host, request.now))
            .collect();
        let hosts: Result<Vec<StoppedHost>, FaultError> = asked?
            .into_iter()
            .map(|host| host.confirm(request.asked_ns))
            .collect();
        Ok(Box::new(OnHosts(hosts?)))
    }
}

/// A host that the kernel was asked to stop. It goes on when this is dropped.
struct Stopping {
    host: Arc<dyn HostControl>,
    stopper: Stopper,
    now: Now,
    requested_ns: u64,
    /// Set once the kernel has agreed to let it go on.
    resumed: bool,
}

impl Stopping {
    fn ask(host: &Arc<dyn HostControl>, now: Now) -> Result<Self, FaultError> {
        if Census::take(&host.tree()).threads() == 0 {
            let host = host.name().to_owned();
            return Err(FaultError::NothingRuns { host });
        }
        let requested_ns = now();
        let stopper = Stopper::stop(&**host).map_err(|what| FaultError::Refused {
            host: host.name().to_owned(),
            what,
        })?;
        Ok(Self {
            host: Arc::clone(host),
            stopper,
            now,
            requested_ns,
            resumed: false,
        })
    }

    /// Waits until every thread has stopped and takes the baseline.
    fn confirm(self, asked_ns: Option<u64>) -> Result<StoppedHost, FaultError> {
        let deadline_ns = self.requested_ns + PATIENCE_NS;
        let confirmed = self
            .stopper
            .wait_stopped(&*self.host, deadline_ns, self.now)
            .and_then(|stopped_ns| Ok((stopped_ns, self.settle(deadline_ns)?)));
        let (stopped_ns, baseline) = confirmed.map_err(|found| FaultError::NotConfirmed {
            host: self.host.name().to_owned(),
            what: format!("a stop by {}", self.stopper.describe()),
            within_ms: PATIENCE_MS,
            found,
        })?;
        let processes = self.host.tree().into_iter().filter_map(ProcessId::find);
        Ok(StoppedHost {
            processes: processes.collect(),
            stopping: self,
            asked_ns,
            stopped_ns,
            baseline,
        })
    }

    /// Takes the first census in which no thread has used CPU time since the one before.
    fn settle(&self, deadline_ns: u64) -> Result<Census, String> {
        let mut census = Census::take(&self.host.tree());
        loop {
            thread::sleep(SETTLE);
            let later = Census::take(&self.host.tree());
            if later.threads() == 0 {
                return Err("no process is left".to_owned());
            }
            let used_ns = later.cpu_since_ns(&census);
            if used_ns == 0 {
                return Ok(later);
            }
            if (self.now)() >= deadline_ns {
                let used = ms(used_ns);
                return Err(format!("its threads still use CPU time ({used:.3} ms)"));
            }
            census = later;
        }
    }

    /// Asks the kernel to let it go on, a second time if need be, and returns when the first was.
    fn resume(&mut self) -> Result<u64, String> {
        let lifted_ns = (self.now)();
        let resumed = self.stopper.resume(&*self.host);
        resumed.or_else(|_| self.stopper.resume(&*self.host))?;
        self.resumed = true;
        Ok(lifted_ns)
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if !self.resumed {
            contained(|| drop(self.resume()));
        }
    }
}

/// A host that is confirmed to have stopped.
struct StoppedHost {
    stopping: Stopping,
    /// How long it is to last.
    asked_ns: Option<u64>,
    stopped_ns: u64,
    baseline: Census,
    /// Its processes, for the cheap check that they live.
    processes: Vec<ProcessId>,
}

impl StoppedHost {
    /// Says so if any of its processes died.
    fn died(&self, pids: Vec<i32>) -> Result<(), FaultError> {
        if pids.is_empty() {
            return Ok(());
        }
        Err(FaultError::Died {
            host: self.name(),
            pids,
            of: self.baseline.processes(),
        })
    }

    /// Measures, at the end of the pause, what it did since its baseline.
    fn measure(&self) -> Result<Census, FaultError> {
        let host = &*self.stopping.host;
        let census = Census::take(&host.tree());
        self.died(census.died_since(&self.baseline))?;
        self.stopping
            .stopper
            .still_stopped(host)
            .map_err(|found| FaultError::Ended {
                host: self.name(),
                found,
            })?;
        Ok(census)
    }

    /// Waits until it runs again, and returns when that was seen.
    fn confirm_running(&self) -> Result<u64, String> {
        let Stopping {
            host, stopper, now, ..
        } = &self.stopping;
        stopper.wait_running(&**host, now() + PATIENCE_NS, *now)
    }

    fn receipt(&self, census: &Census, lifted_ns: u64, resumed_ns: u64) -> PauseReceipt {
        PauseReceipt {
            host: self.name(),
            method: self.stopping.stopper.describe(),
            asked_ns: self.asked_ns,
            requested_ns: self.stopping.requested_ns,
            stopped_ns: self.stopped_ns,
            lifted_ns,
            resumed_ns,
            processes: self.baseline.processes(),
            threads: self.baseline.threads(),
            cpu_used_ns: census.cpu_since_ns(&self.baseline),
            cpu_source: census.cpu_source(),
        }
    }
}

impl OnHost for StoppedHost {
    type Receipt = PauseReceipt;

    fn name(&self) -> String {
        self.stopping.host.name().to_owned()
    }

    fn requested_ns(&self) -> u64 {
        self.stopping.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.stopped_ns
    }

    fn words(&self) -> String {
        format!(
            "{} stopped {} and {} within {:.2} ms",
            self.stopping.stopper.describe(),
            count(self.baseline.processes(), "process", "processes"),
            count(self.baseline.threads(), "thread", "threads"),
            ms(self.stopped_ns.saturating_sub(self.stopping.requested_ns)),
        )
    }

    fn check(&self) -> Result<(), FaultError> {
        let dead = self.processes.iter().filter(|one| !one.is_alive());
        self.died(dead.map(|one| one.pid).collect())
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<PauseReceipt, FaultError>> {
        // Measured on all, then lifted on all, then confirmed on all: no host waits for another.
        let measured: Vec<_> = hosts.iter().map(Self::measure).collect();
        let lifted: Vec<_> = hosts
            .iter_mut()
            .map(|host| host.stopping.resume())
            .collect();
        let ends = hosts.iter().zip(measured).zip(lifted);
        let receipts = ends.map(|((host, census), lifted)| {
            let running = lifted.and_then(|lifted_ns| Ok((lifted_ns, host.confirm_running()?)));
            // Also what cannot be confirmed of a host that died is no news.
            let census = census?;
            let (lifted_ns, resumed_ns) = running.map_err(|found| FaultError::NotHealed {
                host: host.name(),
                found,
            })?;
            Ok(host.receipt(&census, lifted_ns, resumed_ns))
        });
        receipts.collect()
    }
}

impl HostReceipt for PauseReceipt {
    fn proven(&self) -> bool {
        self.proven()
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns
    }
}
