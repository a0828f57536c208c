//! What the clock faults have in common: a course that a host's clock takes, and the proof that it took it.
//!
//! The proof is a canary under the same clock (`clock::canary`): it reads, sleeps and waits, and every
//! one of its readings and waits is compared with what the course should have given it, in truth time.
//! Also every process of the host must live by that clock. What is off is not proven. This file must
//! never leave a clock skewed: `Skewed` heals it when dropped.

mod course;
mod proof;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(super) use course::Course;
use course::Driver;
use proof::{Measured, SkewReceipt};

use crate::clock::canary::Canary;
use crate::clock::{ClockError, HostClock, Tally};
use crate::fault::on_hosts::{OnHost, OnHosts};
use crate::fault::{FaultError, InForce, Request, contained};
use crate::{HostControl, Now};

/// Puts every host's clock on that course.
pub(super) fn inject(
    hosts: &[Arc<dyn HostControl>],
    course: Course,
    request: &Request<'_>,
) -> Result<Box<dyn InForce>, FaultError> {
    // Every canary is up before the first clock changes, so that the clocks change close together.
    let ready: Result<Vec<Ready>, FaultError> = hosts
        .iter()
        .map(|host| Ready::prepare(host, request.now))
        .collect();
    let skewed: Result<Vec<Skewed>, FaultError> =
        ready?.into_iter().map(|one| one.begin(course)).collect();
    Ok(Box::new(OnHosts(skewed?)))
}

/// A host whose clock can be skewed, and its canary.
struct Ready {
    host: Arc<dyn HostControl>,
    clock: HostClock,
    canary: Canary,
    now: Now,
}

impl Ready {
    fn prepare(host: &Arc<dyn HostControl>, now: Now) -> Result<Self, FaultError> {
        let refused = |what: String| FaultError::Refused {
            host: host.name().to_owned(),
            what,
        };
        let clock = host.clock().cloned().ok_or_else(|| {
            refused("expected a host with a clock of its own, found one without; it must be started with one".into())
        })?;
        let tree = host.tree();
        if tree.is_empty() {
            let host = host.name().to_owned();
            return Err(FaultError::NothingRuns { host });
        }
        let canary =
            Canary::start(&clock, now).map_err(|error| refused(format!("its canary: {error}")))?;
        Ok(Self {
            host: Arc::clone(host),
            clock,
            canary,
            now,
        })
    }

    fn begin(self, course: Course) -> Result<Skewed, FaultError> {
        let requested_ns = (self.now)();
        let before = self.clock.tally();
        let mut skewed = Skewed {
            ready: self,
            course,
            before,
            requested_ns,
            since_ns: requested_ns,
            driver: None,
            healed: false,
        };
        // From here on dropping it heals it.
        let refused = |host: &str, error: ClockError| FaultError::Refused {
            host: host.to_owned(),
            what: error.to_string(),
        };
        skewed.since_ns = course
            .begin(&skewed.ready.clock)
            .map_err(|error| refused(skewed.ready.host.name(), error))?;
        if let Some(pause) = course.pause() {
            skewed.driver = Some(Driver::start(course, &skewed.ready.clock, pause));
        }
        Ok(skewed)
    }
}

/// A host whose clock is skewed. It is healed when this is dropped.
struct Skewed {
    ready: Ready,
    course: Course,
    before: Tally,
    requested_ns: u64,
    since_ns: u64,
    driver: Option<Driver>,
    healed: bool,
}

impl Skewed {
    /// Puts its clock right.
    fn end(&mut self) -> Result<SkewReceipt, FaultError> {
        let checked = self.check();
        self.driver = None;
        self.healed = true;
        // A process that is just ending is no stranger.
        let mut strangers = self.ready.clock.strangers(&self.ready.host.tree());
        if !strangers.is_empty() {
            thread::sleep(Duration::from_millis(5));
            let now = self.ready.clock.strangers(&self.ready.host.tree());
            strangers.retain(|pid| now.contains(pid));
        }
        let tally = self.ready.clock.tally().since(&self.before);
        let healed = self.ready.clock.heal();
        let lifted_ns = healed.map_err(|error| FaultError::NotHealed {
            host: self.name(),
            found: error.to_string(),
        })?;
        checked?;
        let heard = self.ready.canary.between(self.since_ns, lifted_ns);
        Ok(SkewReceipt {
            host: self.name(),
            course: self.course,
            since_ns: self.since_ns,
            lifted_ns,
            measured: Measured::of(&heard, &self.ready.clock),
            strangers,
            tally,
        })
    }
}

impl Drop for Skewed {
    fn drop(&mut self) {
        if !self.healed {
            contained(|| drop(self.end()));
        }
    }
}

impl OnHost for Skewed {
    type Receipt = SkewReceipt;

    fn name(&self) -> String {
        self.ready.host.name().to_owned()
    }

    fn requested_ns(&self) -> u64 {
        self.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.since_ns
    }

    fn words(&self) -> String {
        self.course.to_string()
    }

    fn check(&self) -> Result<(), FaultError> {
        let failed = self.driver.as_ref().and_then(Driver::error);
        failed
            .map_or_else(|| self.ready.clock.check(), Err)
            .map_err(|error| FaultError::Ended {
                host: self.name(),
                found: error.to_string(),
            })
    }

    fn heal(hosts: &mut [Self]) -> Vec<Result<SkewReceipt, FaultError>> {
        hosts.iter_mut().map(Self::end).collect()
    }
}
