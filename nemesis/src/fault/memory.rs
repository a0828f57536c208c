//! `memory`: the target may newly take only a little memory, as on a machine that is about to run out of it.
//!
//! Its pages of files are paged out, and from then on whatever it reads of them and whatever its heap grows
//! by must fit into a share of what it used. It reclaims and reads its own pages again and again, or waits
//! for memory, and is not killed; a system call that needs memory may fail with ENOMEM
//! ([`mechanism::memory`](crate::mechanism::memory)). The receipt says how often it hit the bound and how
//! often it waited for a page to be read. This file must never leave a host bounded.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::sync::Arc;

use crate::fault::on_hosts::{HostReceipt, OnHost, OnHosts};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request};
use crate::mechanism::memory::Squeeze;
use crate::mechanism::probe;
use crate::mechanism::proof::ProcessId;
use crate::receipt::ms;
use crate::target::ALL_FORMS;
use crate::{HostControl, Now, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "memory",
    summary: "puts the target's memory under pressure: its pages of files are paged out, and it may newly take only a share of what it used",
    targets: ALL_FORMS,
    needs_lasts: true,
    params: PARAMS,
    check,
    layer: Layer::Processes,
    needs: &[],
    build: || Box::new(Memory),
    probe: || vec![probe::memory_high(), probe::memory_limit()],
};

const SHARE: &str = "share";
const DEFAULT_SHARE: f64 = 0.1;

const PARAMS: &[ParamSpec] = &[ParamSpec {
    name: SHARE,
    kind: ParamKind::Share,
    default: Some("0.1"),
    summary: "What it may newly take, heap and pages of files together, as a share of what it used at the onset; 1 MiB at least.",
}];

/// A share that presses.
fn check(_: &Target, params: &Params) -> Result<(), String> {
    let share = params.share(SHARE).unwrap_or(DEFAULT_SHARE);
    if !(share > 0.0 && share < 1.0) {
        return Err(format!(
            "`share` between 0 and 1 (and neither: that is a pause, or nothing), found {share}"
        ));
    }
    Ok(())
}

/// The fault.
struct Memory;

impl Fault for Memory {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let share = request.params.share(SHARE).unwrap_or(DEFAULT_SHARE);
        // When one fails, dropping the others lifts them.
        let hosts: Result<Vec<Pressed>, FaultError> = hosts
            .iter()
            .map(|host| Pressed::begin(host, share, request.now))
            .collect();
        Ok(Box::new(OnHosts(hosts?)))
    }
}

/// A host under pressure. The bound is lifted when this is dropped.
struct Pressed {
    host: Arc<dyn HostControl>,
    now: Now,
    requested_ns: u64,
    since_ns: u64,
    squeeze: Squeeze,
    faults_before: HashMap<i32, u64>,
}

impl Pressed {
    fn begin(host: &Arc<dyn HostControl>, share: f64, now: Now) -> Result<Self, FaultError> {
        let name = || host.name().to_owned();
        if !runs(&**host) {
            return Err(FaultError::NothingRuns { host: name() });
        }
        let requested_ns = now();
        let faults_before = major_faults(&host.tree());
        let refused = |what| FaultError::Refused { host: name(), what };
        let squeeze = Squeeze::begin(&**host, share).map_err(refused)?;
        Ok(Self {
            host: Arc::clone(host),
            now,
            requested_ns,
            since_ns: now(),
            squeeze,
            faults_before,
        })
    }

    /// Lifts the bound.
    fn lift(&mut self) -> Result<MemoryReceipt, FaultError> {
        let hits = self.squeeze.hits();
        let after = major_faults(&self.host.tree());
        let lives = runs(&*self.host);
        let lifted_ns = (self.now)();
        let ended = |found| FaultError::Ended {
            host: self.name(),
            found,
        };
        let hits = hits.map_err(ended);
        let host = self.name();
        self.squeeze
            .lift()
            .map_err(|found| FaultError::NotHealed { host, found })?;
        if !lives {
            let found = "its application died; of a system call that failed with ENOMEM? see the host's log";
            return Err(FaultError::Ended {
                host: self.name(),
                found: found.to_owned(),
            });
        }
        let since = after.iter().map(|(pid, faults)| {
            faults.saturating_sub(self.faults_before.get(pid).copied().unwrap_or(0))
        });
        Ok(MemoryReceipt {
            method: self.squeeze.describe(),
            used: self.squeeze.used,
            room: self.squeeze.room,
            paged_out: self.squeeze.paged_out.clone(),
            hits: hits?,
            major_faults: since.sum(),
            lasted_ns: lifted_ns.saturating_sub(self.since_ns),
            lifted_ns,
            host: self.name(),
        })
    }
}

/// True while a process of the application lives.
fn runs(host: &dyn HostControl) -> bool {
    host.tree().into_iter().find_map(ProcessId::find).is_some()
}

/// How often each process has waited for a page to be read: field 12 of its `stat` (proc_pid_stat(5)).
fn major_faults(pids: &[i32]) -> HashMap<i32, u64> {
    let of = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field may hold anything, so fields are counted from its end.
        let fields = stat.rsplit_once(')')?.1;
        let faults = fields.split_ascii_whitespace().nth(12 - 3)?.parse().ok()?;
        Some((*pid, faults))
    };
    pids.iter().filter_map(of).collect()
}

/// What was measured of one host under pressure. Truth times throughout.
struct MemoryReceipt {
    host: String,
    method: &'static str,
    /// In bytes, as the room.
    used: u64,
    room: u64,
    paged_out: Result<u64, String>,
    hits: u64,
    major_faults: u64,
    lasted_ns: u64,
    lifted_ns: u64,
}

impl HostReceipt for MemoryReceipt {
    /// It hit the bound, or had to wait for a page.
    fn proven(&self) -> bool {
        self.hits > 0 || self.major_faults > 0
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns
    }
}

impl fmt::Display for MemoryReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} let it newly take {:.1} MiB for {:.2} ms, beside the {:.1} MiB that it used; ",
            self.host,
            self.method,
            mib(self.room),
            ms(self.lasted_ns),
            mib(self.used),
        )?;
        match &self.paged_out {
            Ok(bytes) => write!(
                f,
                "{:.1} MiB of its mapped files were paged out",
                mib(*bytes)
            )?,
            Err(why) => write!(f, "its mapped files were not paged out ({why})")?,
        }
        write!(
            f,
            "; it hit the bound {} times and waited for a page {} times",
            self.hits, self.major_faults
        )?;
        if !self.proven() {
            f.write_str("; NOT PROVEN: it needed no memory")?;
        }
        Ok(())
    }
}

/// Bytes as mebibytes.
fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

impl OnHost for Pressed {
    type Receipt = MemoryReceipt;

    fn name(&self) -> String {
        self.host.name().to_owned()
    }

    fn requested_ns(&self) -> u64 {
        self.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.since_ns
    }

    fn words(&self) -> String {
        format!(
            "may newly take {:.1} MiB beside the {:.1} MiB that it uses",
            mib(self.squeeze.room),
            mib(self.squeeze.used)
        )
    }

    fn check(&self) -> Result<(), FaultError> {
        self.squeeze.still().map_err(|found| FaultError::Ended {
            host: self.name(),
            found,
        })
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<MemoryReceipt, FaultError>> {
        hosts.iter_mut().map(Self::lift).collect()
    }
}
