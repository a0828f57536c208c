//! `mutex`: acquire, hold, release. The history that linearizability checks of a lock need.

use checkers::history::{Function, Outcome};
use rand::rngs::ChaCha8Rng;

use super::{Action, RETRY_NS, Script, ScriptConfig, WorkloadSpec, draw, draw_lock};

/// Registry entry.
pub const SPEC: WorkloadSpec = WorkloadSpec {
    name: "mutex",
    summary: "acquire, hold, release: overlapping terms and token order, without a resource",
    needs_resource: false,
    script: |config| {
        Box::new(Mutex {
            config: config.clone(),
            lock: 0,
            stage: Stage::Thinking,
        })
    },
};

struct Mutex {
    config: ScriptConfig,
    lock: u32,
    stage: Stage,
}

/// The step that was handed out last.
#[derive(Clone, Copy)]
enum Stage {
    Thinking,
    Acquiring,
    Holding,
    Releasing,
}

impl Script for Mutex {
    fn next(&mut self, last: Option<Outcome>, rng: &mut ChaCha8Rng) -> Action {
        let (stage, action) = match self.stage {
            Stage::Thinking => {
                self.lock = draw_lock(self.config.locks, rng);
                (
                    Stage::Acquiring,
                    Action::Step {
                        f: Function::Acquire,
                        lock: self.lock,
                    },
                )
            }
            Stage::Acquiring if last == Some(Outcome::Ok) => (
                Stage::Holding,
                Action::Wait {
                    ns: draw(&self.config.hold_ns, rng),
                },
            ),
            Stage::Acquiring => (
                Stage::Thinking,
                Action::Wait {
                    ns: draw(&RETRY_NS, rng),
                },
            ),
            Stage::Holding => (
                Stage::Releasing,
                Action::Step {
                    f: Function::Release,
                    lock: self.lock,
                },
            ),
            Stage::Releasing => (
                Stage::Thinking,
                Action::Wait {
                    ns: draw(&self.config.think_ns, rng),
                },
            ),
        };
        self.stage = stage;
        action
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn takes_turns_between_acquire_and_release() {
        let config = ScriptConfig {
            locks: 1,
            hold_ns: 0..=0,
            think_ns: 7..=7,
        };
        let mut script = (SPEC.script)(&config);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let acquire = Action::Step {
            f: Function::Acquire,
            lock: 0,
        };
        let release = Action::Step {
            f: Function::Release,
            lock: 0,
        };
        let expected = [
            acquire,
            Action::Wait { ns: 0 },
            release,
            Action::Wait { ns: 7 },
            acquire,
        ];
        let last = [None, Some(Outcome::Ok), None, Some(Outcome::Ok), None];
        for (last, expected) in last.into_iter().zip(expected) {
            assert_eq!(script.next(last, &mut rng), expected);
        }
    }
}
