//! A rule: what happens to the frames of some directed links, and whether that makes sense.
//!
//! Plain data with checks; who is struck and when is decided in [`link`](super::link).

/// What a rule does to each frame that it is about. The default does nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// No frame passes; those under way are dropped too.
    pub cut: bool,
    /// With `cut`: cut for so long, then whole for so long, and again. In nanoseconds.
    pub flap_ns: Option<u64>,
    /// Each frame arrives so much later, in nanoseconds.
    pub delay_ns: u64,
    /// The delay of each frame differs from `delay_ns` by up to this, uniformly, in nanoseconds. Frames
    /// overtake each other then, as they do with `netem`: keeping their order would make the delay longer
    /// on average than what was asked for.
    pub jitter_ns: u64,
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames that are not delayed, and so overtake those that are.
    pub reorder: f64,
    /// Share of frames in which one bit is flipped.
    pub corrupt: f64,
    /// Most bytes a second. Frames wait for their turn, at most [`LONGEST_QUEUE_NS`]; then they are lost.
    pub bytes_per_s: Option<u64>,
}

/// A link of limited rate has a buffer for so much time, as routers have; what comes on top is lost.
pub const LONGEST_QUEUE_NS: u64 = 250_000_000;

/// What happens on some directed links.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The links, as (sender, receiver), by the names of the hosts.
    pub links: Vec<(String, String)>,
    /// Only TCP and UDP packets from or to this port, if any is given.
    pub port: Option<u16>,
    /// What happens.
    pub effect: Effect,
    /// The fault's own draw from the seed.
    pub draw: u64,
}

/// A rule that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It does nothing.
    #[error(
        "expected at least one effect on a link (cut, delay, loss, duplicate, reorder, corrupt or rate above zero), found none"
    )]
    NoEffect,
    /// Its parts exclude each other.
    #[error("expected effects that can go together, found {found}; {fix}")]
    Contradiction {
        /// The two that cannot.
        found: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// A share is no share.
    #[error("expected a {what} from 0 to 1, found {found}")]
    NoShare {
        /// Which.
        what: &'static str,
        /// What was given.
        found: String,
    },
    /// It is about no link.
    #[error("expected at least one link between two hosts, found none: the fault reaches nobody")]
    NoLinks,
    /// A link from a host to itself, which passes no network.
    #[error(
        "expected a link between two hosts, found one from {host} to itself; name two different hosts"
    )]
    Loop {
        /// The host.
        host: String,
    },
}

impl Effect {
    /// Says what makes no sense about it, if anything does.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), RuleError> {
        let shares = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        for (what, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                let found = share.to_string();
                return Err(RuleError::NoShare { what, found });
            }
        }
        let contradiction = |found, fix| Err(RuleError::Contradiction { found, fix });
        let softer = self.delay_ns > 0
            || self.jitter_ns > 0
            || shares.iter().any(|(_, share)| *share > 0.0)
            || self.bytes_per_s.is_some();
        if self.cut && softer {
            return contradiction(
                "a cut together with delay, loss or the like",
                "a link that is cut has nothing to delay or lose; leave one of them out",
            );
        }
        if self.flap_ns.is_some() && !self.cut {
            return contradiction("flapping without a cut", "add the cut");
        }
        if self.flap_ns == Some(0) {
            return contradiction("flapping every 0 ns", "give it a length");
        }
        if self.jitter_ns > self.delay_ns {
            return contradiction(
                "a jitter above its delay",
                "a frame cannot arrive before it was sent; raise the delay",
            );
        }
        if self.reorder > 0.0 && self.delay_ns == 0 {
            return contradiction(
                "reordering without a delay",
                "reordered frames are those that are not delayed; add a delay",
            );
        }
        if self.bytes_per_s == Some(0) {
            return contradiction("a rate of 0 B/s", "that is a cut; write it as one");
        }
        if self.cut || softer {
            Ok(())
        } else {
            Err(RuleError::NoEffect)
        }
    }

    /// Whether anything is left to chance.
    pub(super) fn draws(&self) -> bool {
        let shares = [self.loss, self.duplicate, self.reorder, self.corrupt];
        self.jitter_ns > 0 || shares.iter().any(|share| *share > 0.0)
    }

    /// Whether any frame can arrive late.
    pub(super) fn delays(&self) -> bool {
        self.delay_ns > 0 || self.bytes_per_s.is_some()
    }

    /// Whether a frame must be one packet with a checksum, and not a batch that is still to be cut up.
    pub(super) fn needs_single_packets(&self) -> bool {
        let shares = [self.loss, self.duplicate, self.reorder, self.corrupt];
        self.bytes_per_s.is_some() || self.jitter_ns > 0 || shares.iter().any(|share| *share > 0.0)
    }
}

impl Rule {
    /// Says what makes no sense about it, if anything does.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), RuleError> {
        self.effect.check()?;
        if self.links.is_empty() {
            return Err(RuleError::NoLinks);
        }
        match self.links.iter().find(|(from, to)| from == to) {
            Some((host, _)) => Err(RuleError::Loop { host: host.clone() }),
            None => Ok(()),
        }
    }
}
