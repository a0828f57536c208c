//! Locks that know their owner: mutex, reentrant lock, fenced lock.
//!
//! # Why it is exact
//! A *section* of an owner goes from the acquire that takes the lock (invoked at a, returned at a′) to
//! the release that gives it back (invoked at r, returned at r′); its *core* is [a′, r), with r = ∞
//! while there is no release. Operations that failed had no effect. An acquire of unknown outcome is
//! the last thing that its owner ever did, so if it took effect it can be placed after everything
//! else: it is dropped. A release of unknown outcome gets r′ = ∞.
//!
//! *Claim: the history is linearizable exactly if each owner acquires and releases in turn and the
//! cores are pairwise disjoint.* Necessary: in any order, the owner holds the lock throughout the
//! core. Sufficient: place every acquire just before its return and every release just after its
//! invoke; the cores then are the times of holding. At one instant releases go first, and a core of
//! no length is a whole section at that instant.
//!
//! A reentrant lock has the core from the acquire that brings its owner's depth from 0 to 1 to the
//! release that brings it back, and a cap on the depth. A fenced lock adds, since the cores fix the
//! order of the sections: known tokens strictly increase from section to section, and within a section
//! all known tokens are the same (the meaning in Jepsen's Hazelcast suite, where an invalid fence is
//! an unknown token).
//!
//! Cost: O(n) and one sort of the sections, which in a history are nearly sorted already.

use super::decision::{Rule, Violation};
use super::op::{Action, FOREVER, Op, UNKNOWN};
use crate::history::Outcome;
use crate::slots::Slots;

const NOBODY: u32 = u32::MAX;

/// What a lock allows to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLock {
    /// How deep an owner may hold it; 1 for a lock that is not reentrant.
    pub cap: u32,
    /// Whether tokens are judged.
    pub fenced: bool,
}

/// A section; operations are places in the slice.
#[derive(Clone, Copy)]
struct Section {
    /// Return of its acquire.
    from: u64,
    /// Invoke of its release, or [`FOREVER`].
    to: u64,
    /// Its known token.
    token: u64,
    /// The acquire that told the token.
    told_by: u32,
    acquire: u32,
    release: u32,
}

/// Where an owner is.
#[derive(Clone)]
struct Owner {
    depth: u32,
    /// Its latest section.
    section: u32,
}

impl Default for Owner {
    fn default() -> Self {
        Self {
            depth: 0,
            section: NOBODY,
        }
    }
}

/// Decides one lock. `ops` are sorted by invoke.
pub(super) fn decide(ops: &[Op], lock: OwnerLock) -> Result<(), Violation> {
    let mut sections = sections(ops, lock)?;
    // By the core, so that one of no length comes before one that begins at its instant.
    sections.sort_by_key(|section| (section.from, section.to, section.token));
    let mut latest: Option<Section> = None;
    let mut highest: Option<Section> = None;
    for section in sections {
        if let Some(before) = latest
            && before.to > section.from
        {
            return Err(two_holders(ops, before, section));
        }
        if latest.is_none_or(|before| before.to <= section.to) {
            latest = Some(section);
        }
        if lock.fenced && section.token != UNKNOWN {
            if let Some(before) = highest
                && before.token >= section.token
            {
                let places = [before.told_by, before.release, section.told_by];
                let ids = places.map(|place| id(ops, place));
                return Err(Violation::new(Rule::TokenNotAbove, ids));
            }
            highest = Some(section);
        }
    }
    Ok(())
}

fn sections(ops: &[Op], lock: OwnerLock) -> Result<Vec<Section>, Violation> {
    let mut owners: Slots<Owner> = Slots::new(ops.len());
    let mut sections: Vec<Section> = Vec::with_capacity(ops.len() / 2 + 1);
    for (place, op) in ops.iter().enumerate() {
        if op.outcome == Outcome::Fail {
            continue;
        }
        let owner = owners.at(op.process);
        match op.action {
            Action::Acquire if op.outcome == Outcome::Info => {}
            Action::Acquire => acquire(ops, place, lock, owner, &mut sections)?,
            Action::Release if owner.depth > 0 => {
                owner.depth -= 1;
                if owner.depth == 0 {
                    let section = &mut sections[owner.section as usize];
                    section.to = op.invoke_at;
                    section.release = small(place);
                }
            }
            // Unknown and impossible: it did not take effect.
            Action::Release if op.outcome == Outcome::Info => {}
            Action::Release => return Err(Violation::new(Rule::ReleasedUnheld, [op.id])),
            _ => {}
        }
    }
    Ok(sections)
}

fn acquire(
    ops: &[Op],
    place: usize,
    lock: OwnerLock,
    owner: &mut Owner,
    sections: &mut Vec<Section>,
) -> Result<(), Violation> {
    let op = &ops[place];
    if owner.depth >= lock.cap {
        return Err(too_often(ops, place, lock.cap));
    }
    owner.depth += 1;
    if owner.depth == 1 {
        owner.section = small(sections.len());
        sections.push(Section {
            from: op.return_at,
            to: FOREVER,
            token: op.arg,
            told_by: small(place),
            acquire: small(place),
            release: NOBODY,
        });
    } else if lock.fenced && op.arg != UNKNOWN {
        let section = &mut sections[owner.section as usize];
        if section.token == UNKNOWN {
            section.token = op.arg;
            section.told_by = small(place);
        } else if section.token != op.arg {
            let ids = [id(ops, section.told_by), op.id];
            return Err(Violation::new(Rule::TokenChanged, ids));
        }
    }
    Ok(())
}

fn two_holders(ops: &[Op], before: Section, section: Section) -> Violation {
    let mut ids = vec![id(ops, before.acquire)];
    if before.release != NOBODY {
        ids.push(id(ops, before.release));
    }
    ids.push(id(ops, section.acquire));
    Violation::new(Rule::TwoHolders, ids)
}

/// The acquires of one owner that are open at `place`, itself the last.
pub(super) fn too_often(ops: &[Op], place: usize, cap: u32) -> Violation {
    let process = ops[place].process;
    let mut open = vec![ops[place].id];
    let mut given_back = 0_u32;
    for op in ops[..place].iter().rev() {
        if op.process != process || !op.is_ok() {
            continue;
        }
        match op.action {
            Action::Release => given_back += 1,
            Action::Acquire if given_back > 0 => given_back -= 1,
            Action::Acquire => open.push(op.id),
            _ => {}
        }
        if open.len() > cap as usize {
            break;
        }
    }
    open.reverse();
    Violation::new(Rule::AcquiredTooOften, open)
}

fn id(ops: &[Op], place: u32) -> u32 {
    ops[place as usize].id
}

/// A place as it is stored; a slice of 2³² operations would need 160 GB.
#[allow(clippy::cast_possible_truncation)]
fn small(place: usize) -> u32 {
    place as u32
}
