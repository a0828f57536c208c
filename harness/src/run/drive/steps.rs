//! What each logical client does next: steps that are handed out, waits, and what holds a step back.
//!
//! What came of a step is not looked at here.

use std::cmp::Reverse;

use checkers::history::{Event, Function, Invoke, Ns, Outcome};
use nemesis::TriggerEvent;
use workloads::script::Action;
use workloads::truth::now_ns;
use workloads::worker::protocol::Step;

use super::Drive;
use crate::run::slot::Doing;

impl Drive {
    /// Asks the slot's script what comes next, and does it.
    pub(super) fn advance(&mut self, index: usize, last: Option<Outcome>) {
        let slot = &mut self.slots[index];
        if !self.workers[slot.worker].is_open() {
            slot.doing = Doing::Done;
            return;
        }
        match slot.script.next(last, &mut slot.rng) {
            // Nothing to wait for: the timers would only cost.
            Action::Wait { ns: 0 } => self.advance(index, None),
            Action::Wait { ns } => self.sleep(index, now_ns() + ns),
            Action::Step {
                f: Function::Acquire,
                ..
            } if self.draining.is_some() => slot.doing = Doing::Done,
            Action::Step { f, lock } => {
                slot.lock = lock;
                match f {
                    Function::Acquire => {
                        if let Some(start_ns) = self.pace() {
                            self.slots[index].delayed = true;
                            self.sleep(index, start_ns);
                            return;
                        }
                    }
                    Function::Read => slot.key = Some(self.registers.current(lock)),
                    Function::Write => {
                        self.registers.written(lock);
                        if let Some(firing) = self.trigger(TriggerEvent::BeforeWrite, index) {
                            self.slots[index].doing = Doing::Parked { firing };
                            return;
                        }
                    }
                    Function::Release | Function::Holds => {}
                }
                self.step(index, f);
            }
        }
    }

    /// Where a rate is set: when the next round may start, if that is not now. A round counts as the
    /// operations it has; holding back whole rounds leaves the holds as they were drawn.
    fn pace(&mut self) -> Option<Ns> {
        let rate = self.config.rate_per_s?;
        let operations = if self.config.workload.needs_resource {
            4.0
        } else {
            2.0
        };
        let now = now_ns();
        let start = self.next_round_ns.max(now);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let gap = (operations / rate * 1e9) as Ns;
        self.next_round_ns = start + gap;
        (start > now).then_some(start)
    }

    /// Hands a step to the slot's worker.
    pub(super) fn step(&mut self, index: usize, f: Function) {
        let at_ns = now_ns();
        let op = self.next_op;
        self.next_op += 1;
        let slot = &mut self.slots[index];
        let client = slot.client;
        let lock = self.lock_names[slot.lock as usize].as_str();
        let element = (f == Function::Write).then_some(self.next_element);
        self.next_element += u64::from(element.is_some());
        let key = matches!(f, Function::Read | Function::Write)
            .then(|| slot.key.clone())
            .flatten();
        let step = Step {
            op,
            client,
            f,
            lock: lock.into(),
            key: key.as_deref().map(Into::into),
            element,
        };
        // A step has only numbers and text: it always serialises.
        if let Ok(line) = serde_json::to_vec(&step) {
            self.workers[slot.worker].send(&line);
        }
        let lock = lock.to_owned();
        slot.doing = Doing::Busy {
            op,
            f,
            since_ns: at_ns,
        };
        self.open.insert(op, index);
        match f {
            Function::Acquire => self.world.waits(client, &self.workers[slot.worker].host),
            Function::Release => {
                self.belief_ends(index);
                self.world.idle(client);
            }
            Function::Read | Function::Write | Function::Holds => {}
        }
        self.record(Event::Invoke(Invoke {
            op,
            client,
            f,
            lock,
            key,
            element,
            at_ns,
        }));
    }

    fn sleep(&mut self, index: usize, until_ns: Ns) {
        let wait = self.next_wait;
        self.next_wait += 1;
        self.slots[index].doing = Doing::Waiting { wait };
        self.timers.push(Reverse((until_ns, index, wait)));
    }

    pub(super) fn fire_timers(&mut self, now: Ns) {
        while let Some(Reverse((due, index, wait))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            if self.slots[index].doing != (Doing::Waiting { wait }) {
                continue;
            }
            if std::mem::take(&mut self.slots[index].delayed) {
                self.step(index, Function::Acquire);
            } else {
                self.advance(index, None);
            }
        }
    }

    /// Tells the nemesis of an event. Gives the injection that the event has to wait for, if any.
    pub(super) fn trigger(&mut self, event: TriggerEvent, index: usize) -> Option<u32> {
        if self.draining.is_some() {
            return None;
        }
        let host = &self.workers[self.slots[index].worker].host;
        let triggered = self.engine.as_ref()?.trigger(event, Some(host));
        triggered
            .iter()
            .find(|firing| firing.immediate)
            .map(|firing| firing.id)
    }
}
