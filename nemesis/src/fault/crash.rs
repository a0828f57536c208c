//! `crash`: every process of the target is killed at once; after a while its application is started
//! again on its data and its address.
//!
//! It is the crash of a process, not of a machine: the kernel lives on, so peers see the connections
//! close, and nothing is lost from the disk. The receipt says which processes were killed and when all
//! were gone. This file must never leave a host down: `CrashedHost` starts it again when dropped.

use std::io;
use std::sync::Arc;

use crate::fault::on_hosts::{HostReceipt, OnHost, OnHosts};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request, contained, no_check};
use crate::mechanism::probe;
use crate::mechanism::proof::ProcessId;
use crate::mechanism::sigstop::look_until;
use crate::receipt::{Comeback, CrashReceipt, count, ms};
use crate::target::ALL_FORMS;
use crate::{HostControl, Now};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "crash",
    summary: "kills every process of the target at once and starts it again after a while",
    targets: ALL_FORMS,
    needs_lasts: false,
    params: &[],
    check: no_check,
    layer: Layer::Processes,
    needs: &[],
    build: || Box::new(Crash),
    probe: || vec![probe::sigkill()],
};

/// How long processes may take to die; large ones give their memory back first.
const PATIENCE_MS: u64 = 5000;

/// The fault.
struct Crash;

impl Fault for Crash {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let mut crashed: Vec<CrashedHost> = hosts
            .iter()
            .map(|host| CrashedHost::kill(host, request.now))
            .collect::<Result<_, _>>()?;
        for host in &mut crashed {
            host.confirm()?;
        }
        Ok(Box::new(OnHosts(crashed)))
    }
}

/// A host whose processes were killed. Its application is started again when this is dropped.
pub(super) struct CrashedHost {
    host: Arc<dyn HostControl>,
    now: Now,
    processes: Vec<ProcessId>,
    requested_ns: u64,
    gone_ns: u64,
    /// Set once a start was tried.
    restarted: bool,
}

impl CrashedHost {
    pub(super) fn kill(host: &Arc<dyn HostControl>, now: Now) -> Result<Self, FaultError> {
        let name = || host.name().to_owned();
        let processes: Vec<ProcessId> = host
            .tree()
            .into_iter()
            .filter_map(ProcessId::find)
            .collect();
        if processes.is_empty() {
            return Err(FaultError::NothingRuns { host: name() });
        }
        let requested_ns = now();
        let killed = Self {
            host: Arc::clone(host),
            now,
            processes,
            requested_ns,
            gone_ns: requested_ns,
            restarted: false,
        };
        host.kill_all().map_err(|error| FaultError::Refused {
            host: name(),
            what: format!("its processes could not be killed: {error}"),
        })?;
        Ok(killed)
    }

    /// A process of the application that lives, if any.
    fn survivor(&self) -> Option<ProcessId> {
        let known = self.processes.iter().find(|one| one.is_alive()).copied();
        known.or_else(|| self.host.tree().into_iter().find_map(ProcessId::find))
    }

    /// Waits until its processes are gone, those included that they started while being killed, and returns
    /// when that was seen.
    pub(super) fn confirm(&mut self) -> Result<u64, FaultError> {
        let deadline_ns = self.requested_ns + PATIENCE_MS * 1_000_000;
        let gone = look_until(deadline_ns, self.now, || {
            let survivor = self.survivor();
            survivor.map_or(Ok(()), |one| Err(format!("process {} lives", one.pid)))
        });
        self.gone_ns = gone.map_err(|found| FaultError::NotConfirmed {
            host: self.host.name().to_owned(),
            what: "the end of all its processes".to_owned(),
            within_ms: PATIENCE_MS,
            found,
        })?;
        Ok(self.gone_ns)
    }

    /// Starts its application again.
    pub(super) fn restart(&mut self) -> Result<CrashReceipt, FaultError> {
        let lifted_ns = (self.now)();
        let started = self.host.restart();
        self.restarted = true;
        let comeback = match started {
            Ok(()) => Comeback::Restarted {
                lifted_ns,
                restarted_ns: (self.now)(),
            },
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Comeback::Never {
                lifted_ns,
                why: error.to_string(),
            },
            Err(source) => {
                let host = self.host.name().to_owned();
                return Err(FaultError::NotRestarted { host, source });
            }
        };
        Ok(CrashReceipt {
            host: self.host.name().to_owned(),
            pids: self.processes.iter().map(|one| one.pid).collect(),
            requested_ns: self.requested_ns,
            gone_ns: self.gone_ns,
            comeback,
        })
    }
}

impl Drop for CrashedHost {
    fn drop(&mut self) {
        if !self.restarted {
            contained(|| {
                // What could not be killed must not get a twin.
                if self.survivor().is_none() {
                    drop(self.restart());
                }
            });
        }
    }
}

impl OnHost for CrashedHost {
    type Receipt = CrashReceipt;

    fn name(&self) -> String {
        self.host.name().to_owned()
    }

    fn requested_ns(&self) -> u64 {
        self.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.gone_ns
    }

    fn words(&self) -> String {
        format!(
            "killed {}, all gone within {:.2} ms",
            count(self.processes.len(), "process", "processes"),
            ms(self.gone_ns.saturating_sub(self.requested_ns)),
        )
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<CrashReceipt, FaultError>> {
        hosts.iter_mut().map(Self::restart).collect()
    }
}

impl HostReceipt for CrashReceipt {
    fn proven(&self) -> bool {
        self.proven()
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns()
    }
}
