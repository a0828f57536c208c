//! `rolling-restart`: the targets are restarted one after the other, as in an upgrade: each is killed, stays
//! down for a while and is started again, and the next has its turn when that one does its work again.
//!
//! Whether it does only the host can tell; one that is not well in time does not end the roll, as a
//! careless operator would not end it, but the receipt says so. The fault is over by itself when all had
//! their turn. This file must never leave a host down: `CrashedHost` starts it again when dropped.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::crash::CrashedHost;
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request, contained, no_check};
use crate::mechanism::probe;
use crate::receipt::{CrashReceipt, Receipt, ms};
use crate::target::NODE_FORMS;
use crate::{HostControl, Now, ParamKind, ParamSpec, Params};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "rolling-restart",
    summary: "restarts its targets one after the other, each when the one before does its work again",
    targets: NODE_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check: no_check,
    layer: Layer::Processes,
    needs: &[],
    build: || Box::new(RollingRestart),
    probe: || vec![probe::sigkill()],
};

const DOWN: &str = "down";
const BETWEEN: &str = "between";
const PATIENCE: &str = "patience";
const DEFAULT_DOWN_NS: u64 = 500_000_000;
const DEFAULT_BETWEEN_NS: u64 = 1_000_000_000;
const DEFAULT_PATIENCE_NS: u64 = 10_000_000_000;

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: DOWN,
        kind: ParamKind::Duration,
        default: Some("\"500ms\""),
        summary: "How long each target is down.",
    },
    ParamSpec {
        name: BETWEEN,
        kind: ParamKind::Duration,
        default: Some("\"1s\""),
        summary: "From the moment one does its work again to the turn of the next.",
    },
    ParamSpec {
        name: PATIENCE,
        kind: ParamKind::Duration,
        default: Some("\"10s\""),
        summary: "How long one may take until it does its work again before the next has its turn all the same.",
    },
];

/// Between two questions whether a node is well.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The fault.
struct RollingRestart;

impl Fault for RollingRestart {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let refused = |what: String| FaultError::Refused {
            host: hosts.first().map_or("", |host| host.name()).to_owned(),
            what,
        };
        let roll = Roll {
            hosts: hosts.to_vec(),
            now: request.now,
            times: Times::of(request.params),
            end: AtomicBool::new(false),
            state: Mutex::default(),
        };
        let roll = Arc::new(roll);
        let requested_ns = (request.now)();
        let (began, first_is_down) = mpsc::channel();
        let thread = {
            let roll = Arc::clone(&roll);
            let builder = thread::Builder::new().name("rolling-restart".to_owned());
            builder.spawn(move || roll.carry_out(&began))
        };
        let thread = thread.map_err(|error| {
            refused(format!(
                "a thread could not be started: {error}; is a limit reached?"
            ))
        })?;
        let mut in_force = RollInForce {
            roll,
            requested_ns,
            since_ns: requested_ns,
            thread: Some(thread),
        };
        match first_is_down.recv() {
            Ok(gone_ns) => {
                in_force.since_ns = gone_ns;
                Ok(Box::new(in_force))
            }
            Err(_) => Err(in_force
                .finish()
                .err()
                .unwrap_or_else(|| refused("nothing to restart".to_owned()))),
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy)]
struct Times {
    down: Duration,
    between: Duration,
    patience: Duration,
}

impl Times {
    fn of(params: &Params) -> Self {
        let time =
            |name, default_ns| Duration::from_nanos(params.duration_ns(name).unwrap_or(default_ns));
        Self {
            down: time(DOWN, DEFAULT_DOWN_NS),
            between: time(BETWEEN, DEFAULT_BETWEEN_NS),
            patience: time(PATIENCE, DEFAULT_PATIENCE_NS),
        }
    }
}

/// A roll that a thread carries out.
struct Roll {
    hosts: Vec<Arc<dyn HostControl>>,
    now: Now,
    times: Times,
    /// Set when no further host is to have its turn, and nothing is to be waited for.
    end: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    turns: Vec<Turn>,
    failed: Option<FaultError>,
    over: bool,
}

impl Roll {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread. Tells when the first host is down.
    fn carry_out(&self, began: &mpsc::Sender<u64>) {
        for (index, host) in self.hosts.iter().enumerate() {
            if index > 0 {
                self.sleep(self.times.between);
            }
            if self.end.load(Ordering::SeqCst) {
                break;
            }
            match self.turn(host, began) {
                Ok(turn) => self.state().turns.push(turn),
                Err(error) => {
                    self.state().failed = Some(error);
                    break;
                }
            }
        }
        self.state().over = true;
    }

    /// Restarts one host and waits until it is well.
    fn turn(
        &self,
        host: &Arc<dyn HostControl>,
        began: &mpsc::Sender<u64>,
    ) -> Result<Turn, FaultError> {
        let mut crashed = CrashedHost::kill(host, self.now)?;
        let gone_ns = crashed.confirm()?;
        // Only the first is waited for.
        let _ = began.send(gone_ns);
        self.sleep(self.times.down);
        let crash = crashed.restart()?;
        let well = self.await_well(&**host);
        Ok(Turn { crash, well })
    }

    fn await_well(&self, host: &dyn HostControl) -> Well {
        let began = Instant::now();
        loop {
            match host.is_well() {
                None => return Well::Unasked,
                Some(true) => return Well::After(began.elapsed()),
                Some(false) if began.elapsed() >= self.times.patience => {
                    return Well::NotWithin(began.elapsed());
                }
                Some(false) if self.end.load(Ordering::SeqCst) => {
                    return Well::NotWithin(began.elapsed());
                }
                Some(false) => self.sleep(ASK_EVERY),
            }
        }
    }

    /// Sleeps, but not longer than until the end is asked for.
    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.end.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

/// One host's turn.
struct Turn {
    crash: CrashReceipt,
    well: Well,
}

/// Whether a restarted host did its work again.
enum Well {
    /// So long after its start.
    After(Duration),
    /// Not within this time.
    NotWithin(Duration),
    /// There was nobody to ask.
    Unasked,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = |time: &Duration| time.as_secs_f64() * 1e3;
        write!(f, "{}", self.crash)?;
        match &self.well {
            Well::After(time) => write!(f, ", at work again {:.2} ms later", took(time)),
            Well::NotWithin(time) => write!(f, ", not at work within {:.2} ms", took(time)),
            Well::Unasked => Ok(()),
        }
    }
}

/// A roll in force.
struct RollInForce {
    roll: Arc<Roll>,
    requested_ns: u64,
    since_ns: u64,
    thread: Option<JoinHandle<()>>,
}

impl RollInForce {
    /// Ends the roll; the host whose turn it is comes back before this returns.
    fn finish(&mut self) -> Result<Receipt, FaultError> {
        let lifted_ns = (self.roll.now)();
        self.roll.end.store(true, Ordering::SeqCst);
        let name = || {
            self.roll
                .hosts
                .first()
                .map_or("", |host| host.name())
                .to_owned()
        };
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().map_err(|_| FaultError::Ended {
                host: name(),
                found: "its thread panicked; this is a bug in the harness".to_owned(),
            })?;
        }
        let mut state = self.roll.state();
        if let Some(failed) = state.failed.take() {
            return Err(failed);
        }
        let (had, of) = (state.turns.len(), self.roll.hosts.len());
        let mut words = format!("{had} of {of} restarted one after the other");
        if had < of {
            words.push_str(" before it was ended");
        }
        for turn in &state.turns {
            words.push_str(&format!("; {turn}"));
        }
        // One that was cut short still was a roll if it got to a second target.
        let rolled = had == of || had > 1;
        let proven = rolled && state.turns.iter().all(|turn| turn.crash.proven());
        if !proven {
            words.push_str("; NOT PROVEN: a roll restarts two targets at least");
        }
        Ok(Receipt {
            proven,
            lifted_ns,
            words,
        })
    }
}

impl Drop for RollInForce {
    fn drop(&mut self) {
        if self.thread.is_some() {
            contained(|| drop(self.finish()));
        }
    }
}

impl InForce for RollInForce {
    fn requested_ns(&self) -> u64 {
        self.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.since_ns
    }

    fn words(&self) -> String {
        let names: Vec<&str> = self.roll.hosts.iter().map(|host| host.name()).collect();
        format!(
            "{}: each down for {:.2} ms, one after the other",
            names.join(" "),
            ms(u64::try_from(self.roll.times.down.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    fn is_over(&self) -> bool {
        self.roll.state().over
    }

    fn heal(&mut self) -> Result<Receipt, FaultError> {
        self.finish()
    }
}
