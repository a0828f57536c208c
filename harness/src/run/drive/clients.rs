//! Logical clients as they come and go: one that does not know what became of its operation is never used
//! again, and all of a worker's go with it.

use checkers::history::{ClientOpened, Completion, Event};
use workloads::truth::now_ns;

use super::Drive;
use crate::run::progress::Progress;
use crate::run::slot::{Doing, Slot};
use crate::run::worker::{Worker, WorkerError};

impl Drive {
    /// Fills a slot with a new logical client.
    pub(super) fn fill(&mut self, worker: usize) -> Slot {
        let client = self.next_client;
        self.next_client += 1;
        let Worker { host, node, .. } = &self.workers[worker];
        let (host, node) = (host.to_string(), node.clone());
        self.record(Event::Client(ClientOpened {
            client,
            host,
            node,
            at_ns: now_ns(),
        }));
        Slot::new(
            client,
            worker,
            self.config.workload,
            &self.config.script,
            self.config.seed,
        )
    }

    /// The outcome is unknown: the client is never used again.
    pub(super) fn retire(&mut self, index: usize) {
        self.belief_ends(index);
        let (client, worker) = (self.slots[index].client, self.slots[index].worker);
        self.world.idle(client);
        if self.workers[worker].is_open() {
            self.workers[worker].send(format!("{{\"close\":{client}}}").as_bytes());
        }
        if self.draining.is_some() || !self.workers[worker].is_open() {
            self.slots[index].doing = Doing::Done;
            return;
        }
        self.slots[index] = self.fill(worker);
        self.advance(index, None);
    }

    /// A worker ended, by itself or because of what it said: its open operations are unknown.
    pub(super) fn end_worker(&mut self, worker: usize, error: WorkerError) {
        if !self.workers[worker].is_open() {
            return;
        }
        self.workers[worker].shut();
        let why = error.to_string();
        let expected = self.world.is_killed(&self.workers[worker].host);
        if !expected {
            self.progress.send(&Progress::Warning(why.clone()));
            self.failures.push(error);
        }
        let code = if expected {
            "worker-killed"
        } else {
            "worker-ended"
        };
        for index in 0..self.slots.len() {
            if self.slots[index].worker == worker {
                self.abandon(index, &format!("{code}: {why}"));
                self.retire(index);
            }
        }
    }

    /// Records the slot's open operation, if it has one, as unknown.
    pub(super) fn abandon(&mut self, index: usize, why: &str) {
        if let Doing::Busy { op, since_ns, .. } = self.slots[index].doing {
            self.open.remove(&op);
            let (invoke_ns, return_ns, error) = (since_ns, now_ns(), Some(why.to_owned()));
            self.record(Event::Info(Completion {
                op,
                invoke_ns,
                return_ns,
                error,
                ..Completion::default()
            }));
        }
    }

    pub(super) fn replace_worker(&mut self, worker: Worker) {
        let Some(index) = self.workers.iter().position(|old| old.host == worker.host) else {
            return;
        };
        self.workers[index] = worker;
        for slot in 0..self.slots.len() {
            if self.slots[slot].worker == index && self.draining.is_none() {
                self.slots[slot] = self.fill(index);
                self.advance(slot, None);
            }
        }
    }
}
