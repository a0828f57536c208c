//! A compare-and-set register in which every value is written at most once, and the initial one never.
//!
//! # Why it is exact
//! Each value has one producer, so what must be next to what is known. Operations of unknown outcome
//! whose value nothing (that took effect) observed are dropped: they can be placed last, or never took
//! effect. A successful compare-and-set u → v comes right after the last read of u; two of them from
//! one u cannot both be: an update was lost. So values form chains that begin with a write (or the
//! initial value), and a chain's operations stand in one block of any order.
//!
//! Within a block the order is fixed up to reads of one value, and is possible exactly if no operation
//! returned before one that must stand ahead of it was invoked. Between blocks: let f be the
//! earliest return in a block and s the latest invoke. The block is *forward* if f < s: it must cover
//! [f, s]. Otherwise it is *backward*, and can be placed at any one instant of [s, f]. *The history is
//! linearizable exactly if every block is possible, the intervals of forward blocks are disjoint, and no
//! backward block's interval lies inside a forward one's.* (Gibbons and Korach, SIAM J. Comput. 26, 1997,
//! theorem 4.2, whose clusters are extended here from a write and its reads to chains.)
//!
//! Cost: O(n) and one sort of the blocks.

use super::decision::{Rule, Violation};
use super::op::{Action, FOREVER, Op, UNKNOWN, unpair};
use crate::history::Outcome;
use crate::slots::Slots;

const NONE: u32 = u32::MAX;

/// What is known of a value.
#[derive(Clone)]
struct Value {
    /// Place of the write or compare-and-set that made it.
    producer: u32,
    /// Place of the compare-and-set that replaced it.
    consumer: u32,
    /// Its read that was invoked last.
    last_invoked: u32,
    /// Its read that returned first.
    first_returned: u32,
}

impl Default for Value {
    fn default() -> Self {
        Self {
            producer: NONE,
            consumer: NONE,
            last_invoked: NONE,
            first_returned: NONE,
        }
    }
}

/// A block: its earliest return and latest invoke, with the places of the operations.
#[derive(Clone, Copy)]
struct Block {
    first_return: u64,
    last_invoke: u64,
    returned: u32,
    invoked: u32,
}

struct Register<'o> {
    ops: &'o [Op],
    initial: u32,
    values: Slots<Value>,
    /// Which operations took effect.
    needed: Vec<bool>,
}

/// Decides one register, or gives `None` when a value is written twice.
pub(super) fn decide(ops: &[Op], initial: u32) -> Option<Result<(), Violation>> {
    let mut register = Register {
        ops,
        initial,
        values: Slots::new(ops.len()),
        needed: vec![false; ops.len()],
    };
    register.note_producers()?;
    Some(match register.decide() {
        Err(violation) => Err(register.with_proof(violation)),
        valid => valid,
    })
}

impl Register<'_> {
    /// `None` when values are not unique.
    fn note_producers(&mut self) -> Option<()> {
        for (place, op) in places(self.ops) {
            if let Some(value) = produces(op).filter(|_| op.outcome != Outcome::Fail) {
                let entry = self.values.at(value);
                if value == self.initial || entry.producer != NONE {
                    return None;
                }
                entry.producer = place;
            }
        }
        Some(())
    }

    fn decide(&mut self) -> Result<(), Violation> {
        self.note_needed()?;
        self.note_reads();
        let needed = std::mem::take(&mut self.needed);
        let result = self.decide_blocks(&needed);
        self.needed = needed;
        result
    }

    fn decide_blocks(&mut self, needed: &[bool]) -> Result<(), Violation> {
        let heads = places(self.ops)
            .filter(|&(place, op)| op.action == Action::Write && needed[place as usize]);
        let mut in_blocks = 0;
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let initial = std::iter::once(NONE);
        for head in initial.chain(heads.map(|(place, _)| place)) {
            let (block, length) = self.block(head)?;
            in_blocks += length;
            if block.first_return < block.last_invoke {
                forward.push(block);
            } else {
                backward.push(block);
            }
        }
        let producers = places(self.ops)
            .filter(|&(place, op)| needed[place as usize] && produces(op).is_some());
        // Compare-and-sets that no block reaches depend on one another.
        if producers.count() != in_blocks {
            return Err(self.circle(needed));
        }
        fit(self.ops, forward, &backward)
    }

    /// The successful ones took effect, and the unknown ones that those depend on.
    fn note_needed(&mut self) -> Result<(), Violation> {
        let mut open: Vec<u32> = Vec::new();
        for (place, op) in places(self.ops).filter(|(_, op)| op.is_ok()) {
            self.needed[place as usize] = true;
            if observes(op).is_some() {
                open.push(place);
            }
        }
        while let Some(place) = open.pop() {
            let op = &self.ops[place as usize];
            let Some(value) = observes(op) else {
                continue;
            };
            let entry = self.values.at(value);
            if op.action == Action::Cas {
                if entry.consumer != NONE {
                    let other = self.ops[entry.consumer as usize].id;
                    let ids = [other.min(op.id), other.max(op.id)];
                    return Err(Violation::new(Rule::LostUpdate, ids));
                }
                entry.consumer = place;
            }
            if value == self.initial {
                continue;
            }
            let producer = entry.producer;
            if producer == NONE {
                return Err(Violation::new(Rule::FromNowhere, [op.id]));
            }
            if !std::mem::replace(&mut self.needed[producer as usize], true) {
                open.push(producer);
            }
        }
        Ok(())
    }

    fn note_reads(&mut self) {
        let ops = self.ops;
        for (place, op) in places(ops) {
            let Some(value) = observes(op).filter(|_| op.is_ok() && op.action == Action::Read)
            else {
                continue;
            };
            let entry = self.values.at(value);
            let (last, first) = (entry.last_invoked, entry.first_returned);
            if last == NONE || ops[last as usize].invoke_at < op.invoke_at {
                entry.last_invoked = place;
            }
            if first == NONE || ops[first as usize].return_at > op.return_at {
                entry.first_returned = place;
            }
        }
    }

    /// The block that begins with the write at `head` ([`NONE`]: with the initial value), and how many
    /// producers are in it.
    fn block(&mut self, head: u32) -> Result<(Block, usize), Violation> {
        let ops = self.ops;
        // One tick is added to all times, so that the initial value has one before all others.
        let (mut block, mut value, mut length) = match ops.get(head as usize) {
            Some(op) => (
                Block {
                    first_return: later(op.return_at),
                    last_invoke: later(op.invoke_at),
                    returned: head,
                    invoked: head,
                },
                produces(op).unwrap_or(self.initial),
                1,
            ),
            None => (
                Block {
                    first_return: 0,
                    last_invoke: 0,
                    returned: NONE,
                    invoked: NONE,
                },
                self.initial,
                0,
            ),
        };
        loop {
            let Value {
                consumer,
                last_invoked,
                first_returned,
                ..
            } = *self.values.at(value);
            if first_returned != NONE {
                // All reads of this value stand behind what was there so far, in any order.
                block.returns(ops, first_returned)?;
                block.invoked(ops, last_invoked);
            }
            let Some(op) = ops.get(consumer as usize) else {
                return Ok((block, length));
            };
            block.returns(ops, consumer)?;
            block.invoked(ops, consumer);
            length += 1;
            value = unpair(op.arg).1;
        }
    }

    /// Adds, for each operation of unknown outcome, those that prove that it took effect.
    fn with_proof(&self, mut violation: Violation) -> Violation {
        let mut next = 0;
        while let Some(&id) = violation.ops.get(next) {
            next += 1;
            let Some(op) = self.ops.iter().find(|op| op.id == id && !op.is_ok()) else {
                continue;
            };
            let observers = places(self.ops).filter(|&(place, other)| {
                self.needed[place as usize]
                    && produces(op).is_some()
                    && observes(other) == produces(op)
                    && !violation.ops.contains(&other.id)
            });
            // One that is certain proves it at once; the others need proof themselves.
            if let Some((_, observer)) = observers.max_by_key(|(_, other)| other.is_ok()) {
                violation.ops.push(observer.id);
            }
        }
        violation
    }

    fn circle(&mut self, needed: &[bool]) -> Violation {
        // Any operation that no block reaches leads back into its circle.
        let mut reached = vec![false; self.ops.len()];
        let heads = places(self.ops)
            .filter(|&(place, op)| op.action == Action::Write && needed[place as usize])
            .filter_map(|(_, op)| produces(op));
        let heads: Vec<u32> = std::iter::once(self.initial).chain(heads).collect();
        for mut value in heads {
            while let Some(op) = self.ops.get(self.values.at(value).consumer as usize) {
                reached[self.values.at(value).consumer as usize] = true;
                value = unpair(op.arg).1;
            }
        }
        let lost = places(self.ops).find(|&(place, op)| {
            op.action == Action::Cas && needed[place as usize] && !reached[place as usize]
        });
        let mut ids = Vec::new();
        let mut seen = vec![false; self.ops.len()];
        let mut next = lost.map(|(place, _)| place);
        while let Some(place) =
            next.filter(|&place| !std::mem::replace(&mut seen[place as usize], true))
        {
            ids.push(self.ops[place as usize].id);
            let expected = unpair(self.ops[place as usize].arg).0;
            next = Some(self.values.at(expected).producer).filter(|&producer| producer != NONE);
        }
        Violation::new(Rule::Circle, ids)
    }
}

impl Block {
    /// An operation comes behind all that the block holds.
    fn returns(&mut self, ops: &[Op], place: u32) -> Result<(), Violation> {
        let return_at = later(ops[place as usize].return_at);
        if return_at < self.last_invoke {
            let ids = [ops[place as usize].id, ops[self.invoked as usize].id];
            return Err(Violation::new(Rule::BeforeItsCause, ids));
        }
        if return_at < self.first_return {
            (self.first_return, self.returned) = (return_at, place);
        }
        Ok(())
    }

    fn invoked(&mut self, ops: &[Op], place: u32) {
        let invoke_at = later(ops[place as usize].invoke_at);
        if invoke_at > self.last_invoke {
            (self.last_invoke, self.invoked) = (invoke_at, place);
        }
    }
}

/// Whether the blocks can stand one behind the other.
fn fit(ops: &[Op], mut forward: Vec<Block>, backward: &[Block]) -> Result<(), Violation> {
    forward.sort_by_key(|block| (block.first_return, block.last_invoke));
    for pair in forward.windows(2) {
        if pair[1].first_return < pair[0].last_invoke {
            return Err(two_values(ops, &pair[0], &pair[1]));
        }
    }
    for block in backward {
        let before = forward.partition_point(|other| other.first_return < block.last_invoke);
        if let Some(around) = before.checked_sub(1).map(|place| &forward[place])
            && block.first_return < around.last_invoke
        {
            return Err(two_values(ops, around, block));
        }
    }
    Ok(())
}

fn two_values(ops: &[Op], a: &Block, b: &Block) -> Violation {
    let mut ids = Vec::with_capacity(4);
    for place in [a.returned, a.invoked, b.returned, b.invoked] {
        if let Some(op) = ops.get(place as usize)
            && !ids.contains(&op.id)
        {
            ids.push(op.id);
        }
    }
    Violation::new(Rule::TwoValues, ids)
}

fn places(ops: &[Op]) -> impl Iterator<Item = (u32, &Op)> {
    (0_u32..).zip(ops)
}

fn produces(op: &Op) -> Option<u32> {
    match op.action {
        #[allow(clippy::cast_possible_truncation)] // Values are numbered in 32 bits.
        Action::Write => Some(op.arg as u32),
        Action::Cas => Some(unpair(op.arg).1),
        _ => None,
    }
}

fn observes(op: &Op) -> Option<u32> {
    match op.action {
        #[allow(clippy::cast_possible_truncation)]
        Action::Read => (op.arg != UNKNOWN).then_some(op.arg as u32),
        Action::Cas => Some(unpair(op.arg).0),
        _ => None,
    }
}

fn later(at: u64) -> u64 {
    if at == FOREVER { FOREVER } else { at + 1 }
}
