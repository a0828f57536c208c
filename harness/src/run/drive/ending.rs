//! The end of a drive: faults are healed, holders keep their hold, what is open gets a last chance, and what
//! is still open then is unknown.

use checkers::history::{EndReason, Function, Ns};

use super::{Drive, DriveEnd};
use crate::run::slot::Doing;

/// How long open operations may take after the workload's time is over, beyond the longest hold.
const DRAIN_NS: Ns = 3_000_000_000;

impl Drive {
    /// Begins to end the run when its time is over, when it is interrupted, or when nobody is left.
    pub(super) fn drain_if_over(&mut self, now: Ns) {
        let longest = *self.config.script.hold_ns.end();
        let (reason, limit) = if self.wakes.is_interrupted() {
            (EndReason::Interrupted, DRAIN_NS)
        } else if self.workers.iter().all(|worker| !worker.is_open())
            && !self.world.may_restart_clients()
        {
            (EndReason::Failed, 0)
        } else if now >= self.start_ns + self.config.duration_ns {
            (EndReason::Completed, longest + DRAIN_NS)
        } else {
            return;
        };
        self.draining = Some((reason, now + limit));
        // Every fault is healed before the open operations get their last chance to end.
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
        for index in 0..self.slots.len() {
            match self.slots[index].doing {
                // A holder keeps its hold; everybody else has nothing left to wait for.
                Doing::Waiting { .. } if !self.slots[index].believes => {
                    self.slots[index].doing = Doing::Done
                }
                Doing::Parked { .. } => self.step(index, Function::Write),
                _ => {}
            }
        }
        self.tick(now);
    }

    pub(super) fn finish(mut self, reason: EndReason, now: Ns) -> DriveEnd {
        for index in 0..self.slots.len() {
            self.abandon(index, "run-ended: still open when the run's time was over");
        }
        self.tick(now);
        self.recorder.record_all(self.events);
        DriveEnd {
            reason,
            operations: self.next_op,
            registers: self.registers.all(),
            failures: self.failures,
        }
    }
}
