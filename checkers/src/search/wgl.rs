//! The search of Wing and Gong (J. Parallel Distrib. Comput. 17, 1993) with Lowe's cache of visited
//! configurations (Concurrency Comput. 29, 2017), as in Porcupine, made for histories with many unknown
//! outcomes.
//!
//! What is added, none of which changes a verdict:
//! - An operation that never changes the state (a read) is placed as soon as it can be, without an
//!   alternative: an order that places it later is still one when it is moved here.
//! - Of unknown outcomes with the same effect the one invoked first is tried first, and alone: they never
//!   have to be placed, so any order that uses another can use this one.
//! - The cache holds exact configurations, not hashes of them, but only the part of each that can differ:
//!   the operations from the first that is not placed to the last that is. Porcupine clones n bits.
//!
//! The cache is bounded. When it is full the answer is *unknown*; it is never a guess.

use std::collections::HashSet;

use super::spec::Spec;
use crate::history::Outcome;
use crate::model::decision::{Decision, Rule, Violation};
use crate::model::op::Op;

/// How far a search may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for visited configurations, in bytes.
    pub cache_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cache_bytes: 512 << 20,
        }
    }
}

/// A witness lists at most this many operations that were open where the search came furthest.
const MAX_WITNESS_OPS: usize = 12;

const NONE: u32 = u32::MAX;

/// Decides `ops` of one object, sorted by invoke.
pub fn decide<S: Spec>(spec: &S, ops: &[Op], limits: Limits) -> Decision {
    let mut search = Search::new(spec, ops);
    search.run(limits)
}

/// Nodes of the list of invokes and returns in the order of time: operation i is invoked at node i and
/// returns at node n + i. The head is node 2n.
struct Search<'s, S: Spec> {
    spec: &'s S,
    /// Those that must be placed come first, then the unknown ones; each group sorted by invoke.
    ops: Vec<Op>,
    must: usize,
    /// Of an unknown outcome: the unknown one with the same effect that was invoked before it.
    twin: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    placed: Bits,
    /// Which of the unknown ones are.
    used: Bits,
    /// How many of those that must be placed are.
    done: usize,
    state: S::State,
    frames: Vec<Frame<S::State>>,
    /// Where the search came furthest: how many were placed, and which one was in the way.
    deepest: (usize, Option<usize>),
}

struct Frame<State> {
    op: u32,
    state_before: State,
    /// False when no other choice needs to be tried in its stead.
    alternatives: bool,
    /// The end of the words in use before it was placed.
    end_before: usize,
}

/// A set of small numbers that knows which of its words can differ from all ones and all zeros.
struct Bits {
    words: Vec<u64>,
    /// All words before this one are full.
    full: usize,
    /// All words from here on are empty.
    end: usize,
}

impl Bits {
    fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            full: 0,
            end: 0,
        }
    }

    fn has(&self, i: usize) -> bool {
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    fn add(&mut self, i: usize) {
        self.words[i / 64] |= 1 << (i % 64);
        self.end = self.end.max(i / 64 + 1);
        while self.full < self.end && self.words[self.full] == u64::MAX {
            self.full += 1;
        }
    }

    /// Takes back the latest `add`, before which `end` was the end.
    fn remove(&mut self, i: usize, end: usize) {
        self.words[i / 64] &= !(1 << (i % 64));
        self.full = self.full.min(i / 64);
        self.end = end;
    }

    /// Appends what tells this set from any other of its length, runs of empty words as their number.
    fn describe(&self, key: &mut Vec<u64>) {
        key.push((self.full as u64) << 32 | self.end as u64);
        let mut gap = 0_u64;
        for &word in &self.words[self.full..self.end.max(self.full)] {
            if word == 0 {
                gap += 1;
                continue;
            }
            if gap > 0 {
                // An empty word is never written as such, so it marks a gap.
                key.extend([0, gap]);
                gap = 0;
            }
            key.push(word);
        }
    }
}

impl<'s, S: Spec> Search<'s, S> {
    fn new(spec: &'s S, all: &[Op]) -> Self {
        let needed = |op: &&Op| match op.outcome {
            Outcome::Ok => true,
            Outcome::Fail => spec.observes_failure(op),
            Outcome::Info => false,
        };
        let unknown = |op: &&Op| op.outcome == Outcome::Info;
        let mut ops: Vec<Op> = all.iter().filter(needed).copied().collect();
        let must = ops.len();
        ops.extend(all.iter().filter(unknown));
        let n = ops.len();
        let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * n);
        for (i, op) in (0_u32..).zip(&ops) {
            events.push((op.invoke_at, false, i));
            if (i as usize) < must {
                events.push((op.return_at, true, i));
            }
        }
        events.sort_unstable();
        let mut next = vec![NONE; 2 * n + 1];
        let mut previous = vec![NONE; 2 * n + 1];
        let mut last = 2 * n;
        for (_, returns, i) in events {
            let node = if returns { n + i as usize } else { i as usize };
            next[last] = node as u32;
            previous[node] = last as u32;
            last = node;
        }
        let twin = twins(spec, &ops, must);
        Self {
            spec,
            must,
            twin,
            next,
            previous,
            placed: Bits::new(must),
            used: Bits::new(n - must),
            done: 0,
            state: spec.initial(),
            frames: Vec::new(),
            deepest: (0, None),
            ops,
        }
    }

    fn run(&mut self, limits: Limits) -> Decision {
        let mut cache: HashSet<(S::State, Box<[u64]>)> = HashSet::new();
        let mut cached_bytes = 0;
        let mut choice = self.first_choice();
        while self.done < self.must {
            let Some((node, after)) = choice else {
                match self.go_back() {
                    Some(node) => choice = self.choice_from(node),
                    None => return Decision::Invalid(self.violation()),
                }
                continue;
            };
            self.place(node, after);
            let key = (self.state.clone(), self.configuration());
            let bytes = size_of_val(&*key.1) + size_of::<(S::State, Box<[u64]>)>();
            if cache.insert(key) {
                // A hash table has a byte of its own for each place, and up to half of them are free.
                cached_bytes += 2 * bytes;
                if cached_bytes > limits.cache_bytes {
                    return Decision::Unknown(full(cache.len(), limits));
                }
                choice = self.first_choice();
            } else {
                choice = None;
            }
        }
        Decision::Valid
    }

    /// What to place first in a new configuration: a mere observation, if there is one that fits.
    fn first_choice(&self) -> Option<(u32, S::State)> {
        let first = self.next[2 * self.ops.len()];
        let mut node = first;
        while self.is_invoke(node) {
            let i = node as usize;
            if i < self.must
                && self.spec.only_observes(&self.ops[i])
                && let Some(after) = self.spec.step(&self.state, &self.ops[i])
            {
                return Some((node, after));
            }
            node = self.next[i];
        }
        self.choice_from(first)
    }

    /// The next operation that can be placed, from `node` up to the first return.
    fn choice_from(&self, mut node: u32) -> Option<(u32, S::State)> {
        while self.is_invoke(node) {
            if let Some(after) = self.try_place(node) {
                return Some((node, after));
            }
            node = self.next[node as usize];
        }
        None
    }

    fn is_invoke(&self, node: u32) -> bool {
        (node as usize) < self.ops.len()
    }

    /// The state after the operation of `node`, if it may be placed next.
    fn try_place(&self, node: u32) -> Option<S::State> {
        let i = node as usize;
        if i >= self.must {
            let twin = self.twin[i - self.must];
            if twin != NONE && !self.used.has(twin as usize) {
                return None;
            }
        }
        let after = self.spec.step(&self.state, &self.ops[i])?;
        // Placing an unknown outcome to no effect is of no use.
        (i < self.must || after != self.state).then_some(after)
    }

    fn place(&mut self, node: u32, after: S::State) {
        let i = node as usize;
        let alternatives = !self.spec.only_observes(&self.ops[i]);
        let state_before = std::mem::replace(&mut self.state, after);
        let end_before;
        self.unlink(i);
        if i < self.must {
            self.unlink(self.ops.len() + i);
            self.done += 1;
            end_before = self.placed.end;
            self.placed.add(i);
        } else {
            end_before = self.used.end;
            self.used.add(i - self.must);
        }
        self.frames.push(Frame {
            op: node,
            state_before,
            alternatives,
            end_before,
        });
    }

    /// Takes back choices up to one that has an alternative; where to go on from.
    fn go_back(&mut self) -> Option<u32> {
        if self.done > self.deepest.0 || self.deepest.1.is_none() {
            self.deepest = (self.done, self.in_the_way());
        }
        loop {
            let frame = self.frames.pop()?;
            let i = frame.op as usize;
            if i < self.must {
                self.relink(self.ops.len() + i);
                self.done -= 1;
                self.placed.remove(i, frame.end_before);
            } else {
                self.used.remove(i - self.must, frame.end_before);
            }
            self.relink(i);
            self.state = frame.state_before;
            if frame.alternatives {
                return Some(self.next[i]);
            }
        }
    }

    /// The operation that returns first of those not placed.
    fn in_the_way(&self) -> Option<usize> {
        let n = self.ops.len();
        let mut node = self.next[2 * n];
        while self.is_invoke(node) {
            node = self.next[node as usize];
        }
        (node != NONE).then(|| node as usize - n)
    }

    fn unlink(&mut self, node: usize) {
        let (previous, next) = (self.previous[node], self.next[node]);
        self.next[previous as usize] = next;
        if next != NONE {
            self.previous[next as usize] = previous;
        }
    }

    fn relink(&mut self, node: usize) {
        let (previous, next) = (self.previous[node], self.next[node]);
        self.next[previous as usize] = node as u32;
        if next != NONE {
            self.previous[next as usize] = node as u32;
        }
    }

    fn configuration(&self) -> Box<[u64]> {
        let mut key = Vec::with_capacity(4);
        self.placed.describe(&mut key);
        self.used.describe(&mut key);
        key.into_boxed_slice()
    }

    /// What was open around the operation that was in the way where the search came furthest.
    fn violation(&self) -> Violation {
        let Some(stuck) = self.deepest.1 else {
            return Violation::new(Rule::Exhausted, []);
        };
        let (from, until) = (self.ops[stuck].invoke_at, self.ops[stuck].return_at);
        let concurrent = |i: &usize| {
            let op = &self.ops[*i];
            *i != stuck && op.invoke_at <= until && op.return_at >= from
        };
        let mut told: Vec<usize> = (0..self.must).filter(concurrent).collect();
        told.sort_by_key(|&i| (std::cmp::Reverse(self.ops[i].invoke_at), i));
        told.truncate(MAX_WITNESS_OPS - 1);
        told.reverse();
        told.push(stuck);
        let ids: Vec<u32> = told.into_iter().map(|i| self.ops[i].id).collect();
        Violation::new(Rule::Exhausted, ids)
    }
}

fn full(visited: usize, limits: Limits) -> String {
    format!(
        "the search visited {visited} configurations and used up its {} MB of memory before it could decide; allow it more, or split the history",
        limits.cache_bytes >> 20
    )
}

/// For each unknown outcome the latest before it with the same effect.
fn twins<S: Spec>(spec: &S, ops: &[Op], must: usize) -> Vec<u32> {
    let unknown = &ops[must..];
    let mut order: Vec<usize> = (0..unknown.len()).collect();
    order.sort_by_key(|&i| (unknown[i].action, unknown[i].arg, unknown[i].invoke_at, i));
    let mut twin = vec![NONE; unknown.len()];
    for pair in order.windows(2) {
        if spec.same_effect(&unknown[pair[0]], &unknown[pair[1]]) {
            twin[pair[1]] = pair[0] as u32;
        }
    }
    twin
}
