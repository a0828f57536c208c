//! The timer thread: starts each firing when it is due, on a thread of its own.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::firing;
use super::shared::{Firing, Shared, State};
use crate::FiringId;

/// Runs until the engine stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    loop {
        if state.stopping {
            return;
        }
        let now_ns = (shared.now)();
        if let Some((id, firing)) = due(&mut state, shared, now_ns) {
            drop(state);
            launch(shared, id, firing);
            state = shared.lock();
            continue;
        }
        let next_ns = [timed_ns(&state), drawn_ns(&state, shared)];
        let woken = match next_ns.into_iter().flatten().min() {
            Some(at_ns) => {
                let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
                let woken = shared.due_changed.wait_timeout(state, wait);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let woken = shared.due_changed.wait(state);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
        };
        state = woken;
    }
}

/// When the next firing is due that waits for its time.
fn timed_ns(state: &State) -> Option<u64> {
    state.due.peek().map(|due| due.at_ns)
}

/// When the next drawn firing may strike, within the trial.
fn drawn_ns(state: &State, shared: &Shared) -> Option<u64> {
    let next_ns = state.drawn.as_ref()?.next_ns(&shared.phases);
    next_ns.filter(|at_ns| *at_ns < shared.end_ns)
}

/// Takes a firing that is due, with its number.
fn due(state: &mut State, shared: &Shared, now_ns: u64) -> Option<(FiringId, Firing)> {
    let is_due = |at_ns: &u64| *at_ns <= now_ns;
    if timed_ns(state).filter(is_due).is_some() {
        let due = state.due.pop()?;
        let id = due.id.unwrap_or_else(|| next_id(state));
        return Some((id, due.firing));
    }
    drawn_ns(state, shared).filter(is_due)?;
    let id = next_id(state);
    let taken = state.drawn.as_mut()?.take(id)?;
    let firing = Firing {
        choices: taken.choices,
        about: None,
        drawn: true,
    };
    Some((id, firing))
}

fn next_id(state: &mut State) -> FiringId {
    state.last_id += 1;
    state.last_id
}

/// Starts the thread of one firing, and forgets those that have ended.
fn launch(shared: &Arc<Shared>, id: FiringId, firing: Firing) {
    let firing = Arc::new(firing);
    let spawned = {
        let (shared, firing) = (Arc::clone(shared), Arc::clone(&firing));
        let builder = thread::Builder::new().name(format!("nemesis-{id}"));
        builder.spawn(move || firing::run(&shared, id, &firing))
    };
    match spawned {
        Ok(worker) => {
            let mut state = shared.lock();
            state.workers.retain(|worker| !worker.is_finished());
            state.workers.push(worker);
        }
        Err(error) => firing::fail(
            shared,
            id,
            &firing,
            format!("its thread could not be started: {error}; is a limit on processes reached?"),
        ),
    }
}
