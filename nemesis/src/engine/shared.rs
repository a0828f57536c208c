//! What the engine's threads share, behind one mutex.
//!
//! The lock is held for bookkeeping only: never while a host, the world or a receiver is called.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use checkers::history::FaultEvent;

use super::drawn::Drawn;
use super::listener::Listener;
use crate::fault::{Fault, Layer};
use crate::generator::HealPhases;
use crate::schedule::Choice;
use crate::{FaultPlan, FaultSpec, FiringId, HostControl, Notice, Now, World};

/// A plan with its fault.
pub(super) struct Planned {
    pub(super) plan: FaultPlan,
    pub(super) spec: &'static FaultSpec,
    pub(super) fault: Box<dyn Fault>,
}

/// What is to be done at one firing.
pub(super) struct Firing {
    /// The first that applies is injected. One, unless the generator drew them; never none.
    pub(super) choices: Vec<Choice>,
    /// The host that the triggering event was about.
    pub(super) about: Option<String>,
    /// Whether the generator counts it.
    pub(super) drawn: bool,
}

impl Firing {
    /// A firing of one fault by its own trigger.
    pub(super) fn of(choice: Choice, about: Option<String>) -> Self {
        Self {
            choices: vec![choice],
            about,
            drawn: false,
        }
    }
}

/// A firing that waits for its time.
pub(super) struct Due {
    pub(super) at_ns: u64,
    /// Set for firings that an event caused; those by the clock get theirs when they are due.
    pub(super) id: Option<FiringId>,
    pub(super) firing: Firing,
}

impl Due {
    /// Earliest first; at the same time those by the clock, then by number, then by fault.
    fn key(&self) -> (u64, Option<FiringId>, usize) {
        (self.at_ns, self.id, self.firing.choices[0].fault)
    }
}

// The heap yields its greatest element, so the order is turned around.
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

/// Everything that changes.
pub(super) struct State {
    /// Set once, when the engine is to stop.
    pub(super) stopping: bool,
    pub(super) last_id: FiringId,
    pub(super) due: BinaryHeap<Due>,
    pub(super) listeners: Vec<Listener>,
    /// What the generator drew, if there is one.
    pub(super) drawn: Option<Drawn>,
    /// Who acts on which layer of which host.
    pub(super) busy: HashMap<(String, Layer), (FiringId, &'static str)>,
    /// What is in force, for the progress display.
    pub(super) active: BTreeMap<FiringId, String>,
    pub(super) workers: Vec<JoinHandle<()>>,
}

/// What the engine's threads share.
pub(super) struct Shared {
    pub(super) planned: Vec<Planned>,
    pub(super) world: Arc<dyn World>,
    pub(super) notices: Sender<Notice>,
    pub(super) now: Now,
    pub(super) start_ns: u64,
    /// Nothing strikes from here on.
    pub(super) end_ns: u64,
    /// Events that any fault waits for.
    pub(super) listens: [bool; 3],
    /// When everything is healed for a while; truth times.
    pub(super) phases: HealPhases,
    pub(super) state: Mutex<State>,
    /// For the timer: there is a new firing, a drawn one has ended, or the engine stops.
    pub(super) due_changed: Condvar,
    /// For the firings: the engine stops.
    pub(super) stopped: Condvar,
}

impl Shared {
    /// A panic while the lock was held leaves consistent data: every change in here is complete in
    /// itself. Healing must go on.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event. A receiver that is gone has stopped listening, which is its right.
    pub(super) fn notify(&self, event: FaultEvent) {
        let _ = self.notices.send(Notice::new(event));
    }

    /// A drawn firing is in force: the next may have waited for that.
    pub(super) fn drawn_began(&self, since_ns: u64) {
        if let Some(drawn) = &mut self.lock().drawn {
            drawn.began(since_ns);
        }
        self.due_changed.notify_all();
    }

    /// A drawn firing is over, or came to nothing: the next may have waited for that.
    pub(super) fn drawn_ended(&self, id: FiringId) {
        let now_ns = (self.now)();
        if let Some(drawn) = &mut self.lock().drawn {
            drawn.ended(id, now_ns);
        }
        self.due_changed.notify_all();
    }

    /// Claims a layer of all these hosts for a firing, or says who has one of them.
    pub(super) fn claim<'a>(
        &'a self,
        id: FiringId,
        spec: &FaultSpec,
        hosts: &[Arc<dyn HostControl>],
    ) -> Result<Claim<'a>, String> {
        let keys: Vec<_> = hosts
            .iter()
            .map(|host| (host.name().to_owned(), spec.layer))
            .collect();
        let mut state = self.lock();
        for key in &keys {
            if let Some((other, kind)) = state.busy.get(key) {
                return Err(format!("{} is already under fault {other} ({kind})", key.0));
            }
        }
        for key in &keys {
            state.busy.insert(key.clone(), (id, spec.name));
        }
        drop(state);
        Ok(Claim {
            shared: self,
            id,
            keys,
        })
    }
}

/// A firing's hold on its hosts, and its entry among those in force. Given back when dropped.
pub(super) struct Claim<'a> {
    shared: &'a Shared,
    id: FiringId,
    keys: Vec<(String, Layer)>,
}

impl Claim<'_> {
    /// Shows it among those in force.
    pub(super) fn show(&self, label: String) {
        self.shared.lock().active.insert(self.id, label);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for key in &self.keys {
            state.busy.remove(key);
        }
        state.active.remove(&self.id);
    }
}
