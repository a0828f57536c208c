//! What the gate did to the calls that reached it, for receipts. Only counts; knows no kernel.

use std::collections::BTreeMap;
use std::fmt;

use super::filter::CALLS;
use crate::receipt::ms;

/// What became of the calls between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that reached the gate, by name.
    pub reached: BTreeMap<&'static str, u64>,
    /// Calls that were held back, and let go on later.
    pub held: u64,
    /// The time that they waited in the gate: the longest.
    pub longest_ns: u64,
    /// The time that they waited in the gate: of all together.
    pub total_ns: u64,
    /// Of the calls that were to be answered after a delay: how much later than that the latest was.
    pub latest_ns: u64,
    /// Calls that were answered with an error and not carried out.
    pub failed: u64,
    /// Calls that were answered with success and not carried out.
    pub lied: u64,
    /// Calls whose thread died while they were held back.
    pub died: u64,
}

impl Tally {
    /// Notes that a call reached the gate.
    pub(super) fn reach(&mut self, number: i64) {
        let name = CALLS.iter().find(|(known, _)| *known == number);
        let name = name.map_or("another call", |(_, name)| *name);
        *self.reached.entry(name).or_default() += 1;
    }

    /// Notes that a call went on after it was held back.
    pub(super) fn let_go(&mut self, waited_ns: u64, late_ns: u64) {
        self.held += 1;
        self.total_ns += waited_ns;
        self.longest_ns = self.longest_ns.max(waited_ns);
        self.latest_ns = self.latest_ns.max(late_ns);
    }

    /// Calls to which the gate did something, dead ones included: they waited too.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.held + self.failed + self.lied + self.died
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reached.is_empty() {
            return f.write_str("no call reached the gate");
        }
        for (index, (name, calls)) in self.reached.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{calls} {name}")?;
        }
        f.write_str(" reached the gate")?;
        if let Some(mean_ns) = self.total_ns.checked_div(self.held) {
            write!(
                f,
                ", {} held back for {:.2} ms on average and {:.2} ms at most",
                self.held,
                ms(mean_ns),
                ms(self.longest_ns),
            )?;
        }
        if self.latest_ns > 0 {
            write!(f, ", let go up to {:.2} ms late", ms(self.latest_ns))?;
        }
        if self.failed > 0 {
            write!(f, ", {} failed", self.failed)?;
        }
        if self.lied > 0 {
            write!(f, ", {} answered with success and not done", self.lied)?;
        }
        if self.died > 0 {
            write!(f, ", {} ended with their thread while held back", self.died)?;
        }
        Ok(())
    }
}
