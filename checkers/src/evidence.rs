//! What a history offers to explain a violation: terms by holder, faults by host, ends of leases.
//!
//! It only looks things up. What they mean is decided in [`crate::cause`] and the checks.

use std::collections::{HashMap, HashSet};

use crate::check::Class;
use crate::history::{Access, FaultPhase, Function, History, LeaseEvent, LeasePhase, Lost, Ns};
use crate::term::{Term, TermEnd, terms, ttl_ns};

/// How the receipt of a fault says that syncs were answered and not done. The one that writes such receipts
/// takes the words from here.
pub const LYING_SYNCS: &str = "succeed without being done";

/// A fault from its injection to its healing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSpan {
    /// Its number in the trial.
    pub id: u32,
    /// What it was.
    pub kind: String,
    /// The selector in the scenario.
    pub target: String,
    /// Whom it reached.
    pub hosts: Vec<String>,
    /// In force from here.
    pub from_ns: Ns,
    /// To here; [`Ns::MAX`] when no healing was recorded.
    pub to_ns: Ns,
    /// True when its receipt proves it.
    pub proven: bool,
    /// The receipt, in words.
    pub receipt: String,
}

impl FaultSpan {
    /// True when it was in force at some instant of `[from_ns, to_ns]`.
    #[must_use]
    pub fn touches(&self, from_ns: Ns, to_ns: Ns) -> bool {
        self.from_ns <= to_ns && from_ns <= self.to_ns
    }

    fn shares_a_host(&self, other: &Self) -> bool {
        self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

/// An index over one history.
pub struct Evidence<'h> {
    /// The history.
    pub history: &'h History,
    /// Its terms.
    pub terms: Vec<Term>,
    /// Its faults, in the order of injection.
    pub faults: Vec<FaultSpan>,
    /// TTL of its leases.
    pub ttl_ns: Ns,
    by_holder: HashMap<(u32, u32), Vec<usize>>,
    lease_ends: HashMap<(u32, u64), &'h LeaseEvent>,
    accesses: HashMap<u64, usize>,
}

impl<'h> Evidence<'h> {
    /// Gathers it, in one pass over each kind of event.
    #[must_use]
    pub fn gather(history: &'h History) -> Self {
        let terms = terms(history);
        let mut by_holder: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, term) in terms.iter().enumerate() {
            let of_holder = by_holder.entry((term.client, term.lock)).or_default();
            of_holder.push(place);
        }
        let mut lease_ends = HashMap::new();
        for lease in &history.leases {
            if lease.phase == LeasePhase::Ended
                && let Some(lock) = history.locks.id(&lease.lock)
            {
                lease_ends.entry((lock, lease.token)).or_insert(lease);
            }
        }
        // A token that was given twice does not say whose lease ended; the check `fencing` reports it.
        let mut given = HashSet::new();
        for term in &terms {
            if let Some(token) = term.token
                && !given.insert((term.lock, token))
            {
                lease_ends.remove(&(term.lock, token));
            }
        }
        let accepted = |access: &Access| access.accepted && access.f == Function::Write;
        let accesses = history.accesses.iter().enumerate();
        Self {
            history,
            faults: fault_spans(history),
            ttl_ns: ttl_ns(history),
            by_holder,
            lease_ends,
            accesses: accesses
                .filter(|(_, access)| accepted(access))
                .map(|(place, access)| (access.op, place))
                .collect(),
            terms,
        }
    }

    /// The term in which an operation was done: the holder's latest that was acquired before it, even
    /// if it had ended by then.
    #[must_use]
    pub fn term_of(&self, operation: usize) -> Option<&Term> {
        let op = &self.history.operations[operation];
        let of_holder = self.by_holder.get(&(op.client, op.lock))?;
        let after = of_holder.partition_point(|&term| self.terms[term].acquire < operation);
        Some(&self.terms[of_holder[after.checked_sub(1)?]])
    }

    /// When the observer heard that a term's lease had ended.
    #[must_use]
    pub fn lease_end(&self, term: &Term) -> Option<&'h LeaseEvent> {
        self.lease_ends.get(&(term.lock, term.token?)).copied()
    }

    /// The accepted write access behind an operation.
    #[must_use]
    pub fn access_of(&self, operation: usize) -> Option<&'h Access> {
        let op = self.history.operations[operation].op;
        let place = *self.accesses.get(&op)?;
        Some(&self.history.accesses[place])
    }

    /// What a term's client was told of its loss, at or after the term's start and no later than `until_ns`.
    #[must_use]
    pub fn told_lost(&self, term: &Term, until_ns: Ns) -> Option<&'h Lost> {
        let lock = self.history.locks.name(term.lock);
        let told = self.history.lost.iter().filter(|lost| {
            lost.client == term.client
                && lost.lock == lock
                && (term.start_ns..=until_ns).contains(&lost.at_ns)
        });
        told.min_by_key(|lost| lost.at_ns)
    }

    /// Faults that were in force on a client's host at some instant of `[from_ns, to_ns]`.
    pub fn faults_on_client(
        &self,
        client: u32,
        from_ns: Ns,
        to_ns: Ns,
    ) -> impl Iterator<Item = &FaultSpan> {
        let host = self.history.host_of(client);
        self.faults.iter().filter(move |fault| {
            fault.touches(from_ns, to_ns)
                && host.is_some_and(|host| fault.hosts.iter().any(|reached| reached == host))
        })
    }

    /// A loss of power within `[from_ns, to_ns]` at which a store forgot what it had acknowledged since
    /// `from_ns`, however well it was made: the disk of a host that lost its power had lied meanwhile. With
    /// it the lie.
    #[must_use]
    pub fn forgot(&self, from_ns: Ns, to_ns: Ns) -> Option<(&FaultSpan, &FaultSpan)> {
        let lies = |fault: &&FaultSpan| fault.receipt.contains(LYING_SYNCS);
        let losses = self.faults.iter().filter(|fault| {
            fault.kind == "power-loss" && (from_ns..=to_ns).contains(&fault.from_ns)
        });
        losses
            .filter_map(|loss| {
                let lied = |lie: &&FaultSpan| {
                    lie.touches(from_ns, loss.from_ns) && lie.shares_a_host(loss)
                };
                Some((self.faults.iter().filter(lies).find(lied)?, loss))
            })
            .next()
    }

    /// Whose doing it is that the service broke its promise, when nothing more is known of the occasion.
    #[must_use]
    pub fn service_class(&self) -> Class {
        match self.forgot(0, Ns::MAX) {
            Some(_) => Class::FaultsDoing,
            None => Class::ServerFault,
        }
    }

    /// From when on the service can have granted this acquire: its invoke, or the moment at which the
    /// holder before it began to release the lock, since no service grants what somebody else holds.
    #[must_use]
    pub fn granted_after_ns(&self, acquire: usize) -> Ns {
        let operation = &self.history.operations[acquire];
        let before = |term: &&Term| {
            term.lock == operation.lock
                && term.client != operation.client
                && term.ended == TermEnd::Released
                && term.end_ns <= operation.return_ns
        };
        let released = self.terms.iter().filter(before).map(|term| term.end_ns);
        released.max().unwrap_or(0).max(operation.invoke_ns)
    }

    /// True when the service handed out a lock that was already gone: the client found it gone, and
    /// nothing held that client up since the service can have granted it.
    #[must_use]
    pub fn granted_dead(&self, acquire: usize) -> bool {
        let operation = &self.history.operations[acquire];
        if !operation.dead_on_arrival {
            return false;
        }
        let from_ns = self.granted_after_ns(acquire);
        let mut faults = self.faults_on_client(operation.client, from_ns, operation.return_ns);
        faults.next().is_none()
    }

    /// False when a clock fault was in force on a node: a lease may then end at any time, by truth time, and
    /// the service kept its promise all the same. Nodes are the hosts on which no client lives.
    #[must_use]
    pub fn ttl_binds(&self) -> bool {
        let clients = &self.history.clients;
        let is_node = |host: &String| clients.values().all(|client| client.host != *host);
        let clock = |kind: &str| kind.contains("clock") || kind.contains("skew");
        !self
            .faults
            .iter()
            .any(|fault| clock(&fault.kind) && fault.hosts.iter().any(is_node))
    }

    /// True when the service must have held the lock for both terms at one instant: their certain
    /// holds intersect by more than the clock error (facts: E1; sound, not complete).
    #[must_use]
    pub fn double_grant(&self, a: &Term, b: &Term) -> bool {
        let from_ns = a.start_ns.max(b.start_ns);
        let until_ns = a
            .certain_until_ns(self.ttl_ns)
            .min(b.certain_until_ns(self.ttl_ns));
        let error_ns = self.history.header.clock_error_ns.saturating_mul(2);
        self.ttl_binds()
            && a.lock == b.lock
            && a.client != b.client
            && from_ns.saturating_add(error_ns) < until_ns
    }

    /// Of two terms on one lock the one that was granted first: by token when both have one, else by
    /// what is known of their leases.
    #[must_use]
    pub fn stale_first<'t>(&self, a: &'t Term, b: &'t Term) -> (&'t Term, &'t Term) {
        let a_first = match (a.token, b.token) {
            (Some(a_token), Some(b_token)) if a_token != b_token => a_token < b_token,
            _ => (a.renewed_ns, a.start_ns, a.acquire) <= (b.renewed_ns, b.start_ns, b.acquire),
        };
        if a_first { (a, b) } else { (b, a) }
    }
}

/// Fault events paired by their numbers.
#[must_use]
pub fn fault_spans(history: &History) -> Vec<FaultSpan> {
    let mut spans: Vec<FaultSpan> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    for event in &history.faults {
        match event.phase {
            FaultPhase::Injected => {
                places.insert(event.id, spans.len());
                spans.push(FaultSpan {
                    id: event.id,
                    kind: event.kind.clone(),
                    target: event.target.clone(),
                    hosts: event.hosts.clone(),
                    from_ns: event.at_ns,
                    to_ns: Ns::MAX,
                    proven: false,
                    receipt: String::new(),
                });
            }
            FaultPhase::Healed => {
                if let Some(&place) = places.get(&event.id) {
                    let span = &mut spans[place];
                    span.to_ns = event.at_ns;
                    span.proven = event.proven;
                    span.receipt.clone_from(&event.receipt);
                }
            }
            FaultPhase::Skipped | FaultPhase::Failed => {}
        }
    }
    spans.sort_by_key(|span| (span.from_ns, span.id));
    spans
}
