//! Terms: from the return of an acquire to the moment the client itself stops believing.
//!
//! A term is what a client believes, and so what it acts on. It says nothing about whether the lock
//! service agrees; [`Term::certain_until_ns`] says for how long the service must.

use std::collections::HashMap;

use crate::history::{FaultPhase, Function, History, Ns, Outcome};

/// How a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermEnd {
    /// Its release was invoked (whatever became of it).
    Released,
    /// The client was told, and its discipline heeds that.
    Lost,
    /// Its host was crashed.
    Died,
    /// An operation of unknown outcome retired the client; it does nothing from then on.
    Retired,
    /// The client acquired again without a release: it had given the term up by then.
    Reacquired,
    /// The history ends first.
    Open,
}

/// One term.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The client.
    pub client: u32,
    /// The lock: a number in [`History::locks`].
    pub lock: u32,
    /// Its acquire: a place in [`History::operations`].
    pub acquire: usize,
    /// Its release, if there was one.
    pub release: Option<usize>,
    /// Fencing token.
    pub token: Option<u64>,
    /// Return of the acquire.
    pub start_ns: Ns,
    /// When the belief ended.
    pub end_ns: Ns,
    /// Why it ended.
    pub ended: TermEnd,
    /// The latest successful lease renewal that any completion of this term tells of; the invoke of the
    /// acquire when none does.
    pub renewed_ns: Ns,
}

impl Term {
    /// Until when the service itself must hold the lock for this term, whatever happens to the client:
    /// a renewal sent at S and answered with success was handled no earlier than S, so the lease
    /// lasts to S + TTL at least. It ends with the belief if that is earlier. A TTL of 0 means that
    /// the lock has no lease. May lie before [`start_ns`](Self::start_ns): then nothing is certain.
    #[must_use]
    pub fn certain_until_ns(&self, ttl_ns: Ns) -> Ns {
        if ttl_ns == 0 {
            return self.end_ns;
        }
        self.end_ns.min(self.renewed_ns.saturating_add(ttl_ns))
    }

    /// True when the client had ended it by its own doing or knowledge.
    #[must_use]
    pub fn completed(&self) -> bool {
        matches!(self.ended, TermEnd::Released | TermEnd::Lost)
    }
}

/// The TTL of a history's leases in nanoseconds.
#[must_use]
pub fn ttl_ns(history: &History) -> Ns {
    history.header.ttl_ms.saturating_mul(1_000_000)
}

/// All terms, in the order in which their acquires were handed over. Terms of one client on one lock
/// never overlap.
///
/// An acquire that was dead on arrival makes no term when the discipline heeds losses: the client
/// looked, and did not believe.
#[must_use]
pub fn terms(history: &History) -> Vec<Term> {
    let mut terms = by_own_operations(history);
    end_by_loss(history, &mut terms);
    end_by_crash(history, &mut terms);
    terms
}

fn by_own_operations(history: &History) -> Vec<Term> {
    let heeds_lost = history.header.heeds_lost();
    let mut terms: Vec<Term> = Vec::new();
    let mut open: HashMap<(u32, u32), usize> = HashMap::new();
    let mut retired: HashMap<u32, Ns> = HashMap::new();
    for (place, operation) in history.operations.iter().enumerate() {
        let holder = (operation.client, operation.lock);
        if let Some(&term) = open.get(&holder) {
            let term = &mut terms[term];
            // An acquire's completion tells of the next lease, not of this one.
            if operation.f != Function::Acquire
                && let Some(renewed_ns) = operation.renewed_ns
            {
                term.renewed_ns = term.renewed_ns.max(renewed_ns);
            }
            let ended = match operation.f {
                Function::Release => {
                    term.release = Some(place);
                    Some(TermEnd::Released)
                }
                Function::Acquire => Some(TermEnd::Reacquired),
                _ => None,
            };
            if let Some(ended) = ended {
                term.ended = ended;
                term.end_ns = operation.invoke_ns.max(term.start_ns);
                open.remove(&holder);
            }
        }
        if let Some(gave_up_ns) = operation.gave_up_ns {
            retired.insert(operation.client, gave_up_ns);
        }
        let granted = operation.f == Function::Acquire && operation.outcome == Outcome::Ok;
        if granted && !(operation.dead_on_arrival && heeds_lost) {
            open.insert(holder, terms.len());
            terms.push(Term {
                client: operation.client,
                lock: operation.lock,
                acquire: place,
                release: None,
                token: operation.token,
                start_ns: operation.return_ns,
                end_ns: history.last_ns,
                ended: TermEnd::Open,
                renewed_ns: operation.renewed_ns.unwrap_or(operation.invoke_ns),
            });
        }
    }
    for term in terms.iter_mut().filter(|term| term.ended == TermEnd::Open) {
        if let Some(&gave_up_ns) = retired.get(&term.client) {
            end_at(term, gave_up_ns, TermEnd::Retired);
        }
    }
    terms
}

fn end_by_loss(history: &History, terms: &mut [Term]) {
    if !history.header.heeds_lost() {
        return;
    }
    let mut losses: HashMap<(u32, u32), Vec<Ns>> = HashMap::new();
    for lost in &history.lost {
        if let Some(lock) = history.locks.id(&lost.lock) {
            let of_holder = losses.entry((lost.client, lock)).or_default();
            of_holder.push(lost.at_ns);
        }
    }
    end_at_first(terms, losses, TermEnd::Lost, |term| {
        Some((term.client, term.lock))
    });
}

fn end_by_crash(history: &History, terms: &mut [Term]) {
    let mut crashes: HashMap<&str, Vec<Ns>> = HashMap::new();
    for fault in &history.faults {
        if fault.kind == "crash" && fault.phase == FaultPhase::Injected {
            for host in &fault.hosts {
                crashes.entry(host).or_default().push(fault.at_ns);
            }
        }
    }
    end_at_first(terms, crashes, TermEnd::Died, |term| {
        history.host_of(term.client)
    });
}

/// Ends each term at the first of its holder's `times` that falls into it.
fn end_at_first<K: std::hash::Hash + Eq>(
    terms: &mut [Term],
    mut times: HashMap<K, Vec<Ns>>,
    ended: TermEnd,
    holder: impl Fn(&Term) -> Option<K>,
) {
    for times in times.values_mut() {
        times.sort_unstable();
    }
    for term in terms {
        let Some(times) = holder(term).and_then(|key| times.get(&key)) else {
            continue;
        };
        let next = times.partition_point(|&at_ns| at_ns < term.start_ns);
        if let Some(&at_ns) = times.get(next)
            && at_ns < term.end_ns
        {
            end_at(term, at_ns, ended);
        }
    }
}

fn end_at(term: &mut Term, at_ns: Ns, ended: TermEnd) {
    term.end_ns = at_ns.max(term.start_ns);
    term.ended = ended;
}
