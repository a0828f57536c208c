//! What was done to the processes of one host, for receipts.

use std::collections::BTreeMap;
use std::fmt;

/// What a clock fault does not reach, for whoever chooses one. What of it can be seen is counted in
/// [`Tally::gaps`].
pub const NOT_SKEWED: &str = "io_uring timeouts, SO_RCVTIMEO, setitimer, TCP's own timers, programs that read \
    the processor's counter themselves";

/// What was done to a host's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Timed waits that reached the supervisor.
    pub waits: u64,
    /// Of these, waits whose timeout was replaced.
    pub rewritten: u64,
    /// Waits in flight that were armed again because the clock changed.
    pub rearmed: u64,
    /// Readings without the vDSO that were answered.
    pub readings: u64,
    /// Waits that kept their own timeout although they should not have, which disproves the fault.
    pub missed: u64,
    /// Times that a process asked for something that measures time in a way that is not skewed, by name.
    pub gaps: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// What was counted since an earlier moment. Gaps are kept whole: a ring or a timer that was set up
    /// before a fault still works in it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            waits: self.waits - earlier.waits,
            rewritten: self.rewritten - earlier.rewritten,
            rearmed: self.rearmed - earlier.rearmed,
            readings: self.readings - earlier.readings,
            missed: self.missed - earlier.missed,
            gaps: self.gaps.clone(),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waits,
            rewritten,
            rearmed,
            readings,
            missed,
            gaps,
        } = self;
        write!(
            f,
            "{waits} timed waits, {rewritten} rewritten, {rearmed} armed again, {readings} raw readings"
        )?;
        if *missed > 0 {
            write!(f, ", {missed} MISSED")?;
        }
        for (name, count) in gaps {
            write!(f, "; NOT SKEWED: {name} ({count}×)")?;
        }
        Ok(())
    }
}
