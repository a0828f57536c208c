//! A userspace Ethernet switch between the hosts: who hears whom, how late, and how badly.
//!
//! Every host has a port, which is a file descriptor that reads and writes whole frames, each behind a
//! virtio header ([`HEADER_LEN`] bytes): a packet socket or a TAP device, handed in by whoever knows
//! namespaces. One thread forwards ([`thread`]); a fault is a [`Rule`] over directed links, installed and
//! taken away by its number. Rules that overlap each do their part, so faults compose. Which frames are
//! struck is drawn by (fault, link, count of frames): the same frames get the same fate ([`link`]).
//!
//! What must not be in here: namespaces, host processes, scenario words.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::Now;

mod counters;
mod flight;
mod frame;
mod link;
mod probe;
mod rule;
mod sys;
mod thread;

pub use counters::{Lateness, RuleCounters, Totals};
pub use frame::HEADER_LEN;
pub use probe::probe;
pub use rule::{Effect, LONGEST_QUEUE_NS, Rule, RuleError};

/// How long the switch's thread may take to answer; under full load it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of an installed rule.
pub type RuleId = u64;

/// Switches the segmentation and checksum offloads of a host's interface.
///
/// With offloads a frame can be 64 KiB of many segments without checksums: losing or corrupting one is
/// then not what a network does, and corruption would reach the application unnoticed.
pub trait Offloads: Send + Sync {
    /// Switches them on or off.
    ///
    /// # Errors
    /// What the kernel answered.
    fn set(&self, on: bool) -> io::Result<()>;
}

/// A port to add.
pub struct PortSpec {
    /// Name of the host behind it.
    pub name: String,
    /// The host's hardware address.
    pub mac: [u8; 6],
    /// Reads and writes frames, each behind a virtio header; non-blocking.
    pub frames: OwnedFd,
    /// The host's offloads; `None` when its frames never have any.
    pub offloads: Option<Box<dyn Offloads>>,
}

/// Why the switch could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// A system call at the start failed.
    #[error("the switch could not be started: {0}")]
    Start(#[source] io::Error),
    /// Its thread has ended.
    #[error(
        "the network switch has died: {why}; no frame passes between the hosts any more, so nothing after that counts"
    )]
    Died {
        /// What it said last.
        why: String,
    },
    /// Its thread does not answer.
    #[error(
        "the network switch did not answer within {} s; is the machine overloaded?",
        PATIENCE.as_secs()
    )]
    Silent,
    /// No port has that name.
    #[error("the network switch has no port {name}; there are {known}")]
    UnknownPort {
        /// The name that was asked for.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// The network is a bridge, and it or its tool cannot do that.
    #[error("the bridge between the hosts: {what}")]
    Bridge {
        /// What was expected and found.
        what: String,
    },
    /// The rule makes no sense.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The offloads of a host could not be switched.
    #[error(
        "{host}: its segmentation and checksum offloads could not be switched: {source}; without that this fault would strike whole batches of packets"
    )]
    Offloads {
        /// The host.
        host: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// What the thread is asked to do. Each answer is sent after the effect is complete.
enum Command {
    AddPort(Port, SyncSender<()>),
    Install(RuleId, Installation, SyncSender<u64>),
    Remove(RuleId, SyncSender<Option<(u64, RuleCounters)>>),
    Look(RuleId, SyncSender<Option<RuleCounters>>),
    Totals(SyncSender<Totals>),
    #[cfg(test)]
    Panic,
    Stop,
}

/// A port as the thread has it.
struct Port {
    number: u16,
    mac: [u8; 6],
    frames: OwnedFd,
}

/// A rule as the thread gets it: ports by number.
struct Installation {
    links: Vec<(u16, u16)>,
    port: Option<u16>,
    effect: Effect,
    draw: u64,
}

/// A rule in force, for the handle's own bookkeeping.
#[derive(Clone, Copy, Debug)]
pub struct Installed {
    /// Its number.
    pub id: RuleId,
    /// When it was asked for.
    pub requested_ns: u64,
    /// From here on every frame is subject to it.
    pub since_ns: u64,
}

/// What is left of a rule that was taken away.
#[derive(Clone, Debug)]
pub struct Removed {
    /// When that was asked for.
    pub requested_ns: u64,
    /// From here on no frame is subject to it.
    pub gone_ns: u64,
    /// What it did.
    pub counters: RuleCounters,
}

/// A running switch. Dropping it ends it, and all traffic between the hosts.
pub struct Switch {
    now: Now,
    commands: Sender<Command>,
    wake: Arc<EventFd>,
    state: Mutex<State>,
    /// Set by the thread when it ends before it was asked to.
    death: Arc<Mutex<Option<String>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    ports: Vec<Named>,
    last_id: RuleId,
    /// Ports whose offloads a rule needs off.
    held_off: HashMap<RuleId, Vec<u16>>,
}

/// What the handle knows of a port.
struct Named {
    name: String,
    offloads: Option<Box<dyn Offloads>>,
    /// Rules that need its offloads off.
    off_for: u32,
}

impl Switch {
    /// Starts a switch without ports.
    ///
    /// # Errors
    /// A descriptor or thread cannot be had.
    pub fn start(now: Now) -> Result<Self, SwitchError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|e| SwitchError::Start(e.into()))?;
        let wake = Arc::new(wake);
        let (commands, received) = mpsc::channel();
        let death = Arc::new(Mutex::new(None));
        let thread = thread::spawn(received, Arc::clone(&wake), now, Arc::clone(&death))
            .map_err(SwitchError::Start)?;
        Ok(Self {
            now,
            commands,
            wake,
            state: Mutex::new(State {
                ports: Vec::new(),
                last_id: 0,
                held_off: HashMap::new(),
            }),
            death,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Adds the port of a host. A host of the same name that was there before is replaced.
    ///
    /// # Errors
    /// The switch does not live.
    pub fn add_port(&self, spec: PortSpec) -> Result<(), SwitchError> {
        let mut state = self.state();
        let named = Named {
            name: spec.name,
            offloads: spec.offloads,
            off_for: 0,
        };
        let known = state.ports.iter().position(|one| one.name == named.name);
        let index = match known {
            Some(index) => {
                state.ports[index] = named;
                index
            }
            None => {
                state.ports.push(named);
                state.ports.len() - 1
            }
        };
        drop(state);
        let port = Port {
            number: u16::try_from(index).expect("addresses end long before"),
            mac: spec.mac,
            frames: spec.frames,
        };
        self.ask(|reply| Command::AddPort(port, reply))
    }

    /// Puts a rule in force, and returns when every later frame is subject to it.
    ///
    /// # Errors
    /// The rule contradicts itself or names a host that has no port, the offloads of a host cannot be
    /// switched off where it needs that, or the switch does not live. Nothing is in force then.
    pub fn install(&self, rule: &Rule) -> Result<Installed, SwitchError> {
        rule.check()?;
        let mut state = self.state();
        let mut links = Vec::with_capacity(rule.links.len());
        for (from, to) in &rule.links {
            links.push((state.number(from)?, state.number(to)?));
        }
        state.last_id += 1;
        let id = state.last_id;
        if rule.effect.needs_single_packets() {
            let mut senders: Vec<u16> = links.iter().map(|(from, _)| *from).collect();
            senders.sort_unstable();
            senders.dedup();
            state.switch_off(id, &senders)?;
        }
        drop(state);
        let installation = Installation {
            links,
            port: rule.port,
            effect: rule.effect.clone(),
            draw: rule.draw,
        };
        let requested_ns = (self.now)();
        match self.ask(|reply| Command::Install(id, installation, reply)) {
            Ok(since_ns) => Ok(Installed {
                id,
                requested_ns,
                since_ns,
            }),
            Err(error) => {
                // Whether or not it got there: it must not stay.
                let _ = self.remove(id);
                Err(error)
            }
        }
    }

    /// Takes a rule away, and returns when no later frame is subject to it. `None` when there is none of
    /// that number.
    ///
    /// # Errors
    /// The switch does not live, or offloads could not be switched on again.
    pub fn remove(&self, id: RuleId) -> Result<Option<Removed>, SwitchError> {
        let requested_ns = (self.now)();
        let removed = self.ask(|reply| Command::Remove(id, reply));
        // Also when the switch has died: the hosts stay as they were before.
        let restored = self.state().switch_on(id);
        let removed = removed?;
        restored?;
        Ok(removed.map(|(gone_ns, counters)| Removed {
            requested_ns,
            gone_ns,
            counters: self.with_names(counters),
        }))
    }

    /// What a rule has done so far; `None` when there is none of that number.
    ///
    /// # Errors
    /// The switch does not live.
    pub fn look(&self, id: RuleId) -> Result<Option<RuleCounters>, SwitchError> {
        let counters = self.ask(|reply| Command::Look(id, reply))?;
        Ok(counters.map(|counters| self.with_names(counters)))
    }

    /// What the switch has done since it was started.
    ///
    /// # Errors
    /// The switch does not live.
    pub fn totals(&self) -> Result<Totals, SwitchError> {
        self.ask(Command::Totals)
    }

    /// Says so if the switch's thread has ended.
    ///
    /// # Errors
    /// Why it has.
    pub fn check(&self) -> Result<(), SwitchError> {
        let death = self.death.lock().unwrap_or_else(PoisonError::into_inner);
        match &*death {
            Some(why) => Err(SwitchError::Died { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// The names of all ports, in the order in which they were added.
    #[must_use]
    pub fn port_names(&self) -> Vec<String> {
        let state = self.state();
        state.ports.iter().map(|port| port.name.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command and waits for its answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, SwitchError> {
        let (reply, answer): (SyncSender<T>, Receiver<T>) = mpsc::sync_channel(1);
        let dead = || {
            // The answer to what it died of is gone a moment before its last words are there.
            for _ in 0..50 {
                if let Err(error) = self.check() {
                    return error;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            SwitchError::Died {
                why: "it was stopped".to_owned(),
            }
        };
        self.commands.send(command(reply)).map_err(|_| dead())?;
        // The counter of an eventfd overflows long after the memory.
        let _ = self.wake.write(1);
        answer.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => SwitchError::Silent,
            RecvTimeoutError::Disconnected => dead(),
        })
    }

    /// Puts names to the links.
    fn with_names(&self, mut counters: RuleCounters) -> RuleCounters {
        let names = self.port_names();
        let name = |number: u16| names.get(usize::from(number)).cloned().unwrap_or_default();
        counters.struck_by_link = counters
            .struck_by_number
            .iter()
            .map(|(&(from, to), &struck)| ((name(from), name(to)), struck))
            .collect();
        counters
    }
}

impl State {
    /// The number of the port of that name.
    fn number(&self, name: &str) -> Result<u16, SwitchError> {
        let index = self.ports.iter().position(|port| port.name == name);
        index
            .map(|index| u16::try_from(index).expect("numbered as u16"))
            .ok_or_else(|| {
                let known: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
                SwitchError::UnknownPort {
                    name: name.to_owned(),
                    known: known.join(", "),
                }
            })
    }

    /// Switches the offloads of these ports off, on behalf of a rule. After an error none is held.
    fn switch_off(&mut self, id: RuleId, ports: &[u16]) -> Result<(), SwitchError> {
        for &number in ports {
            let port = &mut self.ports[usize::from(number)];
            if port.off_for == 0
                && let Some(offloads) = &port.offloads
                && let Err(source) = offloads.set(false)
            {
                let host = port.name.clone();
                let _ = self.switch_on(id);
                return Err(SwitchError::Offloads { host, source });
            }
            port.off_for += 1;
            self.held_off.entry(id).or_default().push(number);
        }
        Ok(())
    }

    /// Switches on again what only this rule held off. Goes on after an error, and returns the first.
    fn switch_on(&mut self, id: RuleId) -> Result<(), SwitchError> {
        let mut result = Ok(());
        for number in self.held_off.remove(&id).unwrap_or_default() {
            let port = &mut self.ports[usize::from(number)];
            port.off_for = port.off_for.saturating_sub(1);
            if port.off_for == 0
                && let Some(offloads) = &port.offloads
                && let Err(source) = offloads.set(true)
                && result.is_ok()
            {
                let host = port.name.clone();
                result = Err(SwitchError::Offloads { host, source });
            }
        }
        result
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        let _ = self.wake.write(1);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut thread = thread;
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
