//! The thread that forwards frames: one epoll loop over the ports, the commands and the frames under way.
//!
//! It owns everything that forwarding needs, so no lock is taken for a frame. It must never block on a
//! port: a port that takes nothing loses frames, as a full buffer does.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;

use super::counters::{RuleCounters, Totals};
use super::flight::{Flight, Waiting};
use super::frame::{self, HEADER_LEN};
use super::link::{Cause, Fate, LinkRule, is_cut};
use super::rule::Effect;
use super::sys;
use super::{Command, Installation, Port, RuleId};
use crate::Now;
use crate::mechanism::scheduling::{self, Scheduling};

/// Marks the descriptor of the commands among the events.
const COMMANDS: u64 = u64::MAX;
/// Frames that are read from a port before the others, and the commands, have their turn.
const BATCH: usize = 16;
/// How long the thread looks for another frame before it sleeps. To wake an idle processor takes several times
/// as long as to forward a frame, and a request's answer is often here within this time.
const AWAKE_NS: u64 = 40_000;
/// How much earlier than a frame is due the thread may wake, so that waking does not make the frame late. How
/// much earlier it does is learnt: an idle processor takes 0.1 to 0.4 ms to wake, a busy one almost nothing, so
/// that the time it then spends looking at the clock is taken from nobody.
const MOST_LEAD_NS: u64 = 400_000;
/// A wait's lateness changes what is expected of the next by one part in this many.
const LEAD_MEMORY: u64 = 8;
/// Room for a frame of the largest size that segmentation offload makes, with its headers.
const LARGEST_FRAME: usize = 70_000;

/// Starts the thread. What it dies of is left in `death`.
pub(super) fn spawn(
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    now: Now,
    death: Arc<Mutex<Option<String>>>,
) -> io::Result<JoinHandle<()>> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, COMMANDS))?;
    let forwarder = Forwarder {
        epoll,
        wake,
        now,
        ports: Vec::new(),
        by_mac: HashMap::new(),
        rules: HashMap::new(),
        by_link: HashMap::new(),
        flight: Flight::default(),
        totals: Totals::default(),
        scheduling: Scheduling::ShortSlices,
        latest_ns: 0,
        lead_ns: 0,
    };
    thread::Builder::new()
        .name("switch".to_owned())
        .spawn(move || {
            let mut forwarder = forwarder;
            let ended = catch_unwind(AssertUnwindSafe(|| forwarder.run(&commands)));
            let why = match ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => format!("its thread panicked: {}", panic_text(&*panic)),
            };
            // Before the commands are dropped, so that whoever waits for an answer learns why.
            *death.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a text")
}

/// A rule in force.
struct ActiveRule {
    effect: Effect,
    /// Only TCP and UDP packets from or to this port.
    port: Option<u16>,
    links: HashMap<(u16, u16), LinkRule>,
    since_ns: u64,
    counters: RuleCounters,
}

impl ActiveRule {
    fn concerns(&self, ports: Option<(u16, u16)>) -> bool {
        self.port
            .is_none_or(|port| ports.is_some_and(|(from, to)| from == port || to == port))
    }
}

struct Forwarder {
    epoll: Epoll,
    wake: Arc<EventFd>,
    now: Now,
    ports: Vec<Port>,
    by_mac: HashMap<[u8; 6], u16>,
    rules: HashMap<RuleId, ActiveRule>,
    /// The rules on each link that has any, in the order in which they were installed.
    by_link: HashMap<(u16, u16), Vec<RuleId>>,
    flight: Flight,
    totals: Totals,
    scheduling: Scheduling,
    /// When the last frame was read.
    latest_ns: u64,
    /// How late the thread is expected to wake.
    lead_ns: u64,
}

impl Forwarder {
    fn run(&mut self, commands: &Receiver<Command>) -> io::Result<()> {
        // Neither is worth dying for: without them frames are a little later, and lateness is measured.
        let _ = nix::sys::prctl::set_timerslack(1);
        let _ = scheduling::schedule(Scheduling::ShortSlices);
        let mut events = [EpollEvent::empty(); 64];
        let mut buffer = vec![0; LARGEST_FRAME];
        loop {
            let count = self.wait(&mut events)?;
            self.release();
            let events = &events[..count];
            if events.iter().any(|event| event.data() == COMMANDS) && !self.obey(commands) {
                return Ok(());
            }
            for event in events.iter().filter(|event| event.data() != COMMANDS) {
                self.receive(event.data() as usize, &mut buffer);
                self.latest_ns = (self.now)();
            }
        }
    }

    /// Waits for events or for a frame that is due, awake for a short while after the last frame.
    fn wait(&mut self, events: &mut [EpollEvent]) -> io::Result<usize> {
        loop {
            let now_ns = (self.now)();
            let left_ns = self
                .flight
                .next_due_ns()
                .map(|due_ns| due_ns.saturating_sub(now_ns));
            // In real time nobody else would run meanwhile.
            let recent = self.scheduling == Scheduling::ShortSlices
                && now_ns.saturating_sub(self.latest_ns) < AWAKE_NS;
            let is_due = left_ns == Some(0);
            let soon = left_ns.is_some_and(|left_ns| left_ns <= self.lead_ns);
            if is_due || !(recent || soon) {
                return self.sleep(events, now_ns, left_ns);
            }
            let count = sys::epoll_wait(&self.epoll, events, Some(Duration::ZERO))?;
            if count > 0 {
                return Ok(count);
            }
            thread::yield_now();
        }
    }

    /// Sleeps until there are events, or until shortly before a frame is due.
    fn sleep(
        &mut self,
        events: &mut [EpollEvent],
        now_ns: u64,
        left_ns: Option<u64>,
    ) -> io::Result<usize> {
        let asked_ns = left_ns.map(|left_ns| left_ns.saturating_sub(self.lead_ns));
        let count = sys::epoll_wait(&self.epoll, events, asked_ns.map(Duration::from_nanos))?;
        if let (0, Some(asked_ns)) = (count, asked_ns.filter(|asked_ns| *asked_ns > 0)) {
            let slept_ns = (self.now)().saturating_sub(now_ns);
            let late_ns = slept_ns.saturating_sub(asked_ns).min(MOST_LEAD_NS);
            self.lead_ns = (self.lead_ns * (LEAD_MEMORY - 1) + late_ns) / LEAD_MEMORY;
        }
        Ok(count)
    }

    /// Carries out what was asked for; false when it is to end.
    fn obey(&mut self, commands: &Receiver<Command>) -> bool {
        let _ = self.wake.read();
        loop {
            // An answer that nobody waits for any more is no loss.
            match commands.try_recv() {
                Ok(Command::AddPort(port, reply)) => {
                    self.add_port(port);
                    let _ = reply.try_send(());
                }
                Ok(Command::Install(id, installation, reply)) => {
                    self.install(id, installation);
                    let _ = reply.try_send((self.now)());
                }
                Ok(Command::Remove(id, reply)) => {
                    let counters = self.remove(id);
                    let _ = reply.try_send(counters.map(|counters| ((self.now)(), counters)));
                }
                Ok(Command::Look(id, reply)) => {
                    let _ = reply.try_send(self.rules.get(&id).map(|rule| rule.counters.clone()));
                }
                Ok(Command::Totals(reply)) => {
                    let waiting = self.flight.len() as u64;
                    let _ = reply.try_send(Totals {
                        waiting,
                        ..self.totals.clone()
                    });
                }
                #[cfg(test)]
                Ok(Command::Panic) => panic!("the test asked for it"),
                Err(TryRecvError::Empty) => return true,
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn add_port(&mut self, port: Port) {
        let number = port.number;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(number));
        // A port that cannot be watched hears nothing from its host, which the host's start will show.
        let _ = self.epoll.add(&port.frames, event);
        self.by_mac.retain(|_, known| *known != number);
        self.by_mac.insert(port.mac, number);
        match self.ports.get_mut(usize::from(number)) {
            Some(known) => *known = port,
            None => self.ports.push(port),
        }
    }

    fn install(&mut self, id: RuleId, installation: Installation) {
        let Installation {
            links,
            port,
            effect,
            draw,
        } = installation;
        let link_rule = |&(from, to): &(u16, u16)| {
            let rule = LinkRule::new(&effect, draw, from, to);
            ((from, to), rule)
        };
        let rule = ActiveRule {
            links: links.iter().map(link_rule).collect(),
            port,
            effect,
            since_ns: (self.now)(),
            counters: RuleCounters::default(),
        };
        for link in links {
            let on_link = self.by_link.entry(link).or_default();
            if !on_link.contains(&id) {
                on_link.push(id);
            }
        }
        let cuts = rule.effect.cut;
        self.rules.insert(id, rule);
        if cuts {
            self.drop_under_way(id);
        }
        self.reschedule();
    }

    /// A cable that is cut takes along what was in it.
    fn drop_under_way(&mut self, id: RuleId) {
        let Some(rule) = self.rules.get_mut(&id) else {
            return;
        };
        let now_ns = (self.now)();
        let (links, port) = (&rule.links, rule.port);
        let hits = |waiting: &Waiting| {
            let concerns = port.is_none_or(|port| {
                frame::ports(&waiting.packet).is_some_and(|(from, to)| from == port || to == port)
            });
            links.contains_key(&waiting.link) && concerns
        };
        let counters = &mut rule.counters;
        let totals = &mut self.totals;
        self.flight.drop_cut(hits, |waiting| {
            counters.cut_under_way += 1;
            counters.strike(waiting.link, now_ns);
            totals.dropped += 1;
        });
    }

    fn remove(&mut self, id: RuleId) -> Option<RuleCounters> {
        let rule = self.rules.remove(&id)?;
        for link in rule.links.keys() {
            if let Some(on_link) = self.by_link.get_mut(link) {
                on_link.retain(|other| *other != id);
                if on_link.is_empty() {
                    self.by_link.remove(link);
                }
            }
        }
        self.reschedule();
        Some(rule.counters)
    }

    /// Real time while frames are delayed, where that is allowed.
    fn reschedule(&mut self) {
        let wanted = if self.rules.values().any(|rule| rule.effect.delays()) {
            Scheduling::RealTime
        } else {
            Scheduling::ShortSlices
        };
        if wanted != self.scheduling && scheduling::schedule(wanted).is_ok() {
            self.scheduling = wanted;
        }
    }

    /// Sends the frames that are due.
    fn release(&mut self) {
        let mut now_ns = (self.now)();
        while let Some(waiting) = self.flight.take_due(now_ns) {
            now_ns = (self.now)();
            if self.is_cut_by_now(&waiting, now_ns) {
                continue;
            }
            let late_ns = now_ns.saturating_sub(waiting.due_ns);
            self.totals.lateness.add(late_ns);
            for id in &waiting.rules {
                if let Some(rule) = self.rules.get_mut(id) {
                    rule.counters.lateness.add(late_ns);
                }
            }
            self.send(waiting.link.1, &waiting.packet);
        }
    }

    /// Whether a flapping link is cut at the moment when a frame would arrive.
    fn is_cut_by_now(&mut self, waiting: &Waiting, now_ns: u64) -> bool {
        let Some(on_link) = self.by_link.get(&waiting.link) else {
            return false;
        };
        for id in on_link {
            let Some(rule) = self.rules.get_mut(id) else {
                continue;
            };
            if is_cut(&rule.effect, rule.since_ns, now_ns)
                && rule.concerns(frame::ports(&waiting.packet))
            {
                rule.counters.cut_under_way += 1;
                rule.counters.strike(waiting.link, now_ns);
                self.totals.dropped += 1;
                return true;
            }
        }
        false
    }

    /// Reads some frames of a port and passes them on.
    fn receive(&mut self, number: usize, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let Some(port) = self.ports.get(number) else {
                return;
            };
            let len = match sys::read(port.frames.as_fd(), buffer) {
                Ok(Some(len)) if len > 0 => len,
                Ok(_) => return,
                // The link was taken down; it may come up again.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => return,
                Err(_) => {
                    // Its host is gone. The descriptor would be ready for ever.
                    let _ = self.epoll.delete(&port.frames);
                    return;
                }
            };
            self.totals.received += 1;
            let Some(mac) = frame::destination(&buffer[..len]) else {
                self.totals.unknown += 1;
                continue;
            };
            let from = port.number;
            if frame::is_group(mac) {
                for to in 0..u16::try_from(self.ports.len()).unwrap_or(u16::MAX) {
                    if to != from {
                        self.forward((from, to), &mut buffer[..len]);
                    }
                }
            } else if let Some(&to) = self.by_mac.get(&mac) {
                self.forward((from, to), &mut buffer[..len]);
            } else {
                self.totals.unknown += 1;
            }
        }
    }

    /// Passes a frame on as the rules on its link say.
    fn forward(&mut self, link: (u16, u16), packet: &mut [u8]) {
        if !self.by_link.contains_key(&link) {
            return self.send(link.1, packet);
        }
        let Some(journey) = self.decide(link, packet) else {
            self.totals.dropped += 1;
            return;
        };
        if let Some((place, bit)) = journey.flip {
            frame::flip(packet, place, bit);
        }
        for _ in 0..journey.copies {
            if journey.later_ns == 0 {
                self.send(link.1, packet);
            } else {
                let due_ns = journey.read_ns.saturating_add(journey.later_ns);
                let rules = journey.waits_for.clone();
                if !self.flight.add(due_ns, link, rules, packet.to_vec()) {
                    self.totals.overfull += 1;
                }
            }
        }
    }

    /// What all rules on a link together do to a frame; `None` when one of them drops it.
    fn decide(&mut self, link: (u16, u16), packet: &[u8]) -> Option<Journey> {
        let now_ns = (self.now)();
        let mut journey = Journey {
            read_ns: now_ns,
            later_ns: 0,
            copies: 1,
            flip: None,
            waits_for: Vec::new(),
        };
        let ports = frame::ports(packet);
        for id in self.by_link.get(&link)? {
            let Some(rule) = self.rules.get_mut(id).filter(|rule| rule.concerns(ports)) else {
                continue;
            };
            let Some(on_link) = rule.links.get_mut(&link) else {
                continue;
            };
            let len = packet.len() - HEADER_LEN;
            let fate = on_link.decide(&rule.effect, rule.since_ns, now_ns, len);
            let counters = &mut rule.counters;
            counters.seen += 1;
            let passage = match fate {
                Fate::Dropped(cause) => {
                    match cause {
                        Cause::Cut => counters.cut += 1,
                        Cause::Lost => counters.lost += 1,
                        Cause::Overflow => counters.overflowed += 1,
                    }
                    counters.strike(link, now_ns);
                    return None;
                }
                Fate::Passes(passage) => passage,
            };
            counters.delayed += u64::from(passage.later_ns > 0);
            counters.duplicated += u64::from(passage.twice);
            counters.reordered += u64::from(passage.reordered);
            counters.corrupted += u64::from(passage.flip.is_some());
            if passage.later_ns > 0 {
                journey.waits_for.push(*id);
                journey.later_ns = journey.later_ns.saturating_add(passage.later_ns);
            }
            journey.copies *= if passage.twice { 2 } else { 1 };
            journey.flip = passage.flip.or(journey.flip);
            if passage.later_ns > 0 || passage.twice || passage.reordered || passage.flip.is_some()
            {
                counters.strike(link, now_ns);
            }
        }
        Some(journey)
    }

    fn send(&mut self, to: u16, packet: &[u8]) {
        let Some(port) = self.ports.get(usize::from(to)) else {
            return;
        };
        loop {
            match nix::unistd::write(&port.frames, packet) {
                Ok(_) => self.totals.sent += 1,
                Err(Errno::EINTR) => continue,
                Err(_) => self.totals.refused += 1,
            }
            return;
        }
    }
}

/// How a frame gets to the other end of its link.
struct Journey {
    read_ns: u64,
    later_ns: u64,
    copies: u32,
    flip: Option<(f64, u8)>,
    /// The rules that make it wait.
    waits_for: Vec<RuleId>,
}
