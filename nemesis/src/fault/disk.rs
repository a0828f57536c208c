//! `disk`: the target's disk is stuck, slow, broken, full, or says that it wrote what it did not.
//!
//! Made at the fsync gate: what a program asks to be synced is held, delayed, failed or not done, while
//! its reads and writes go on as ever (they go to the page cache, as with a real disk that is stuck).
//! The receipt counts the calls and measures how long they waited; a fault that no call ran into is
//! not proven. A program that ends because of the fault is started again when it is lifted, as its
//! operator would. This file must never leave a gate shut: `FaultyDisk` opens it when dropped.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::fault::on_hosts::{HostReceipt, OnHost, OnHosts};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request, contained};
use crate::mechanism::fsync_gate::{Answer, Tally};
use crate::mechanism::{probe, proof::ProcessId};
use crate::receipt::ms;
use crate::target::NODE_FORMS;
use crate::{HostControl, Need, Now, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "disk",
    summary: "makes the target's disk stuck, slow, broken, full or mendacious: at every sync of a file",
    targets: NODE_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check,
    layer: Layer::Disk,
    needs: &[Need::FsyncGate],
    build: || Box::new(Disk),
    probe: || vec![probe::fsync_gate()],
};

const WHAT: &str = "what";
const DELAY: &str = "delay";

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: WHAT,
        kind: ParamKind::Word(&["hold", "slow", "eio", "enospc", "lie"]),
        default: Some("\"hold\""),
        summary: "Every sync waits until the fault is lifted, takes longer, fails with EIO or ENOSPC, or \
            succeeds without being done.",
    },
    ParamSpec {
        name: DELAY,
        kind: ParamKind::Duration,
        default: None,
        summary: "With what = \"slow\": how much longer each sync takes.",
    },
];

/// Only a slow disk has a delay, and it must have one.
fn check(_: &Target, params: &Params) -> Result<(), String> {
    let slow = params.text(WHAT) == Some("slow");
    match (slow, params.duration_ns(DELAY)) {
        (true, None | Some(0)) => Err(
            "a `delay` above zero beside what = \"slow\", found none; add delay = \"100ms\"".into(),
        ),
        (false, Some(_)) => {
            Err("`delay` only beside what = \"slow\"; remove it, or write what = \"slow\"".into())
        }
        _ => Ok(()),
    }
}

/// What the gate is to answer.
fn answer(params: &Params) -> Answer {
    match params.text(WHAT) {
        Some("slow") => Answer::Slow {
            delay_ns: params.duration_ns(DELAY).unwrap_or(0),
        },
        Some("eio") => Answer::Fail { errno: libc::EIO },
        Some("enospc") => Answer::Fail {
            errno: libc::ENOSPC,
        },
        Some("lie") => Answer::Lie,
        _ => Answer::Hold,
    }
}

/// The fault.
struct Disk;

impl Fault for Disk {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let answer = answer(request.params);
        let hosts: Result<Vec<FaultyDisk>, FaultError> = hosts
            .iter()
            .map(|host| FaultyDisk::inject(host, answer, request.now))
            .collect();
        Ok(Box::new(OnHosts(hosts?)))
    }
}

/// A host whose gate is not open. It is opened when this is dropped.
struct FaultyDisk {
    host: Arc<dyn HostControl>,
    answer: Answer,
    now: Now,
    requested_ns: u64,
    since_ns: u64,
    open: bool,
}

impl FaultyDisk {
    fn inject(host: &Arc<dyn HostControl>, answer: Answer, now: Now) -> Result<Self, FaultError> {
        let name = || host.name().to_owned();
        let refused = |what: String| FaultError::Refused { host: name(), what };
        let gate = host.fsync_gate().ok_or_else(|| {
            refused("expected a host behind an fsync gate, found one without; it must be started with one".into())
        })?;
        if host.tree().into_iter().find_map(ProcessId::find).is_none() {
            return Err(FaultError::NothingRuns { host: name() });
        }
        let requested_ns = now();
        host.excuse_exit(may_end(answer));
        let since_ns = gate.set(answer).map_err(|why| {
            host.excuse_exit(false);
            refused(format!("its fsync gate is of no use any more: {why}"))
        })?;
        Ok(Self {
            host: Arc::clone(host),
            answer,
            now,
            requested_ns,
            since_ns,
            open: false,
        })
    }

    /// Opens the gate, and starts the application again if the fault made it end.
    fn lift(&mut self) -> Result<DiskReceipt, FaultError> {
        self.open = true;
        let opened = self.host.fsync_gate().map(|gate| gate.open());
        let ended = self.has_ended();
        self.host.excuse_exit(false);
        let opened = opened.unwrap_or_else(|| Err("the host has no gate any more".to_owned()));
        let (lifted_ns, tally) = opened.map_err(|found| FaultError::NotHealed {
            host: self.name(),
            found,
        })?;
        if ended && !may_end(self.answer) {
            return Err(FaultError::Ended {
                host: self.name(),
                found: "its application died while its disk was faulty, which no held or slow sync does"
                    .to_owned(),
            });
        }
        let restarted_ns = if ended { self.restart()? } else { None };
        Ok(DiskReceipt {
            host: self.name(),
            answer: self.answer,
            since_ns: self.since_ns,
            lifted_ns,
            tally,
            ended,
            restarted_ns,
        })
    }

    /// True when nothing runs although no other fault keeps it down.
    fn has_ended(&self) -> bool {
        !self.host.is_down_by_fault()
            && self
                .host
                .tree()
                .into_iter()
                .find_map(ProcessId::find)
                .is_none()
    }

    /// Starts it again, where that is done at all.
    fn restart(&self) -> Result<Option<u64>, FaultError> {
        match self.host.restart() {
            Ok(()) => Ok(Some((self.now)())),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(source) => Err(FaultError::NotRestarted {
                host: self.name(),
                source,
            }),
        }
    }
}

/// Whether a program that ends is what such a disk is expected to bring about.
fn may_end(answer: Answer) -> bool {
    matches!(answer, Answer::Fail { .. })
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        if !self.open {
            contained(|| drop(self.lift()));
        }
    }
}

/// What was measured of one host's faulty disk. Truth times throughout.
struct DiskReceipt {
    host: String,
    answer: Answer,
    since_ns: u64,
    lifted_ns: u64,
    tally: Tally,
    /// The application ended meanwhile.
    ended: bool,
    /// When it was started again.
    restarted_ns: Option<u64>,
}

impl HostReceipt for DiskReceipt {
    /// A call ran into it.
    fn proven(&self) -> bool {
        self.tally.touched() > 0
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns
    }
}

impl fmt::Display for DiskReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasted = ms(self.lifted_ns.saturating_sub(self.since_ns));
        let Self {
            host,
            answer,
            tally,
            ..
        } = self;
        write!(f, "{host}: syncs {answer} for {lasted:.2} ms; {tally}")?;
        if !self.proven() {
            f.write_str("; NOT PROVEN: no sync ran into it")?;
        }
        if self.ended {
            f.write_str("; its application ended of it")?;
        }
        if let Some(restarted_ns) = self.restarted_ns {
            let took = ms(restarted_ns.saturating_sub(self.lifted_ns));
            write!(f, " and was started again in {took:.2} ms")?;
        }
        Ok(())
    }
}

impl OnHost for FaultyDisk {
    type Receipt = DiskReceipt;

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
        format!("syncs {}", self.answer)
    }

    fn check(&self) -> Result<(), FaultError> {
        let works = self.host.fsync_gate().map_or(Ok(()), |gate| gate.check());
        works.map_err(|found| FaultError::Ended {
            host: self.name(),
            found,
        })
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<DiskReceipt, FaultError>> {
        hosts.iter_mut().map(Self::lift).collect()
    }
}
