//! `guarded-set`: acquire, read, hold, write back with one element more, release.
//!
//! The lost-update test of Jepsen's etcd suite (jepsen-io/etcd, `lock-set`, commit c4787f4): each
//! client reads a set under the lock, sleeps, and writes the set it read plus its own element.

use checkers::history::{Function, Outcome};
use rand::rngs::ChaCha8Rng;

use super::{Action, RETRY_NS, Script, ScriptConfig, WorkloadSpec, draw, draw_lock};

/// Registry entry.
pub const SPEC: WorkloadSpec = WorkloadSpec {
    name: "guarded-set",
    summary: "acquire, read, hold, write back with one element more, release: counts lost writes",
    needs_resource: true,
    script: |config| {
        Box::new(GuardedSet {
            config: config.clone(),
            lock: 0,
            stage: Stage::Thinking,
        })
    },
};

struct GuardedSet {
    config: ScriptConfig,
    lock: u32,
    stage: Stage,
}

/// The step that was handed out last.
#[derive(Clone, Copy)]
enum Stage {
    Thinking,
    Acquiring,
    Reading,
    Holding,
    Writing,
    Releasing,
}

impl Script for GuardedSet {
    fn next(&mut self, last: Option<Outcome>, rng: &mut ChaCha8Rng) -> Action {
        let ok = last == Some(Outcome::Ok);
        let (stage, action) = match self.stage {
            Stage::Thinking => {
                self.lock = draw_lock(self.config.locks, rng);
                (Stage::Acquiring, self.step(Function::Acquire))
            }
            Stage::Acquiring if ok => (Stage::Reading, self.step(Function::Read)),
            Stage::Acquiring => (
                Stage::Thinking,
                Action::Wait {
                    ns: draw(&RETRY_NS, rng),
                },
            ),
            Stage::Reading if ok => (
                Stage::Holding,
                Action::Wait {
                    ns: draw(&self.config.hold_ns, rng),
                },
            ),
            Stage::Holding => (Stage::Writing, self.step(Function::Write)),
            Stage::Reading | Stage::Writing => (Stage::Releasing, self.step(Function::Release)),
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

impl GuardedSet {
    fn step(&self, f: Function) -> Action {
        Action::Step { f, lock: self.lock }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_refused_write_still_releases_the_lock() {
        let config = ScriptConfig {
            locks: 1,
            hold_ns: 5..=5,
            think_ns: 0..=0,
        };
        let mut script = (SPEC.script)(&config);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut seen = Vec::new();
        for last in [
            None,
            Some(Outcome::Ok),
            Some(Outcome::Ok),
            None,
            Some(Outcome::Fail),
            Some(Outcome::Ok),
        ] {
            seen.push(match script.next(last, &mut rng) {
                Action::Step { f, .. } => format!("{f:?}"),
                Action::Wait { ns } => format!("wait {ns}"),
            });
        }
        assert_eq!(
            seen,
            ["Acquire", "Read", "wait 5", "Write", "Release", "wait 0"]
        );
    }

    #[test]
    fn a_failed_acquire_is_tried_again_after_a_while() {
        let config = ScriptConfig {
            locks: 3,
            hold_ns: 0..=0,
            think_ns: 0..=0,
        };
        let mut script = (SPEC.script)(&config);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert!(matches!(
            script.next(None, &mut rng),
            Action::Step {
                f: Function::Acquire,
                ..
            }
        ));
        assert!(
            matches!(script.next(Some(Outcome::Fail), &mut rng), Action::Wait { ns } if RETRY_NS.contains(&ns))
        );
        assert!(matches!(
            script.next(None, &mut rng),
            Action::Step {
                f: Function::Acquire,
                ..
            }
        ));
    }
}
