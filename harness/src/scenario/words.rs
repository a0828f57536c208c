//! Enumerations that are written as one word in a scenario file.
//!
//! The macro keeps the word, the serde name and the list for error texts and the reference in one
//! place. What must not be in here: words that the rest of the program registers (backends, locks,
//! faults …); those are names, see [`super::known`].

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every word, in the order of the reference.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The value that this word stands for.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The word as written in a scenario file.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// What a holder does to find out that it is no longer the holder.
    Discipline {
        /// It never looks.
        Ignore = "ignore",
        /// It stops when its client library says that the lock is lost.
        Session = "session",
        /// It stops when, by its own clock, the lease it last renewed has run out.
        Deadline = "deadline",
        /// It sends its fencing token with each write, and the resource decides.
        Token = "token",
        /// It writes in one transaction with the check that its lock still exists.
        Txn = "txn",
    }
}

words! {
    /// What the resource does with a write whose fencing token is stale.
    Tokens {
        /// Notes it and accepts the write.
        Record = "record",
        /// Refuses the write.
        Enforce = "enforce",
    }
}

words! {
    /// What in a running trial can trigger a fault.
    TriggerEvent {
        /// A client was granted a lock.
        Acquired = "acquired",
        /// A holder is about to write to the resource.
        BeforeWrite = "before-write",
        /// The cluster has a leader that is not the one before.
        LeaderChanged = "leader-changed",
    }
}
