//! The run loop: hands each logical client its next step, takes completions, records both.
//!
//! One thread, one poll. It never blocks on a worker, because any of them may be frozen. It knows
//! workers, scripts and the nemesis, never a backend.

mod answers;
mod clients;
mod ending;
mod steps;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use checkers::history::{EndReason, Event, Function, Ns};
use nemesis::{Engine, TriggerEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use workloads::script::{ScriptConfig, WorkloadSpec};
use workloads::truth::now_ns;

use crate::run::live::Live;
use crate::run::progress::{Progress, ProgressSender};
use crate::run::recorder::Recorder;
use crate::run::slot::{Doing, Registers, Slot};
use crate::run::wake::{Wake, Wakes};
use crate::run::worker::{Worker, WorkerError};
use crate::run::world::World;

/// How often figures are sent.
const TICK_NS: Ns = 500_000_000;

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

    fn tick(&mut self, now: Ns) {
        let faults = self.engine.as_ref().map(Engine::active).unwrap_or_default();
        self.progress.send(&Progress::Tick(
            self.live.tick((now - self.start_ns) / 1_000_000, faults),
        ));
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
