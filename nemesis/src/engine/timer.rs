//! The timer thread: starts each firing when it is due, on a thread of its own.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::firing;
use super::shared::{Due, Shared};
use crate::FiringId;

/// Runs until the engine stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    loop {
        if state.stopping {
            return;
        }
        let now_ns = (shared.now)();
        let next_ns = state.due.peek().map(|due| due.at_ns);
        match next_ns {
            Some(at_ns) if at_ns <= now_ns => {
                let due = state.due.pop().expect("it was just seen");
                let id = due.id.unwrap_or_else(|| {
                    state.last_id += 1;
                    state.last_id
                });
                drop(state);
                launch(shared, id, due);
                state = shared.lock();
            }
            Some(at_ns) => {
                let wait = Duration::from_nanos(at_ns - now_ns);
                let woken = shared.due_changed.wait_timeout(state, wait);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
            None => {
                let woken = shared.due_changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Starts the thread of one firing, and forgets those that have ended.
fn launch(shared: &Arc<Shared>, id: FiringId, due: Due) {
    let firing = Arc::new(due.firing);
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
