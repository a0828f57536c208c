//! One place in the workload, filled by one logical client at a time.
//!
//! A client whose outcome is unknown is retired, and a new one takes its place.

use checkers::history::{Function, Ns};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use workloads::script::{Script, ScriptConfig, WorkloadSpec};

/// After how many writes a lock's register is left for a fresh one. It bounds what a client reads and
/// writes back, so that long runs do not become quadratic.
const WRITES_PER_REGISTER: u64 = 500;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Waiting for its time to come (`since` tells one wait from the next).
    Waiting {
        /// Number of the wait.
        wait: u64,
    },
    /// A write that is held back until a fault is in force.
    Parked {
        /// The injection it waits for.
        firing: u32,
    },
    /// An operation is open.
    Busy {
        /// The operation.
        op: u64,
        /// What it does.
        f: Function,
        /// When it was handed over.
        since_ns: Ns,
    },
    /// Nothing more to do.
    Done,
}

/// A slot.
pub struct Slot {
    /// The logical client that fills it now.
    pub client: u32,
    /// Index of its worker.
    pub worker: usize,
    /// Its program.
    pub script: Box<dyn Script>,
    /// Its randomness: a stream of its own, so that one client's choices do not depend on another's speed.
    pub rng: ChaCha8Rng,
    /// What it is doing.
    pub doing: Doing,
    /// Number of the lock it works with.
    pub lock: u32,
    /// True while an acquire is held back by the workload's rate.
    pub delayed: bool,
    /// True between an acquire's ok and the end of the belief.
    pub believes: bool,
    /// The register of this round.
    pub key: Option<String>,
}

impl Slot {
    /// A slot filled by `client`, whose choices are drawn from the trial's seed and its number.
    #[must_use]
    pub fn new(
        client: u32,
        worker: usize,
        workload: &WorkloadSpec,
        config: &ScriptConfig,
        seed: u64,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Stream 0 and up are the nemesis's.
        rng.set_stream((1 << 32) + u64::from(client));
        Self {
            client,
            worker,
            script: (workload.script)(config),
            rng,
            doing: Doing::Waiting { wait: 0 },
            lock: 0,
            delayed: false,
            believes: false,
            key: None,
        }
    }
}

/// The registers in use, one a lock at a time.
#[derive(Debug, Default)]
pub struct Registers(std::collections::HashMap<u32, u64>);

impl Registers {
    /// The register that a round of `lock` works on.
    #[must_use]
    pub fn current(&self, lock: u32) -> String {
        format!(
            "l{lock}/{}",
            self.0.get(&lock).copied().unwrap_or(0) / WRITES_PER_REGISTER
        )
    }

    /// A write to a register of `lock` was handed out.
    pub fn written(&mut self, lock: u32) {
        *self.0.entry(lock).or_default() += 1;
    }

    /// Every register that was ever in use.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        let mut locks: Vec<_> = self.0.iter().collect();
        locks.sort();
        let generations = |(lock, writes): (&u32, &u64)| {
            let lock = *lock;
            (0..=writes / WRITES_PER_REGISTER)
                .map(move |generation| format!("l{lock}/{generation}"))
        };
        locks.into_iter().flat_map(generations).collect()
    }
}
