//! One firing, from the question whom it strikes to the receipt. Runs on a thread of its own.
//!
//! Every way through this file sends the notices that [`Notice`](crate::Notice) promises, and the
//! fault in force is owned here, so that it is dropped, and thereby healed, on every way too.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use checkers::history::{FaultEvent, FaultPhase};

use super::shared::{Claim, Firing, Shared};
use crate::fault::{FaultError, InForce, Request};
use crate::{FiringId, HostControl};

/// How often a fault in force is checked.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Carries out one firing and contains its panics.
pub(super) fn run(shared: &Shared, id: FiringId, firing: &Firing) {
    let mut report = Report::new(shared, id, firing);
    let ended = catch_unwind(AssertUnwindSafe(|| carry_out(&mut report)));
    if let Err(panic) = ended {
        report.send(
            FaultPhase::Failed,
            format!(
                "its thread panicked: {}; what it had done was undone; this is a bug in the harness",
                panic_text(&*panic)
            ),
        );
    }
}

/// Reports a firing that was not even tried.
pub(super) fn skip(shared: &Shared, id: FiringId, firing: &Firing, why: &str) {
    Report::new(shared, id, firing).skip(why.to_owned());
}

/// Reports a firing that could not be tried.
pub(super) fn fail(shared: &Shared, id: FiringId, firing: &Firing, why: String) {
    Report::new(shared, id, firing).send(FaultPhase::Failed, why);
}

/// Resolves, injects, waits, heals.
fn carry_out(report: &mut Report<'_>) {
    let (shared, firing) = (report.shared, report.firing);
    let planned = &shared.planned[firing.fault];
    let resolved = shared
        .world
        .resolve(&planned.plan.target, firing.about.as_deref(), firing.pick);
    let hosts = match resolved {
        Ok(hosts) if hosts.is_empty() => return report.skip("nobody fits the target".to_owned()),
        Ok(hosts) => each_once(hosts),
        Err(why) => return report.skip(why),
    };
    report.hosts = hosts.iter().map(|host| host.name().to_owned()).collect();
    let claim = match shared.claim(report.id, planned.spec, &hosts) {
        Ok(claim) => claim,
        Err(why) => return report.skip(why),
    };
    if shared.lock().stopping {
        return report.skip("the run ended before it was injected".to_owned());
    }
    let request = Request {
        asked_ns: firing.lasts_ns,
        now: shared.now,
        params: &planned.plan.params,
        pick: firing.pick,
        world: &*shared.world,
    };
    report.requested_ns = (shared.now)();
    match planned.fault.inject(&hosts, &request) {
        Ok(in_force) => endure(report, in_force, claim),
        Err(error) => {
            drop(claim);
            report.send(FaultPhase::Failed, error.to_string());
        }
    }
}

/// Reports that a fault is in force, waits for its time or the engine's end, and heals it.
fn endure(report: &mut Report<'_>, mut in_force: Box<dyn InForce>, claim: Claim<'_>) {
    let label = format!("{} {}", report.kind(), report.hosts.join(" "));
    claim.show(label);
    report.requested_ns = in_force.requested_ns();
    let since_ns = in_force.since_ns();
    report.send_at(FaultPhase::Injected, since_ns, false, in_force.words());
    let until_ns = report
        .firing
        .lasts_ns
        .map(|lasts_ns| since_ns.saturating_add(lasts_ns));
    let checked = wait(report.shared, &*in_force, until_ns);
    let healed = in_force.heal();
    // The hosts are free again before anybody hears of it.
    drop(in_force);
    drop(claim);
    match (healed, checked) {
        (Ok(receipt), Ok(end)) => {
            let words = match end {
                Ended::OnTime => receipt.words,
                Ended::ByStop => format!("{}; cut short by the end of the run", receipt.words),
            };
            report.send_at(FaultPhase::Healed, receipt.lifted_ns, receipt.proven, words);
        }
        (Err(error), _) | (Ok(_), Err(error)) => {
            report.send(FaultPhase::Failed, error.to_string());
        }
    }
}

/// What ended the wait.
enum Ended {
    /// Its time was over, or it was to last until the end of the trial and that has come.
    OnTime,
    /// The engine was stopped before its time was over.
    ByStop,
}

/// Waits until a fault's time is over or the engine stops, and now and then checks the fault.
fn wait(
    shared: &Shared,
    in_force: &dyn InForce,
    until_ns: Option<u64>,
) -> Result<Ended, FaultError> {
    loop {
        let state = shared.lock();
        let now_ns = (shared.now)();
        let left_ns = until_ns.map(|until_ns| until_ns.saturating_sub(now_ns));
        if left_ns == Some(0) {
            return Ok(Ended::OnTime);
        }
        if state.stopping {
            return Ok(match until_ns {
                Some(_) => Ended::ByStop,
                None => Ended::OnTime,
            });
        }
        let left = left_ns.map_or(Duration::MAX, Duration::from_nanos);
        let woken = shared.stopped.wait_timeout(state, left.min(CHECK_EVERY));
        let (state, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        // Not when its time is over: healing measures more than the check does, and is due.
        if timeout.timed_out() && left > CHECK_EVERY {
            in_force.check()?;
        }
    }
}

/// The hosts without repetitions, in their order.
fn each_once(hosts: Vec<Arc<dyn HostControl>>) -> Vec<Arc<dyn HostControl>> {
    let mut once: Vec<Arc<dyn HostControl>> = Vec::with_capacity(hosts.len());
    for host in hosts {
        if once.iter().all(|seen| seen.name() != host.name()) {
            once.push(host);
        }
    }
    once
}

/// The text of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a text")
}

/// What the notices of one firing have in common.
struct Report<'a> {
    shared: &'a Shared,
    id: FiringId,
    firing: &'a Firing,
    /// The hosts that it reaches, once they are known.
    hosts: Vec<String>,
    requested_ns: u64,
}

impl<'a> Report<'a> {
    fn new(shared: &'a Shared, id: FiringId, firing: &'a Firing) -> Self {
        Self {
            shared,
            id,
            firing,
            hosts: Vec::new(),
            requested_ns: (shared.now)(),
        }
    }

    fn kind(&self) -> &'static str {
        self.shared.planned[self.firing.fault].spec.name
    }

    /// Sends a notice of what was seen just now.
    fn send(&self, phase: FaultPhase, words: String) {
        self.send_at(phase, (self.shared.now)(), false, words);
    }

    fn send_at(&self, phase: FaultPhase, at_ns: u64, proven: bool, receipt: String) {
        let target = &self.shared.planned[self.firing.fault].plan.target;
        self.shared.notify(FaultEvent {
            id: self.id,
            kind: self.kind().to_owned(),
            target: target.to_string(),
            hosts: self.hosts.clone(),
            phase,
            at_ns,
            requested_ns: self.requested_ns,
            proven,
            receipt,
        });
    }

    /// Sends that nothing was done, and lets another event try instead.
    fn skip(&self, why: String) {
        let mut state = self.shared.lock();
        let fault = self.firing.fault;
        if let Some(listener) = state.listeners.iter_mut().find(|one| one.fault == fault) {
            listener.forgive();
        }
        drop(state);
        self.send(FaultPhase::Skipped, why);
    }
}
