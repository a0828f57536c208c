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
use crate::schedule::Choice;
use crate::{FiringId, HostControl, Target};

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
    if firing.drawn {
        shared.drawn_ended(id);
    }
}

/// Reports a firing that was not even tried.
pub(super) fn skip(shared: &Shared, id: FiringId, firing: &Firing, why: &str) {
    Report::new(shared, id, firing).skip(why.to_owned());
}

/// Reports a firing that could not be tried.
pub(super) fn fail(shared: &Shared, id: FiringId, firing: &Firing, why: String) {
    Report::new(shared, id, firing).send(FaultPhase::Failed, why);
    if firing.drawn {
        shared.drawn_ended(id);
    }
}

/// Tries the choices in their order until one applies, and carries that out.
fn carry_out(report: &mut Report<'_>) {
    let mut passed: Vec<String> = Vec::new();
    for chosen in 0..report.firing.choices.len() {
        report.chosen = chosen;
        if report.shared.lock().stopping {
            return report.skip("the run ended before it was injected".to_owned());
        }
        let Err(why) = attempt(report, &passed) else {
            return;
        };
        passed.push(match report.firing.drawn {
            true => format!("{} of {} ({why})", report.kind(), report.target()),
            false => why,
        });
    }
    let mut why = passed.join("; ");
    if report.firing.drawn {
        why = format!("nothing that can be drawn applies now: {why}");
        report.chosen = 0;
        report.hosts.clear();
    }
    report.skip(why);
}

/// Resolves, injects, waits, heals. An error says why the choice cannot apply now; nothing was done then.
/// `passed` are the choices before it, each with its reason.
fn attempt(report: &mut Report<'_>, passed: &[String]) -> Result<(), String> {
    let (shared, firing, choice) = (report.shared, report.firing, report.choice());
    let planned = &shared.planned[choice.fault];
    let hosts = shared
        .world
        .resolve(&planned.plan.target, firing.about.as_deref(), choice.pick)?;
    if hosts.is_empty() {
        return Err("nobody fits the target".to_owned());
    }
    let hosts = each_once(hosts);
    report.hosts = hosts.iter().map(|host| host.name().to_owned()).collect();
    if let Some(down) = hosts.iter().find(|host| host.is_down_by_fault())
        && firing.drawn
    {
        return Err(format!("{} is down by another fault", down.name()));
    }
    let claim = shared.claim(report.id, planned.spec, &hosts)?;
    let now_ns = (shared.now)();
    if shared.phases.around(now_ns).is_some() {
        return Err("everything is being healed for a while".to_owned());
    }
    let lasts_ns = lasts_ns(shared, firing, choice, now_ns);
    let request = Request {
        asked_ns: lasts_ns,
        now: shared.now,
        params: &planned.plan.params,
        pick: choice.pick,
        world: &*shared.world,
    };
    report.requested_ns = now_ns;
    match planned.fault.inject(&hosts, &request) {
        Ok(in_force) => endure(report, in_force, claim, lasts_ns, passed),
        Err(FaultError::NothingRuns { host }) if firing.drawn => {
            return Err(format!("nothing runs on {host}"));
        }
        Err(error) => {
            drop(claim);
            report.send(FaultPhase::Failed, error.to_string());
        }
    }
    Ok(())
}

/// How long a choice may last from now on: until everything is healed, for a drawn one also at the end.
fn lasts_ns(shared: &Shared, firing: &Firing, choice: &Choice, now_ns: u64) -> Option<u64> {
    let end_ns = firing.drawn.then_some(shared.end_ns);
    let healed_ns = shared.phases.next_from(now_ns).into_iter().chain(end_ns);
    let left_ns = healed_ns.map(|at_ns| at_ns.saturating_sub(now_ns));
    left_ns.chain(choice.lasts_ns).min()
}

/// Reports that a fault is in force, waits for its time or the engine's end, and heals it.
fn endure(
    report: &mut Report<'_>,
    mut in_force: Box<dyn InForce>,
    claim: Claim<'_>,
    lasts_ns: Option<u64>,
    passed: &[String],
) {
    let label = format!("{} {}", report.kind(), report.hosts.join(" "));
    claim.show(label);
    report.requested_ns = in_force.requested_ns();
    let since_ns = in_force.since_ns();
    if report.firing.drawn {
        report.shared.drawn_began(since_ns);
    }
    let mut words = in_force.words();
    if !passed.is_empty() {
        words.push_str(&format!("; drawn after {}", passed.join("; ")));
    }
    if lasts_ns != report.choice().lasts_ns {
        words.push_str("; until everything is healed");
    }
    report.send_at(FaultPhase::Injected, since_ns, false, words);
    let until_ns = lasts_ns.map(|lasts_ns| since_ns.saturating_add(lasts_ns));
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
        if left_ns == Some(0) || in_force.is_over() {
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
    /// Position of the choice that it is about.
    chosen: usize,
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
            chosen: 0,
            hosts: Vec::new(),
            requested_ns: (shared.now)(),
        }
    }

    fn choice(&self) -> &'a Choice {
        &self.firing.choices[self.chosen]
    }

    fn kind(&self) -> &'static str {
        self.shared.planned[self.choice().fault].spec.name
    }

    fn target(&self) -> &'a Target {
        &self.shared.planned[self.choice().fault].plan.target
    }

    /// Sends a notice of what was seen just now.
    fn send(&self, phase: FaultPhase, words: String) {
        self.send_at(phase, (self.shared.now)(), false, words);
    }

    fn send_at(&self, phase: FaultPhase, at_ns: u64, proven: bool, receipt: String) {
        self.shared.notify(FaultEvent {
            id: self.id,
            kind: self.kind().to_owned(),
            target: self.target().to_string(),
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
        let fault = self.choice().fault;
        if let Some(listener) = state.listeners.iter_mut().find(|one| one.fault == fault) {
            listener.forgive();
        }
        drop(state);
        self.send(FaultPhase::Skipped, why);
    }
}
