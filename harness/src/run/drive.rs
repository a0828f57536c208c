//! The run loop: hands each logical client its next step, takes completions, records both.
//!
//! One thread, one poll. It never blocks on a worker, because any of them may be frozen. It knows
//! workers, scripts and the nemesis, never a backend.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use checkers::history::{
    ClientOpened, Completion, EndReason, Event, Function, Invoke, Ns, Outcome,
};
use nemesis::{Engine, TriggerEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use workloads::script::{Action, ScriptConfig, WorkloadSpec};
use workloads::truth::now_ns;
use workloads::worker::protocol::{Said, Step};

use super::live::Live;
use super::progress::{Progress, ProgressSender};
use super::recorder::Recorder;
use super::slot::{Doing, Registers, Slot};
use super::wake::{Wake, Wakes};
use super::worker::{Worker, WorkerError};
use super::world::World;

/// How often figures are sent.
const TICK_NS: Ns = 500_000_000;
/// How long open operations may take after the workload's time is over, beyond the longest hold.
const DRAIN_NS: Ns = 3_000_000_000;

/// What a drive needs to know.
pub struct DriveConfig {
    /// The workload.
    pub workload: &'static WorkloadSpec,
    /// What its scripts share.
    pub script: ScriptConfig,
    /// The trial's seed.
    pub seed: u64,
    /// Number of logical clients at a time.
    pub clients: u32,
    /// How long new rounds begin, in nanoseconds.
    pub duration_ns: Ns,
    /// Whether a client that is told that its lock is lost stops.
    pub heeds_lost: bool,
    /// Most operations a second over all clients.
    pub rate_per_s: Option<f64>,
}

/// How a drive ended.
pub struct DriveEnd {
    /// Why.
    pub reason: EndReason,
    /// Operations that were handed out.
    pub operations: u64,
    /// The registers that were in use.
    pub registers: Vec<String>,
    /// The workers that ended before the run did, with what they did wrong.
    pub failures: Vec<WorkerError>,
}

/// A running workload.
pub struct Drive {
    config: DriveConfig,
    workers: Vec<Worker>,
    slots: Vec<Slot>,
    recorder: Recorder,
    progress: ProgressSender,
    world: Arc<World>,
    engine: Option<Engine>,
    wakes: Wakes,
    start_ns: Ns,
    next_op: u64,
    next_client: u32,
    next_wait: u64,
    next_element: u64,
    next_round_ns: Ns,
    open: HashMap<u64, usize>,
    timers: BinaryHeap<Reverse<(Ns, usize, u64)>>,
    registers: Registers,
    lock_names: Vec<String>,
    /// Events of this turn of the loop: handing them over one by one would wake the recorder each time.
    events: Vec<Event>,
    live: Live,
    failures: Vec<WorkerError>,
    draining: Option<(EndReason, Ns)>,
}

impl Drive {
    /// A drive over workers that are ready.
    #[must_use]
    pub fn new(
        config: DriveConfig,
        workers: Vec<Worker>,
        recorder: Recorder,
        progress: ProgressSender,
        world: Arc<World>,
        engine: Option<Engine>,
        wakes: Wakes,
    ) -> Self {
        let lock_names = (0..config.script.locks)
            .map(|lock| format!("l{lock}"))
            .collect();
        Self {
            workers,
            slots: Vec::new(),
            recorder,
            progress,
            world,
            engine,
            wakes,
            start_ns: now_ns(),
            next_op: 0,
            next_client: 0,
            next_wait: 0,
            next_element: 1,
            next_round_ns: 0,
            open: HashMap::new(),
            timers: BinaryHeap::new(),
            registers: Registers::default(),
            lock_names,
            events: Vec::new(),
            live: Live::default(),
            failures: Vec::new(),
            draining: None,
            config,
        }
    }

    /// Runs the workload to its end; every fault is healed when it returns.
    #[must_use]
    pub fn run(mut self) -> DriveEnd {
        self.progress.send(&Progress::Started);
        for index in 0..self.config.clients as usize {
            let slot = self.fill(index % self.workers.len());
            self.slots.push(slot);
            self.advance(index, None);
        }
        let mut next_tick = self.start_ns + TICK_NS;
        loop {
            let now = now_ns();
            self.fire_timers(now);
            self.take_wakes();
            self.flush();
            if now >= next_tick {
                self.tick(now);
                next_tick = now + TICK_NS;
            }
            if self.draining.is_none() {
                self.drain_if_over(now);
            }
            if let Some((reason, until)) = self.draining
                && (now >= until || self.slots.iter().all(|slot| slot.doing == Doing::Done))
            {
                return self.finish(reason, now);
            }
            self.wait(next_tick);
            self.receive();
        }
    }

    fn record(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Fills a slot with a new logical client.
    fn fill(&mut self, worker: usize) -> Slot {
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

    /// Asks the slot's script what comes next, and does it.
    fn advance(&mut self, index: usize, last: Option<Outcome>) {
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
    fn step(&mut self, index: usize, f: Function) {
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

    fn fire_timers(&mut self, now: Ns) {
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
    fn trigger(&mut self, event: TriggerEvent, index: usize) -> Option<u32> {
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

    fn take_wakes(&mut self) {
        for wake in self.wakes.take() {
            match wake {
                Wake::FaultSettled { firing } => {
                    let parked = |slot: &Slot| slot.doing == Doing::Parked { firing };
                    while let Some(index) = self.slots.iter().position(parked) {
                        self.step(index, Function::Write);
                    }
                }
                Wake::WorkerRestarted(worker) => self.replace_worker(*worker),
                Wake::LeaderChanged => {
                    if let (None, Some(engine)) = (self.draining, &self.engine) {
                        // Nothing waits for what a new leader sets off.
                        let _ = engine.trigger(TriggerEvent::LeaderChanged, None);
                    }
                }
            }
        }
    }

    /// Hands over what is to be recorded, then the steps: an invoke is on record before it can have an effect.
    fn flush(&mut self) {
        self.recorder.record_all(std::mem::take(&mut self.events));
        for index in 0..self.workers.len() {
            if let Err(error) = self.workers[index].flush() {
                self.end_worker(index, error);
            }
        }
    }

    fn receive(&mut self) {
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
                self.record(Event::Lost(checkers::history::Lost {
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

    fn belief_ends(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if std::mem::take(&mut slot.believes) {
            self.live.ended(slot.lock, slot.client);
        }
    }

    /// The outcome is unknown: the client is never used again.
    fn retire(&mut self, index: usize) {
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
    fn end_worker(&mut self, worker: usize, error: WorkerError) {
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
    fn abandon(&mut self, index: usize, why: &str) {
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

    fn replace_worker(&mut self, worker: Worker) {
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

    fn tick(&mut self, now: Ns) {
        let faults = self.engine.as_ref().map(Engine::active).unwrap_or_default();
        self.progress.send(&Progress::Tick(
            self.live.tick((now - self.start_ns) / 1_000_000, faults),
        ));
    }

    /// Begins to end the run when its time is over, when it is interrupted, or when nobody is left.
    fn drain_if_over(&mut self, now: Ns) {
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

    fn finish(mut self, reason: EndReason, now: Ns) -> DriveEnd {
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

    /// Sleeps until a worker says something, a wake comes, or a timer is due.
    fn wait(&mut self, next_tick: Ns) {
        let mut until = next_tick;
        if let Some(Reverse((due, ..))) = self.timers.peek() {
            until = until.min(*due);
        }
        if let Some((_, deadline)) = self.draining {
            until = until.min(deadline);
        } else {
            until = until.min(self.start_ns + self.config.duration_ns);
        }
        let left = until.saturating_sub(now_ns());
        // poll(2) counts milliseconds; rounding up would make short holds long.
        let timeout = PollTimeout::try_from(std::time::Duration::from_millis(left / 1_000_000))
            .unwrap_or(PollTimeout::ZERO);
        let timeout = if left > 0 && left < 1_000_000 {
            self.nap(left)
        } else {
            timeout
        };
        let mut fds = vec![PollFd::new(self.wakes.fd(), PollFlags::POLLIN)];
        for worker in self.workers.iter().filter(|worker| worker.is_open()) {
            fds.push(PollFd::new(worker.output_fd(), PollFlags::POLLIN));
            fds.extend(
                worker
                    .blocked_input_fd()
                    .map(|fd| PollFd::new(fd, PollFlags::POLLOUT)),
            );
        }
        // An interrupted poll is a wake-up like any other.
        let _ = poll(&mut fds, timeout);
    }

    /// Less than a millisecond is left: sleep it away unless something comes first.
    fn nap(&self, left_ns: Ns) -> PollTimeout {
        std::thread::sleep(std::time::Duration::from_nanos(left_ns.min(200_000)));
        PollTimeout::ZERO
    }
}
