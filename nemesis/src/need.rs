//! What a host must be started with so that a fault can strike it later.
//!
//! Such things cost a little while they are idle and cannot be added to a running process, so a host
//! gets them only when the trial's faults ask for them.

use std::fmt;

/// Something that a host is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// Its processes ask us about every sync ([`mechanism::fsync_gate`](crate::mechanism::fsync_gate)).
    FsyncGate,
    /// Its data lies on a disk that can forget what was not synced
    /// ([`mechanism::undo_fs`](crate::mechanism::undo_fs)).
    UndoFs,
    /// Its processes have a clock of their own ([`clock`](crate::clock)).
    Clock,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FsyncGate => "fsync gate",
            Self::UndoFs => "file system that forgets",
            Self::Clock => "clock of its own",
        })
    }
}
