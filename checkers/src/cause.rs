//! Why it happened: the story behind an overlap or a lost write, and who is answerable.
//!
//! A [`Story`] puts what the history knows (grants, renewals, faults, ends of leases, what clients
//! were told) in the order of time. It never guesses: what was not seen is said not to have been seen.
//!
//! # Two terms
//! Of two terms that overlap, one was granted first: the *stale* one. If the service must have held
//! the lock for both at once (certain holds, [`Evidence::double_grant`]), the service is at fault.
//! Otherwise the stale holder's lease may have run out while it still believed: the hazard that every
//! lease has.

use std::collections::BTreeSet;

use crate::check::{Class, Witness, WitnessLine};
use crate::evidence::{Evidence, FaultSpan};
use crate::history::{Function, Ns, Outcome};
use crate::stats::ms;
use crate::term::{Term, TermEnd};

/// A story has room for this many faults on one host.
const MAX_FAULTS_TOLD: usize = 3;

/// Lines with their times, to become a witness.
pub struct Story<'e, 'h> {
    evidence: &'e Evidence<'h>,
    lines: Vec<(Ns, String)>,
    ops: Vec<u64>,
    /// Faults that it has told of.
    told: BTreeSet<u32>,
}

impl<'e, 'h> Story<'e, 'h> {
    /// An empty one.
    #[must_use]
    pub fn new(evidence: &'e Evidence<'h>) -> Self {
        Self {
            evidence,
            lines: Vec::new(),
            ops: Vec::new(),
            told: BTreeSet::new(),
        }
    }

    /// Adds a line.
    pub fn line(&mut self, at_ns: Ns, text: impl Into<String>) {
        self.lines.push((at_ns, text.into()));
    }

    /// Notes an operation (a place in the history) as part of the violation.
    pub fn involve(&mut self, operation: usize) {
        self.ops
            .push(self.evidence.history.operations[operation].op);
    }

    /// Tells of a term's grant.
    pub fn acquired(&mut self, term: &Term) {
        let history = self.evidence.history;
        let operation = &history.operations[term.acquire];
        let token = term
            .token
            .map_or_else(String::new, |token| format!(", token {token}"));
        let text = format!(
            "{} acquired lock `{}` (op {}{token})",
            self.client(term.client),
            history.locks.name(term.lock),
            operation.op,
        );
        self.line(term.start_ns, text);
        self.involve(term.acquire);
    }

    /// Tells what became of a stale term's lease up to `until_ns`: last renewal, faults on its holder,
    /// the end of the lease, what the holder was told.
    pub fn lapse(&mut self, stale: &Term, until_ns: Ns) {
        self.renewal(stale);
        self.faults(stale, until_ns);
        self.lease_end(stale, until_ns);
        self.told(stale, until_ns);
    }

    fn renewal(&mut self, term: &Term) {
        let ttl_ns = self.evidence.ttl_ns;
        if ttl_ns == 0 {
            return;
        }
        let acquire = &self.evidence.history.operations[term.acquire];
        let what = if term.renewed_ns <= acquire.invoke_ns {
            "asked for its lease"
        } else {
            "sent the last renewal of its lease that is known"
        };
        let text = format!(
            "{} {what}: good for {:.3} ms from here at least",
            self.client(term.client),
            ms(ttl_ns)
        );
        self.line(term.renewed_ns, text);
    }

    /// Faults that could have kept a holder from renewing or from noticing: first those on its host,
    /// else those anywhere.
    fn faults(&mut self, term: &Term, until_ns: Ns) {
        let evidence = self.evidence;
        let from_ns = term.renewed_ns.min(term.start_ns);
        let mut told: Vec<&FaultSpan> = evidence
            .faults_on_client(term.client, from_ns, until_ns)
            .collect();
        if told.is_empty() {
            told.extend(
                evidence
                    .faults
                    .iter()
                    .filter(|f| f.touches(from_ns, until_ns)),
            );
        }
        if told.is_empty() {
            let text = "no fault was in force from here to the end of this story";
            self.line(from_ns, text);
        }
        for fault in told.into_iter().take(MAX_FAULTS_TOLD) {
            self.fault(fault);
        }
    }

    /// Tells of one fault, from its beginning to its end. A fault is told once.
    fn fault(&mut self, fault: &FaultSpan) {
        if !self.told.insert(fault.id) {
            return;
        }
        let name = format!(
            "fault {} ({} of {})",
            fault.id,
            fault.kind,
            fault.hosts.join(", ")
        );
        self.line(
            fault.from_ns,
            format!("{name} came into force, aimed at {}", fault.target),
        );
        if fault.to_ns == Ns::MAX {
            self.line(fault.from_ns, format!("{name}: no healing was recorded"));
            return;
        }
        let proof = if fault.proven { "proven" } else { "NOT proven" };
        let receipt = if fault.receipt.is_empty() {
            String::new()
        } else {
            format!(": {}", fault.receipt)
        };
        self.line(fault.to_ns, format!("{name} was lifted, {proof}{receipt}"));
    }

    fn lease_end(&mut self, term: &Term, until_ns: Ns) {
        let ttl_ns = self.evidence.ttl_ns;
        let whose = match term.token {
            Some(token) => format!("the lease of {}, token {token},", self.client(term.client)),
            None => format!("the lease of {}", self.client(term.client)),
        };
        let runs_out_ns = term.renewed_ns.saturating_add(ttl_ns);
        let ended = self.evidence.lease_end(term);
        if let Some(end) = ended.filter(|end| end.at_ns <= until_ns) {
            let early = if ttl_ns > 0 && end.at_ns < runs_out_ns && end.at_ns < term.end_ns {
                format!(
                    ", {:.3} ms before its TTL after the last known renewal",
                    ms(runs_out_ns - end.at_ns)
                )
            } else {
                String::new()
            };
            let text = format!(
                "an observer on {} heard that {whose} had ended{early}",
                end.node
            );
            self.line(end.at_ns, text);
        } else if ttl_ns > 0 && runs_out_ns <= until_ns {
            let text = format!(
                "{whose} runs out here unless it was renewed unseen (TTL after the last known renewal; no observer saw it end by then)"
            );
            self.line(runs_out_ns, text);
        }
    }

    fn told(&mut self, term: &Term, until_ns: Ns) {
        if let Some(lost) = self.evidence.told_lost(term, until_ns) {
            let header = &self.evidence.history.header;
            let and = if header.heeds_lost() {
                "and stopped believing".to_owned()
            } else {
                format!("and went on (discipline `{}`)", header.discipline)
            };
            let text = format!(
                "{} found out that it had lost the lock ({}) {and}",
                self.client(term.client),
                lost.why
            );
            self.line(lost.at_ns, text);
        }
    }

    /// Tells how a term ended.
    pub fn ended(&mut self, term: &Term) {
        let how = match term.ended {
            TermEnd::Released => "began to release the lock",
            TermEnd::Lost => "stopped believing: it was told",
            TermEnd::Died => "died: its host was crashed",
            TermEnd::Retired => "was retired after an operation of unknown outcome",
            TermEnd::Reacquired => "gave up its term and asked for the lock anew",
            TermEnd::Open => "still believed when the history ends",
        };
        let text = format!("{} {how}", self.client(term.client));
        self.line(term.end_ns, text);
    }

    /// `client 3 (c1)`.
    #[must_use]
    pub fn client(&self, client: u32) -> String {
        match self.evidence.history.host_of(client) {
            Some(host) => format!("client {client} ({host})"),
            None => format!("client {client}"),
        }
    }

    /// The finished witness.
    #[must_use]
    pub fn tell(mut self, headline: String, class: Option<Class>) -> Witness {
        // Stable: lines of one instant stay in the order in which they were added.
        self.lines.sort_by_key(|&(at_ns, _)| at_ns);
        self.ops.sort_unstable();
        self.ops.dedup();
        let history = self.evidence.history;
        let lines = self.lines.into_iter().map(|(at_ns, text)| WitnessLine {
            at_ms: history.at_ms(at_ns),
            text,
        });
        Witness {
            headline,
            class,
            lines: lines.collect(),
            ops: self.ops,
        }
    }
}

/// An acknowledged write and the write that overwrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clobber {
    /// The lost write: a place in the history's operations.
    pub lost: usize,
    /// The write that clobbered it, if it is known.
    pub by: Option<usize>,
    /// When the clobbering write took effect; the return of its operation where the resource did not say.
    pub at_ns: Ns,
}

/// Why one write could clobber another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The service must have granted the lock twice.
    DoubleGrant,
    /// The service handed one of the two a lock whose lease was already gone.
    DeadGrant,
    /// One holder's lease had (or may have) run out, and it went on.
    StaleHolder,
    /// One of the two took effect after its client had stopped believing: it was on its way by then.
    LateWrite,
    /// One of the two wrote outside any term of the lock.
    OutsideTerm {
        /// True when it was the one that clobbered.
        clobberer: bool,
    },
    /// The two wrote the same register under different locks.
    DifferentLocks,
    /// The store forgot it: it lost its power, and its disks had lied about their syncs.
    Forgotten,
    /// The history does not tell.
    Unknown,
}

impl Cause {
    /// Who is answerable for it.
    #[must_use]
    pub fn class(self) -> Option<Class> {
        match self {
            Cause::DoubleGrant | Cause::DeadGrant => Some(Class::ServerFault),
            Cause::StaleHolder | Cause::LateWrite => Some(Class::InherentHazard),
            Cause::OutsideTerm { .. } => Some(Class::ClientFault),
            Cause::DifferentLocks => Some(Class::HarnessFault),
            Cause::Forgotten => Some(Class::FaultsDoing),
            Cause::Unknown => None,
        }
    }
}

/// Finds the cause of a clobbered write.
#[must_use]
pub fn find(evidence: &Evidence<'_>, clobber: &Clobber) -> Cause {
    let operations = &evidence.history.operations;
    let acknowledged_ns = operations[clobber.lost].return_ns;
    // A resource that reports its accesses is not the store that forgets.
    let reported = !evidence.history.accesses.is_empty();
    let until_ns = clobber.by.map_or(Ns::MAX, |_| clobber.at_ns);
    let unexplained = match evidence.forgot(acknowledged_ns, until_ns) {
        Some(_) if !reported => Cause::Forgotten,
        _ => Cause::Unknown,
    };
    let Some(by) = clobber.by else {
        return unexplained;
    };
    if operations[clobber.lost].lock != operations[by].lock {
        return Cause::DifferentLocks;
    }
    let Some(ours) = within_term(evidence, clobber.lost) else {
        return Cause::OutsideTerm { clobberer: false };
    };
    let Some(theirs) = within_term(evidence, by) else {
        return Cause::OutsideTerm { clobberer: true };
    };
    if evidence.double_grant(ours, theirs) {
        return Cause::DoubleGrant;
    }
    let overlap = ours.start_ns.max(theirs.start_ns) < ours.end_ns.min(theirs.end_ns);
    if ours.client != theirs.client && overlap {
        let dead = [ours, theirs]
            .iter()
            .any(|term| evidence.granted_dead(term.acquire));
        return if dead {
            Cause::DeadGrant
        } else {
            Cause::StaleHolder
        };
    }
    let late = |write: usize, term: &Term, effect_ns: Ns| {
        operations[write].outcome == Outcome::Info || effect_ns > term.end_ns
    };
    if late(by, theirs, clobber.at_ns)
        || late(clobber.lost, ours, operations[clobber.lost].return_ns)
    {
        return Cause::LateWrite;
    }
    unexplained
}

/// The term of a write, unless the write was begun outside it. What counts is the hand-over: a client
/// that looked, believed, and was then held up before it could send did nothing wrong.
fn within_term<'e>(evidence: &'e Evidence<'_>, write: usize) -> Option<&'e Term> {
    let term = evidence.term_of(write)?;
    let error_ns = evidence.history.header.clock_error_ns;
    let begun_ns = evidence.history.operations[write].handed_over_ns;
    (begun_ns <= term.end_ns.saturating_add(error_ns)).then_some(term)
}

/// Tells how an acknowledged write was lost, from the first grant to the write that clobbered it.
#[must_use]
pub fn explain(evidence: &Evidence<'_>, clobber: &Clobber) -> Witness {
    let cause = find(evidence, clobber);
    let mut story = Story::new(evidence);
    let history = evidence.history;
    let lost = &history.operations[clobber.lost];
    let what = format!(
        "element {} of `{}`, acknowledged to {}",
        lost.element.unwrap_or_default(),
        lost.key.map_or("?", |key| history.keys.name(key)),
        story.client(lost.client)
    );
    tell_write(
        &mut story,
        clobber.lost,
        lost.return_ns,
        "had its write acknowledged",
    );
    let Some(by) = clobber.by else {
        let why = match cause {
            Cause::Forgotten => forgotten(&mut story, lost.return_ns, Ns::MAX),
            _ => "cause unknown: no write that overwrote it is on record".to_owned(),
        };
        return story.tell(format!("{what}, is gone; {why}"), cause.class());
    };
    let clobberer = story.client(history.operations[by].client);
    tell_write(&mut story, by, clobber.at_ns, "overwrote it");
    tell_read(&mut story, by);
    let ours = evidence.term_of(clobber.lost);
    let theirs = evidence.term_of(by);
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours.acquire != theirs.acquire => {
            let (stale, fresh) = evidence.stale_first(ours, theirs);
            for term in [ours, theirs] {
                story.acquired(term);
                if term.end_ns < clobber.at_ns {
                    story.ended(term);
                }
            }
            // A lease that its holder gave back in time explains nothing, nor does one where the store forgot.
            let in_time = stale.ended == TermEnd::Released && stale.end_ns <= fresh.start_ns;
            if !in_time && cause != Cause::Forgotten {
                story.lapse(stale, clobber.at_ns);
            }
        }
        (ours, theirs) => {
            for term in ours.into_iter().chain(theirs) {
                story.acquired(term);
            }
        }
    }
    let why = match cause {
        Cause::DoubleGrant => "the service had granted the lock to both at once".to_owned(),
        Cause::DeadGrant => {
            let dead = ours.into_iter().chain(theirs);
            let dead = dead.filter(|term| evidence.granted_dead(term.acquire));
            let clients: Vec<String> = dead.map(|term| story.client(term.client)).collect();
            format!(
                "the service had handed {} a lock whose lease was gone",
                clients.join(" and ")
            )
        }
        Cause::StaleHolder => {
            let stale = ours.zip(theirs).map(|(ours, theirs)| {
                let (stale, _) = evidence.stale_first(ours, theirs);
                story.client(stale.client)
            });
            let stale = stale.unwrap_or_else(|| "one of the two".to_owned());
            format!("{stale} went on under a lock whose lease had run out")
        }
        Cause::LateWrite => {
            "one of the two writes was still on its way when its client's term was over".to_owned()
        }
        Cause::OutsideTerm { clobberer: true } => "it did not hold the lock".to_owned(),
        Cause::OutsideTerm { clobberer: false } => {
            "the lost write was itself begun without the lock".to_owned()
        }
        Cause::DifferentLocks => "they wrote one register under different locks".to_owned(),
        Cause::Forgotten => forgotten(&mut story, lost.return_ns, clobber.at_ns),
        Cause::Unknown => {
            "cause unknown, as their terms do not overlap and nothing else on record explains it"
                .to_owned()
        }
    };
    story.tell(
        format!("{what}, was overwritten by {clobberer}: {why}"),
        cause.class(),
    )
}

/// Tells of the lie and the loss of power by which a store forgot a write, and sums them up.
fn forgotten(story: &mut Story<'_, '_>, from_ns: Ns, until_ns: Ns) -> String {
    let Some((lie, loss)) = story.evidence.forgot(from_ns, until_ns) else {
        return "the store forgot it".to_owned();
    };
    for fault in [lie, loss] {
        story.fault(fault);
    }
    format!(
        "the store forgot it when {} lost power (fault {}), for syncs had been answered and not done (fault {})",
        loss.hosts.join(", "),
        loss.id,
        lie.id
    )
}

fn tell_write(story: &mut Story<'_, '_>, write: usize, at_ns: Ns, did: &str) {
    let evidence = story.evidence;
    let operation = &evidence.history.operations[write];
    let version = operation
        .version
        .or(evidence.access_of(write).map(|access| access.version));
    let mut notes = vec![format!("op {}", operation.op)];
    notes.extend(operation.element.map(|e| format!("element {e}")));
    notes.extend(version.map(|v| format!("version {v}")));
    notes.extend(operation.base.map(|b| format!("built on version {b}")));
    let notes = notes.join(", ");
    let text = format!("{} {did} ({notes})", story.client(operation.client));
    story.line(at_ns, text);
    story.involve(write);
}

/// Tells of the read on which a write was built: the same client's latest before it.
fn tell_read(story: &mut Story<'_, '_>, write: usize) {
    let operations = &story.evidence.history.operations;
    let written = &operations[write];
    let read = operations[..write].iter().rposition(|operation| {
        operation.client == written.client
            && operation.f == Function::Read
            && operation.key == written.key
            && operation.outcome == Outcome::Ok
    });
    if let Some(read) = read
        && let Some(version) = operations[read].version
        && written.base.is_none_or(|base| base == version)
    {
        let text = format!(
            "{} read version {version} (op {})",
            story.client(written.client),
            operations[read].op
        );
        story.line(operations[read].return_ns, text);
        story.involve(read);
    }
}
