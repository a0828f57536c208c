//! The memory store itself: registers, their true order, and the token policy. Pure; no sockets.

use std::collections::{HashMap, HashSet};

use checkers::history::{Access, Function, Ns};
use serde::{Deserialize, Serialize};

use super::wire::Refusal;
use crate::resource::Snapshot;

/// What the store does with a fencing token that is older than one it accepted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenPolicy {
    /// Accept the write and note the token.
    Record,
    /// Refuse the write; refuse one without a token too.
    Enforce,
}

impl TokenPolicy {
    /// Every name.
    pub const NAMES: &[&str] = &["record", "enforce"];

    /// Name in scenario files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TokenPolicy::Record => "record",
            TokenPolicy::Enforce => "enforce",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        [TokenPolicy::Record, TokenPolicy::Enforce]
            .into_iter()
            .find(|policy| policy.name() == name)
    }
}

/// All registers.
#[derive(Debug)]
pub struct Store {
    policy: TokenPolicy,
    next_seq: u64,
    registers: HashMap<String, Snapshot>,
    /// Highest accepted token by scope: the part of a key before the first `/`, which is the lock's name.
    highest: HashMap<String, u64>,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(policy: TokenPolicy) -> Self {
        Self {
            policy,
            next_seq: 0,
            registers: HashMap::new(),
            highest: HashMap::new(),
        }
    }

    /// Reads a register, or refuses to. An operation's read is also an access in the store's order; the
    /// controller's own (`op` absent) is not, and needs no token.
    ///
    /// A read shows its token like a write: from then on the store knows that an older holder is over. Were
    /// only writes checked, an older holder's write could still be accepted between this read and the write
    /// that is built on it, and would be lost.
    ///
    /// # Errors
    /// The refusal, with its access.
    pub fn read(
        &mut self,
        key: &str,
        op: Option<u64>,
        token: Option<u64>,
        at_ns: Ns,
    ) -> Result<(Snapshot, Option<Access>), (Refusal, Access)> {
        let register = self.registers.get(key).cloned().unwrap_or_default();
        let Some(op) = op else {
            return Ok((register, None));
        };
        let admitted = self.admit(key, token);
        let mut access = self.access(op, key, Function::Read, token, register.version, at_ns);
        access.accepted = admitted.is_ok();
        match admitted {
            Ok(()) => Ok((register, Some(access))),
            Err(refusal) => Err((refusal, access)),
        }
    }

    /// Replaces a register's content, or refuses to. Gives the new version and the access in the store's order.
    ///
    /// # Errors
    /// The refusal, with its access.
    pub fn write(
        &mut self,
        key: &str,
        op: u64,
        elements: Vec<u64>,
        token: Option<u64>,
        at_ns: Ns,
    ) -> Result<(u64, Access), (Refusal, Access)> {
        let version = self
            .registers
            .get(key)
            .map_or(0, |register| register.version);
        let admitted = self.admit(key, token);
        let mut access = self.access(op, key, Function::Write, token, version, at_ns);
        if let Err(refusal) = admitted {
            access.accepted = false;
            return Err((refusal, access));
        }
        let register = self.registers.entry(key.to_owned()).or_default();
        access.removed = removed(&register.elements, &elements);
        register.version += 1;
        register.elements = elements;
        access.version = register.version;
        Ok((register.version, access))
    }

    /// Lets a token in or refuses it; one that is let in is the lowest from then on.
    fn admit(&mut self, key: &str, token: Option<u64>) -> Result<(), Refusal> {
        let scope = key.split('/').next().unwrap_or(key);
        let highest = self.highest.get(scope).copied();
        if self.policy == TokenPolicy::Enforce {
            match token {
                None => return Err(Refusal::NoToken),
                Some(token) if highest.is_some_and(|highest| token < highest) => {
                    return Err(Refusal::StaleToken);
                }
                Some(_) => {}
            }
        }
        if let Some(token) = token.filter(|token| highest.is_none_or(|highest| *token > highest)) {
            self.highest.insert(scope.to_owned(), token);
        }
        Ok(())
    }

    /// Every register, by name.
    #[must_use]
    pub fn registers(&self) -> Vec<(String, Snapshot)> {
        let mut all: Vec<_> = self
            .registers
            .iter()
            .map(|(key, register)| (key.clone(), register.clone()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// An accepted access that removes nothing, at the next place in the store's order.
    fn access(
        &mut self,
        op: u64,
        key: &str,
        f: Function,
        token: Option<u64>,
        version: u64,
        at_ns: Ns,
    ) -> Access {
        let seq = self.next_seq;
        self.next_seq += 1;
        Access {
            seq,
            op,
            key: key.to_owned(),
            f,
            token,
            accepted: true,
            version,
            removed: Vec::new(),
            at_ns,
        }
    }
}

/// The elements of `old` that `new` does not have.
fn removed(old: &[u64], new: &[u64]) -> Vec<u64> {
    // Nearly every write appends to what is there.
    if new.starts_with(old) {
        return Vec::new();
    }
    let new: HashSet<u64> = new.iter().copied().collect();
    old.iter()
        .copied()
        .filter(|element| !new.contains(element))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_built_on_an_old_read_names_what_it_removes() {
        let mut store = Store::new(TokenPolicy::Record);
        store.write("l0/0", 1, vec![1], Some(5), 10).unwrap();
        store.write("l0/0", 2, vec![1, 2], Some(6), 20).unwrap();
        let (version, access) = store.write("l0/0", 3, vec![1, 3], Some(5), 30).unwrap();
        assert_eq!((version, access.removed), (3, vec![2]));
    }

    #[test]
    fn a_read_shows_its_token_so_that_an_older_write_cannot_slip_in_behind_it() {
        let mut store = Store::new(TokenPolicy::Enforce);
        store.read("l0/0", Some(1), Some(5), 10).unwrap();
        store.read("l0/0", Some(2), Some(6), 20).unwrap();
        let stale = store.write("l0/0", 3, vec![1], Some(5), 30).unwrap_err();
        assert_eq!(stale.0, Refusal::StaleToken);
        let late = store.read("l0/0", Some(4), Some(5), 40).unwrap_err();
        assert_eq!((late.0, late.1.accepted), (Refusal::StaleToken, false));
        assert!(store.read("l0/0", None, None, 50).unwrap().1.is_none());
    }

    #[test]
    fn an_enforcing_store_refuses_older_and_missing_tokens_over_all_registers_of_a_lock() {
        let mut store = Store::new(TokenPolicy::Enforce);
        store.write("l0/0", 1, vec![1], Some(6), 10).unwrap();
        assert_eq!(
            store.write("l0/1", 2, vec![2], Some(5), 20).unwrap_err().0,
            Refusal::StaleToken
        );
        assert_eq!(
            store.write("l0/0", 3, vec![2], None, 30).unwrap_err().0,
            Refusal::NoToken
        );
        store.write("l1/0", 4, vec![4], Some(1), 40).unwrap();
        store.write("l0/0", 5, vec![1, 5], Some(6), 50).unwrap();
        assert_eq!(store.registers()[0].1.elements, [1, 5]);
    }
}
