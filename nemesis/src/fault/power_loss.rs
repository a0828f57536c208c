//! `power-loss`: the target's machine loses its power, and gets it back after a while.
//!
//! Unlike a crash of its processes, its peers hear nothing (no connection is closed; what they send goes
//! nowhere, and after the restart is answered by a kernel that knows nothing of it), and whatever was not
//! synced to its disk is gone. The receipt says what was killed, how many connections went, and what the
//! disk lost. This file must never leave a host without power: `Darkened` gives it back when dropped.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;

use crate::fault::on_hosts::{HostReceipt, OnHost, OnHosts, all};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request, contained, no_check};
use crate::mechanism::probe;
use crate::mechanism::proof::ProcessId;
use crate::mechanism::undo_fs::{Keep, Loss};
use crate::receipt::{count, ms};
use crate::target::NODE_FORMS;
use crate::{HostControl, Need, Now, ParamKind, ParamSpec};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "power-loss",
    summary: "takes the target's power: its peers hear nothing, and what it had not synced is gone",
    targets: NODE_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check: no_check,
    layer: Layer::Processes,
    needs: &[Need::UndoFs],
    build: || Box::new(PowerLoss),
    probe: || vec![probe::undo_fs()],
};

const TORN: &str = "torn";

const PARAMS: &[ParamSpec] = &[ParamSpec {
    name: TORN,
    kind: ParamKind::Flag,
    default: Some("false"),
    summary: "Whether the disk was in the middle of writing: some sectors of what was not synced are there, \
        as drawn from the seed, and not others.",
}];

/// The fault.
struct PowerLoss;

impl Fault for PowerLoss {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let keep = |host: usize| {
            if request.params.flag(TORN) {
                let (draw, host) = (request.pick, host as u64);
                Keep::Torn { draw, host }
            } else {
                Keep::Nothing
            }
        };
        // One thread a host: the lights go out everywhere at once.
        let taken: Vec<Result<Darkened, FaultError>> = thread::scope(|scope| {
            let takers: Vec<_> = hosts
                .iter()
                .enumerate()
                .map(|(index, host)| {
                    let (keep, now) = (keep(index), request.now);
                    scope.spawn(move || Darkened::take(host, keep, now))
                })
                .collect();
            takers.into_iter().map(joined).collect()
        });
        // Dropping the hosts gives those their power back that lost it, should others not have lost it.
        Ok(Box::new(OnHosts(all(taken)?)))
    }
}

/// What a thread came to; its panic goes on in the caller.
fn joined<T>(taker: thread::ScopedJoinHandle<'_, T>) -> T {
    taker
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A host without power. It gets it back when this is dropped.
struct Darkened {
    host: Arc<dyn HostControl>,
    now: Now,
    pids: Vec<i32>,
    requested_ns: u64,
    off_ns: u64,
    connections: usize,
    loss: Loss,
    /// Set once giving it back was tried.
    lit: bool,
}

impl Darkened {
    fn take(host: &Arc<dyn HostControl>, keep: Keep, now: Now) -> Result<Self, FaultError> {
        let name = || host.name().to_owned();
        let refused = |what: String| FaultError::Refused { host: name(), what };
        let disk = host.undo_fs().ok_or_else(|| {
            refused(
                "expected a host whose disk can forget, found one with another disk; it must be started with one"
                    .to_owned(),
            )
        })?;
        let processes = host.tree().into_iter().filter_map(ProcessId::find);
        let pids: Vec<i32> = processes.map(|process| process.pid).collect();
        if pids.is_empty() {
            return Err(FaultError::NothingRuns { host: name() });
        }
        let requested_ns = now();
        let mut dark = Self {
            host: Arc::clone(host),
            now,
            pids,
            requested_ns,
            off_ns: requested_ns,
            connections: 0,
            loss: Loss::default(),
            lit: false,
        };
        // From here on `dark` gives back what was taken, however far this comes.
        dark.connections = host
            .power_off()
            .map_err(|error| refused(format!("its power could not be taken: {error}")))?;
        dark.off_ns = now();
        dark.loss = disk.lose(keep).map_err(|error| {
            refused(format!(
                "its disk could not be made to forget: {error}; its data is of no use any more"
            ))
        })?;
        Ok(dark)
    }

    /// Gives the power back and starts the application.
    fn light(&mut self) -> Result<PowerReceipt, FaultError> {
        self.lit = true;
        let lifted_ns = (self.now)();
        self.host
            .power_on()
            .map_err(|error| FaultError::NotHealed {
                host: self.name(),
                found: format!("its link did not come up again: {error}"),
            })?;
        match self.host.restart() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(source) => {
                let host = self.name();
                return Err(FaultError::NotRestarted { host, source });
            }
        }
        Ok(PowerReceipt {
            host: self.name(),
            processes: self.pids.len(),
            requested_ns: self.requested_ns,
            off_ns: self.off_ns,
            connections: self.connections,
            loss: self.loss.clone(),
            lifted_ns,
            restarted_ns: (self.now)(),
        })
    }
}

impl Drop for Darkened {
    fn drop(&mut self) {
        if !self.lit {
            contained(|| drop(self.light()));
        }
    }
}

/// What was measured of one host's loss of power. Truth times throughout.
struct PowerReceipt {
    host: String,
    processes: usize,
    requested_ns: u64,
    off_ns: u64,
    connections: usize,
    loss: Loss,
    lifted_ns: u64,
    restarted_ns: u64,
}

impl HostReceipt for PowerReceipt {
    fn proven(&self) -> bool {
        self.processes > 0
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns
    }
}

impl fmt::Display for PowerReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; on again after {:.2} ms, started in {:.2} ms",
            self.host,
            taken(
                self.processes,
                self.connections,
                self.off_ns - self.requested_ns,
                &self.loss
            ),
            ms(self.lifted_ns.saturating_sub(self.off_ns)),
            ms(self.restarted_ns.saturating_sub(self.lifted_ns)),
        )
    }
}

/// What was taken, in words.
fn taken(processes: usize, connections: usize, within_ns: u64, loss: &Loss) -> String {
    format!(
        "off within {:.2} ms with {} and {}; {loss}",
        ms(within_ns),
        count(processes, "process", "processes"),
        count(connections, "connection", "connections"),
    )
}

impl OnHost for Darkened {
    type Receipt = PowerReceipt;

    fn name(&self) -> String {
        self.host.name().to_owned()
    }

    fn requested_ns(&self) -> u64 {
        self.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.off_ns
    }

    fn words(&self) -> String {
        let within_ns = self.off_ns - self.requested_ns;
        taken(self.pids.len(), self.connections, within_ns, &self.loss)
    }

    /// Says so if anything runs.
    fn check(&self) -> Result<(), FaultError> {
        match self.host.tree().into_iter().find_map(ProcessId::find) {
            None => Ok(()),
            Some(process) => Err(FaultError::Ended {
                host: self.name(),
                found: format!("process {} runs although there is no power", process.pid),
            }),
        }
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<PowerReceipt, FaultError>> {
        let still_dark = hosts.iter().try_for_each(Self::check);
        let lit = hosts.iter_mut().map(Self::light);
        still_dark.err().map(Err).into_iter().chain(lit).collect()
    }
}
