//! Small random histories for the oracles, drawn from any source of choices: a seed, or a fuzzer's bytes.
#![allow(dead_code)] // Each test binary uses some of them.

use checkers::history::Outcome;
use checkers::model::op::{Action, FOREVER, Op, UNKNOWN, pair};

/// A source of choices below a bound.
pub(crate) trait Choices {
    /// A number in `0..bound`.
    fn below(&mut self, bound: u64) -> u64;
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): enough for tests, and the same everywhere.
pub(crate) struct Seeded(pub(crate) u64);

impl Choices for Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A fuzzer's bytes; when they are used up, the same numbers each time (not zeros: somebody must move on).
pub(crate) struct Bytes<'b>(pub(crate) &'b [u8], pub(crate) Seeded);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let Some((&first, rest)) = self.0.split_first() else {
            return self.1.below(bound);
        };
        self.0 = rest;
        u64::from(first) % bound
    }
}

/// What the operations are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Acquires and releases of a lock with room for some holders.
    Lock {
        /// How often a well-behaved process acquires before it releases.
        depth: u64,
        /// How many hold at one time.
        room: usize,
    },
    /// Reads, writes and compare-and-sets whose written values are all different.
    UniqueRegister,
    /// The same with few values.
    Register,
}

/// Random operations, sorted by invoke. Their results come from a real object that is used at a random
/// instant of each operation and now and then lies, so that good and bad histories both occur.
pub(crate) fn history(kind: Kind, max_ops: u64, choices: &mut impl Choices) -> Vec<Op> {
    let mut world = World::new(kind, choices);
    let wanted = 2 + choices.below(max_ops - 1);
    loop {
        let process = choices.below(world.processes.len() as u64) as usize;
        if !world.act(process, wanted, choices) {
            break;
        }
    }
    world.ops
}

struct Process {
    id: u32,
    open: Option<usize>,
    applied: bool,
    depth: u64,
}

struct World {
    kind: Kind,
    ops: Vec<Op>,
    processes: Vec<Process>,
    /// Chances out of 12.
    unknown: u64,
    failing: u64,
    lying: u64,
    well_behaved: bool,
    ties: bool,
    now: u64,
    next_process: u32,
    next_value: u32,
    /// Owners and their depths.
    holders: Vec<(u32, u64)>,
    token: u64,
    value: u32,
}

impl World {
    fn new(kind: Kind, choices: &mut impl Choices) -> Self {
        let count = 2 + choices.below(4) as u32;
        let process = |id| Process {
            id,
            open: None,
            applied: false,
            depth: 0,
        };
        Self {
            kind,
            ops: Vec::new(),
            processes: (0..count).map(process).collect(),
            unknown: choices.below(4),
            failing: choices.below(3),
            lying: [0, 1, 4, 9][choices.below(4) as usize],
            well_behaved: choices.below(4) > 0,
            ties: choices.below(3) == 0,
            now: 0,
            next_process: count,
            next_value: 1,
            holders: Vec::new(),
            token: 0,
            value: 0,
        }
    }

    /// One step of one process; false when everything is done.
    fn act(&mut self, process: usize, wanted: u64, choices: &mut impl Choices) -> bool {
        match self.processes[process].open {
            None if self.ops.len() as u64 >= wanted => {
                return self.processes.iter().any(|process| process.open.is_some())
                    && self.finish_any(choices);
            }
            None => {
                self.tick(choices);
                self.invoke(process, choices);
            }
            Some(op) => {
                if !self.processes[process].applied && choices.below(2) == 0 {
                    self.apply(process, op, choices);
                } else {
                    // Within a process time moves on, so that its operations never touch.
                    self.now += 1;
                    self.complete(process, op, choices);
                }
            }
        }
        true
    }

    fn finish_any(&mut self, choices: &mut impl Choices) -> bool {
        if let Some(process) = self.processes.iter().position(|p| p.open.is_some()) {
            let op = self.processes[process].open.expect("just looked");
            self.now += 1;
            self.complete(process, op, choices);
        }
        true
    }

    fn tick(&mut self, choices: &mut impl Choices) {
        let own = !self.ties || choices.below(2) == 0;
        self.now += u64::from(own);
    }

    fn invoke(&mut self, process: usize, choices: &mut impl Choices) {
        // A process begins its next operation after the last one returned.
        let id = self.processes[process].id;
        let last = self.ops.iter().rev().find(|op| op.process == id);
        if last.is_some_and(|op| op.return_at >= self.now) {
            self.now += 1;
        }
        let (action, arg) = self.draw(process, choices);
        self.processes[process].open = Some(self.ops.len());
        self.processes[process].applied = false;
        self.ops.push(Op {
            invoke_at: self.now,
            return_at: FOREVER,
            arg,
            process: id,
            key: 0,
            id: self.ops.len() as u32,
            action,
            outcome: Outcome::Info,
        });
    }

    fn draw(&mut self, process: usize, choices: &mut impl Choices) -> (Action, u64) {
        match self.kind {
            Kind::Lock { depth, .. } => {
                let held = self.processes[process].depth;
                let release = match (self.well_behaved, held) {
                    (true, 0) => false,
                    (true, held) if held >= depth => true,
                    _ => choices.below(2) == 0,
                };
                if release {
                    (Action::Release, 0)
                } else {
                    (Action::Acquire, UNKNOWN)
                }
            }
            Kind::UniqueRegister | Kind::Register => {
                let new = if self.kind == Kind::Register {
                    choices.below(3) as u32
                } else {
                    self.next_value += 1;
                    self.next_value - 1
                };
                match choices.below(3) {
                    0 => (Action::Read, UNKNOWN),
                    1 => (Action::Write, u64::from(new)),
                    _ => {
                        let expected = if choices.below(4) == 0 {
                            choices.below(u64::from(self.next_value.max(3))) as u32
                        } else {
                            self.value
                        };
                        (Action::Cas, pair(expected, new))
                    }
                }
            }
        }
    }

    /// Lets the operation take effect now, if the object allows it (or lies).
    fn apply(&mut self, process: usize, op: usize, choices: &mut impl Choices) {
        let lies = choices.below(12) < self.lying;
        let owner = self.processes[process].id;
        let Op { action, arg, .. } = self.ops[op];
        match action {
            Action::Acquire => {
                let Kind::Lock { room, .. } = self.kind else {
                    return;
                };
                let held = self.holders.iter_mut().find(|(holder, _)| *holder == owner);
                if let Some((_, depth)) = held {
                    *depth += 1;
                } else if self.holders.len() < room || lies {
                    self.holders.push((owner, 1));
                    self.token += 1;
                } else {
                    return;
                }
                let token = if lies { choices.below(4) } else { self.token };
                self.ops[op].arg = if choices.below(4) == 0 {
                    UNKNOWN
                } else {
                    token
                };
            }
            Action::Release => {
                let held = self
                    .holders
                    .iter()
                    .position(|(holder, _)| *holder == owner || lies);
                if let Some(place) = held {
                    self.holders[place].1 -= 1;
                    if self.holders[place].1 == 0 {
                        self.holders.remove(place);
                    }
                } else if !lies {
                    return;
                }
            }
            Action::Read => {
                let stale = choices.below(u64::from(self.next_value.max(3)));
                self.ops[op].arg = if lies { stale } else { u64::from(self.value) };
            }
            Action::Write => self.value = arg as u32,
            Action::Cas if (arg >> 32) as u32 == self.value || lies => self.value = arg as u32,
            _ => return,
        }
        self.processes[process].applied = true;
    }

    fn complete(&mut self, process: usize, op: usize, choices: &mut impl Choices) {
        let chance = choices.below(12);
        let applied = self.processes[process].applied;
        self.processes[process].open = None;
        let outcome = if chance < self.unknown {
            Outcome::Info
        } else if (chance < self.unknown + self.failing && choices.below(3) == 0) || !applied {
            Outcome::Fail
        } else {
            Outcome::Ok
        };
        let action = self.ops[op].action;
        self.ops[op].outcome = outcome;
        match outcome {
            Outcome::Info => {
                if matches!(action, Action::Acquire | Action::Read) {
                    self.ops[op].arg = UNKNOWN;
                }
                self.processes[process].id = self.next_process;
                self.processes[process].depth = 0;
                self.next_process += 1;
                return;
            }
            Outcome::Ok => {
                let depth = &mut self.processes[process].depth;
                match action {
                    Action::Acquire => *depth += 1,
                    Action::Release => *depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            Outcome::Fail => {}
        }
        self.ops[op].return_at = self.now;
    }
}
