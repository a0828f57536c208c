//! What workers say: operations that ended, and locks that holders were told are lost.
//!
//! Each is recorded as it was said; whether it can be so is for the checks to find out.

use checkers::history::{Completion, Event, Function, Lost, Outcome};
use nemesis::TriggerEvent;
use workloads::worker::protocol::Said;

use super::Drive;
use crate::run::slot::{Doing, Slot};
use crate::run::worker::WorkerError;

impl Drive {
    pub(super) fn receive(&mut self) {
        let mut said = Vec::new();
        for index in 0..self.workers.len() {
            if !self.workers[index].is_open() {
                continue;
            }
            let received = self.workers[index].receive(|line| said.push(line));
            for line in said.drain(..) {
                if let Err(error) = self.take(index, line) {
                    self.end_worker(index, error);
                }
            }
            if let Err(error) = received {
                self.end_worker(index, error);
            }
        }
    }

    fn take(&mut self, worker: usize, said: Said) -> Result<(), WorkerError> {
        match said {
            Said::Done(outcome, completion) => {
                let slot = self
                    .open
                    .remove(&completion.op)
                    .filter(|slot| self.slots[*slot].worker == worker);
                let Some(index) = slot else {
                    return Err(self.workers[worker].not_open(completion.op));
                };
                self.complete(index, outcome, completion);
            }
            Said::Lost(lost) => {
                let holder = |slot: &Slot| slot.client == lost.client && slot.worker == worker;
                if self.config.heeds_lost
                    && let Some(index) = self.slots.iter().position(holder)
                {
                    self.belief_ends(index);
                }
                let (client, lock, at_ns, why) = (lost.client, lost.lock, lost.at_ns, lost.why);
                self.record(Event::Lost(Lost {
                    client,
                    lock,
                    at_ns,
                    why,
                }));
            }
            other @ (Said::Hello(_) | Said::Ready | Said::Refused(_)) => {
                return Err(self.workers[worker].out_of_turn(&other));
            }
        }
        Ok(())
    }

    /// An operation ended: record it, count it, go on.
    fn complete(&mut self, index: usize, outcome: Outcome, completion: Completion) {
        let Doing::Busy { f, .. } = self.slots[index].doing else {
            return;
        };
        self.live.operation();
        self.count(index, f, outcome, &completion);
        self.record(match outcome {
            Outcome::Ok => Event::Ok(completion),
            Outcome::Fail => Event::Fail(completion),
            Outcome::Info => Event::Info(completion),
        });
        if outcome == Outcome::Info {
            self.retire(index);
            return;
        }
        if f == Function::Acquire && outcome == Outcome::Ok {
            let (client, worker) = (self.slots[index].client, self.slots[index].worker);
            self.slots[index].believes = true;
            self.live.acquired(self.slots[index].lock, client);
            self.world.holds(client, &self.workers[worker].host);
            if self.draining.is_some() {
                self.slots[index].doing = Doing::Done;
                self.step(index, Function::Release);
                return;
            }
            self.trigger(TriggerEvent::Acquired, index);
        }
        if f == Function::Release && self.draining.is_some() {
            self.slots[index].doing = Doing::Done;
            return;
        }
        self.advance(index, Some(outcome));
    }

    fn count(&mut self, index: usize, f: Function, outcome: Outcome, completion: &Completion) {
        if f != Function::Write {
            return;
        }
        match (
            outcome,
            &self.slots[index].key,
            completion.base,
            completion.version,
        ) {
            (Outcome::Ok, Some(key), Some(base), Some(version)) => {
                self.live.wrote(key, base, version)
            }
            (Outcome::Fail, ..) => self.live.refused(),
            _ => {}
        }
    }

    pub(super) fn belief_ends(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if std::mem::take(&mut slot.believes) {
            self.live.ended(slot.lock, slot.client);
        }
    }
}
