//! The engine: carries out a schedule on real hosts and reports every step.
//!
//! One thread keeps the timers; each firing runs on a thread of its own, which injects, waits, and
//! heals. What it must not do: decide who a target is (the [`World`] does) or how a fault works.
//!
//! Invariants: each firing sends the notices that [`Notice`] promises, whatever happens to it. A host
//! has at most one fault a layer at a time. After [`Engine::stop`] (or drop) nothing is in force.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::generator::HealPhases;
use crate::schedule::{Choice, HealPhase};
use crate::{FaultPlan, FiringId, Notice, Now, PlanError, Schedule, TriggerEvent, World};

mod drawn;
mod firing;
mod listener;
mod shared;
mod timer;

use drawn::Drawn;
use listener::Listener;
use shared::{Due, Firing, Planned, Shared, State};

/// A running engine.
pub struct Engine {
    shared: Arc<Shared>,
    /// The timer thread, until the engine is stopped. The mutex is held while it is being joined, so
    /// that whoever stops second also returns only when everything is healed.
    timer: Mutex<Option<JoinHandle<()>>>,
}

/// A firing that an event caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// Its number. The first notice that carries it says whether the fault is in force.
    pub id: FiringId,
    /// True when it strikes without delay: then the run loop can hold back what the event announced
    /// until the first notice with this number arrives.
    pub immediate: bool,
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The schedule was not drawn from these plans.
    #[error(
        "the schedule and the faults do not belong together: {what}; draw the schedule again from these faults"
    )]
    Mismatch {
        /// What does not fit.
        what: String,
    },
    /// A thread could not be started.
    #[error(
        "the nemesis' timer thread could not be started: {0}; is a limit on processes reached?"
    )]
    Thread(#[from] io::Error),
}

impl Engine {
    /// Starts an engine. The schedule's times count from `start_ns`; notices go to `notices`, and a
    /// receiver that is gone is no error.
    ///
    /// # Errors
    /// The plans and the schedule do not fit this crate or each other, or no thread can be had.
    pub fn start(
        schedule: &Schedule,
        plans: &[FaultPlan],
        world: Arc<dyn World>,
        notices: Sender<Notice>,
        now: Now,
        start_ns: u64,
    ) -> Result<Self, EngineError> {
        let planned = plans.iter().enumerate().map(|(index, plan)| {
            let spec = plan.check(index + 1, schedule.duration_ns)?;
            Ok(Planned {
                plan: plan.clone(),
                spec,
                fault: (spec.build)(),
            })
        });
        let planned: Vec<Planned> = planned.collect::<Result<_, PlanError>>()?;
        let belongs = schedule.belongs_to(plans);
        belongs.map_err(|what| EngineError::Mismatch { what })?;
        let shared = Arc::new(Shared {
            listens: listened(plans),
            phases: phases(schedule, start_ns),
            state: Mutex::new(State {
                stopping: false,
                last_id: 0,
                due: timed(schedule, start_ns),
                listeners: listeners(schedule, plans),
                drawn: schedule
                    .drawn
                    .as_ref()
                    .map(|drawn| Drawn::new(drawn, start_ns)),
                busy: HashMap::new(),
                active: BTreeMap::new(),
                workers: Vec::new(),
            }),
            planned,
            world,
            notices,
            now,
            start_ns,
            end_ns: start_ns.saturating_add(schedule.duration_ns),
            due_changed: Condvar::new(),
            stopped: Condvar::new(),
        });
        let timer = {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name("nemesis-timer".to_owned());
            builder.spawn(move || timer::run(&shared))?
        };
        Ok(Self {
            shared,
            timer: Mutex::new(Some(timer)),
        })
    }

    /// Tells the engine of an event, and returns the firings that it causes, which is usually none.
    /// Cheap enough for every operation of the run loop: without a fault that waits for such an event
    /// it takes no lock, else a short one.
    #[must_use]
    pub fn trigger(&self, event: TriggerEvent, about_host: Option<&str>) -> Vec<Triggered> {
        let shared = &*self.shared;
        if !shared.listens[event as usize] {
            return Vec::new();
        }
        let at_ns = (shared.now)();
        let mut caused = Vec::new();
        let mut state = shared.lock();
        if state.stopping || at_ns < shared.start_ns {
            return caused;
        }
        let State {
            listeners,
            last_id,
            due,
            ..
        } = &mut *state;
        for listener in listeners.iter_mut().filter(|one| one.event == event) {
            let Some(draw) = listener.hear(at_ns, shared.end_ns, &shared.phases) else {
                continue;
            };
            *last_id += 1;
            caused.push(Triggered {
                id: *last_id,
                immediate: draw.delay_ns == 0,
            });
            due.push(Due {
                at_ns: at_ns.saturating_add(draw.delay_ns),
                id: Some(*last_id),
                firing: Firing::of(
                    Choice {
                        fault: listener.fault,
                        lasts_ns: draw.lasts_ns,
                        pick: draw.pick,
                    },
                    about_host.map(str::to_owned),
                ),
            });
        }
        drop(state);
        if !caused.is_empty() {
            shared.due_changed.notify_one();
        }
        caused
    }

    /// What is in force, for instance `["pause c1"]`, in the order of injection.
    #[must_use]
    pub fn active(&self) -> Vec<String> {
        self.shared.lock().active.values().cloned().collect()
    }

    /// Heals whatever is in force, lets nothing new strike, and returns when that is done: all notices
    /// have been sent by then. Calling it again does nothing.
    pub fn stop(&self) {
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(handle) = timer.take() else {
            return;
        };
        let shared = &*self.shared;
        shared.lock().stopping = true;
        shared.due_changed.notify_all();
        shared.stopped.notify_all();
        // A thread that panicked has nothing more to say: firings report their own panics.
        let _ = handle.join();
        let workers = std::mem::take(&mut shared.lock().workers);
        for worker in workers {
            let _ = worker.join();
        }
        let never_due: Vec<Due> = shared.lock().due.drain().collect();
        for due in never_due {
            if let Some(id) = due.id {
                firing::skip(shared, id, &due.firing, "the run ended before it was due");
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Which events any fault waits for, by [`TriggerEvent`] as a number.
fn listened(plans: &[FaultPlan]) -> [bool; 3] {
    let mut listens = [false; 3];
    for plan in plans {
        if let crate::Trigger::On { event, .. } = plan.trigger {
            listens[event as usize] = true;
        }
    }
    listens
}

/// The firings by the clock, as timers.
fn timed(schedule: &Schedule, start_ns: u64) -> BinaryHeap<Due> {
    let due = schedule.timed.iter().map(|firing| Due {
        at_ns: start_ns.saturating_add(firing.at_ns),
        id: None,
        firing: Firing::of(
            Choice {
                fault: firing.fault,
                lasts_ns: firing.lasts_ns,
                pick: firing.pick,
            },
            None,
        ),
    });
    due.collect()
}

/// The faults that wait for an event, each with its draws.
fn listeners(schedule: &Schedule, plans: &[FaultPlan]) -> Vec<Listener> {
    let listeners = schedule.on_event.iter();
    listeners
        .filter_map(|draws| Listener::new(plans.get(draws.fault)?, draws))
        .collect()
}

/// The phases of healing in truth time.
fn phases(schedule: &Schedule, start_ns: u64) -> HealPhases {
    let phases = schedule.heal.iter().map(|phase| HealPhase {
        from_ns: start_ns.saturating_add(phase.from_ns),
        to_ns: start_ns.saturating_add(phase.to_ns),
    });
    HealPhases(phases.collect())
}
