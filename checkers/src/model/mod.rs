//! Models: what a lock, register or set promises, decided exactly and in near-linear time.
//!
//! Each file decides one kind and carries the argument for it; [`crate::search::spec`] defines what each
//! means. In all of them an operation that failed had no effect, one of unknown outcome may take effect at
//! any time after its invoke or never, and its process does nothing afterwards (readers see to that).
//!
//! | name | what it is | decided by |
//! |---|---|---|
//! | `mutex` | Knossos's mutex: anybody may release it | [`ownerless`] |
//! | `owner-mutex` | a mutex that only its holder may release | [`owner`] |
//! | `reentrant:N` | the same, to be held up to N deep by its holder | [`owner`] |
//! | `semaphore:K` | K permits, each released by who took it | [`semaphore`] |
//! | `ownerless-semaphore:K` | K permits, released by anybody | [`ownerless`] |
//! | `fenced` | an owner mutex whose known tokens strictly increase | [`owner`] |
//! | `reentrant-fenced:N` | the same, reentrant; a re-acquire keeps its token | [`owner`] |
//! | `register`, `cas-register` | read, write, compare-and-set | [`register`] |
//! | `set` | add, and read of the whole | [`crate::set_full`] |

pub mod decision;
pub mod name;
pub mod op;
pub mod owner;
pub mod ownerless;
pub mod register;
pub mod semaphore;
mod unique;

use std::ops::ControlFlow;

use crate::search::spec::RegisterSpec;
use crate::search::wgl::Limits;
use decision::Decision;
use op::{Op, partition};
use owner::OwnerLock;

/// A model of one lock or register.
#[derive(Clone, Copy, Debug)]
pub enum Model {
    /// A lock that knows its owner.
    Owner(OwnerLock),
    /// A semaphore that knows its owners.
    Semaphore {
        /// How many permits there are.
        permits: u32,
    },
    /// A mutex or semaphore that anybody may release.
    Ownerless {
        /// How many permits there are.
        permits: u32,
    },
    /// A register.
    Register(RegisterSpec),
}

impl Model {
    /// A mutex that only its holder may release.
    pub const OWNER_MUTEX: Model = Model::Owner(OwnerLock {
        cap: 1,
        fenced: false,
    });

    /// An owner mutex with fencing tokens.
    pub const FENCED: Model = Model::Owner(OwnerLock {
        cap: 1,
        fenced: true,
    });

    /// Decides the operations of one key, sorted by invoke.
    #[must_use]
    pub fn decide_one(&self, ops: &[Op], limits: Limits) -> Decision {
        match *self {
            Model::Owner(lock) => owner::decide(ops, lock).into(),
            Model::Semaphore { permits } => semaphore::decide(ops, permits).into(),
            Model::Ownerless { permits } => ownerless::decide(ops, permits).into(),
            Model::Register(spec) => register::decide(ops, spec, limits),
        }
    }

    /// Decides all keys; `ops` are sorted on the way. Invalid as soon as one is; unknown if one is and none
    /// is invalid.
    #[must_use]
    pub fn decide(&self, ops: &mut [Op], limits: Limits) -> Decision {
        let mut unknown = None;
        let first = partition(ops, |one| match self.decide_one(one, limits) {
            Decision::Valid => ControlFlow::Continue(()),
            Decision::Unknown(why) => {
                unknown.get_or_insert(why);
                ControlFlow::Continue(())
            }
            invalid => ControlFlow::Break(invalid),
        });
        match (first, unknown) {
            (ControlFlow::Break(invalid), _) => invalid,
            (_, Some(why)) => Decision::Unknown(why),
            _ => Decision::Valid,
        }
    }
}
