//! What can be known about a request that ended with an error: the one rule behind the tables of errors, of which
//! each backend has its own.
//!
//! A wrong "definitely not" would make a correct server look guilty, so whatever a table does not know is
//! unknown. What must not be in here: an error of any backend.

/// What a request does to the server's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: a failed read is always a definite failure.
    None,
    /// At most one change, carried out as a whole or not at all: a raft proposal, a transaction, a command.
    One,
    /// Several changes within the server, as etcd's lock service and scripts make them: an error may come
    /// after the first.
    Several,
}

/// What an error says about the request that ended with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// It had no effect.
    NotDone,
    /// It had no effect if it was a single change: the check comes before the change, or in its place.
    NotDoneIfSingle,
    /// It may have had an effect, or may still get one.
    Unknown,
}

impl Certainty {
    /// True when a request with that effect definitely had none.
    pub(crate) fn rules_out(self, effect: Effect) -> bool {
        match (effect, self) {
            (Effect::None, _) | (_, Self::NotDone) | (Effect::One, Self::NotDoneIfSingle) => true,
            (Effect::Several, Self::NotDoneIfSingle) | (_, Self::Unknown) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_have_happened_is_ruled_out() {
        let effects = [Effect::None, Effect::One, Effect::Several];
        for (certainty, ruled_out) in [
            (Certainty::NotDone, [true, true, true]),
            (Certainty::NotDoneIfSingle, [true, true, false]),
            (Certainty::Unknown, [true, false, false]),
        ] {
            let found = effects.map(|effect| certainty.rules_out(effect));
            assert_eq!(found, ruled_out, "{certainty:?}");
        }
    }
}
