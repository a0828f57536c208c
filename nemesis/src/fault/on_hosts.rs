//! A fault in force on each of several hosts, one by one: what most faults have in common once they struck.
//!
//! What a fault does to a host, and how that is proven, is in its own file; here the hosts' times, words and
//! receipts become those of the whole. Links and plans that belong to no single host are not for here.

use std::fmt;

use crate::fault::{FaultError, InForce};
use crate::receipt::Receipt;

/// A fault in force on one host. Dropping it heals it.
pub(super) trait OnHost: Send + Sized {
    /// What is measured of it.
    type Receipt: HostReceipt;

    /// The host's name.
    fn name(&self) -> String;

    /// When it was asked for.
    fn requested_ns(&self) -> u64;

    /// When it was confirmed to be in force.
    fn since_ns(&self) -> u64;

    /// What was measured so far, in words.
    fn words(&self) -> String;

    /// Checks cheaply that it is still in force.
    fn check(&self) -> Result<(), FaultError> {
        Ok(())
    }

    /// Heals it on every host, also on those after one that gave an error.
    fn heal(hosts: &mut [Self]) -> Vec<Result<Self::Receipt, FaultError>>;
}

/// What was measured of one host's fault. In words it begins with the host's name.
pub(super) trait HostReceipt: fmt::Display {
    /// True when the measurements prove the fault.
    fn proven(&self) -> bool;

    /// When it began to be lifted.
    fn lifted_ns(&self) -> u64;
}

/// The hosts that a fault struck.
pub(super) struct OnHosts<H>(pub(super) Vec<H>);

impl<H: OnHost> InForce for OnHosts<H> {
    fn requested_ns(&self) -> u64 {
        self.0.iter().map(H::requested_ns).min().unwrap_or(0)
    }

    fn since_ns(&self) -> u64 {
        self.0.iter().map(H::since_ns).max().unwrap_or(0)
    }

    fn words(&self) -> String {
        let words = self.0.iter();
        let words = words.map(|host| format!("{}: {}", host.name(), host.words()));
        words.collect::<Vec<_>>().join("; ")
    }

    fn check(&self) -> Result<(), FaultError> {
        self.0.iter().try_for_each(H::check)
    }

    fn heal(&mut self) -> Result<Receipt, FaultError> {
        let receipts = all(H::heal(&mut self.0))?;
        let words: Vec<String> = receipts.iter().map(ToString::to_string).collect();
        let lifted_ns = receipts.iter().map(HostReceipt::lifted_ns).min();
        Ok(Receipt {
            proven: receipts.iter().all(HostReceipt::proven),
            lifted_ns: lifted_ns.unwrap_or(0),
            words: words.join("; "),
        })
    }
}

/// What was done for each host, or what went wrong for some of them.
pub(super) fn all<T>(
    results: impl IntoIterator<Item = Result<T, FaultError>>,
) -> Result<Vec<T>, FaultError> {
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => done.push(one),
            Err(error) => errors.push(error),
        }
    }
    FaultError::of_all(errors).map_or(Ok(done), Err)
}
