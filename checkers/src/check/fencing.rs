//! Check `fencing`: are tokens what a fencing token must be, and did the resource honour them?
//!
//! Per lock, over successful acquires i, j with invoke a, return a′ and token t (facts: E3):
//! tokens are distinct, and a′ᵢ < aⱼ ⇒ tᵢ < tⱼ. Per register and lock, in the resource's own order
//! (E4): no accepted write has a token below that of an earlier accepted write. Writes without a token are
//! passed over. Both are exact, by sorting and a running maximum: O(n log n).

use std::collections::{BTreeMap, HashMap};

use super::{CheckSpec, Class, MAX_WITNESSES, MetricSpec, Report, Verdict, Witness, metric};
use crate::cause::Story;
use crate::evidence::Evidence;
use crate::history::{Access, Function, History, Ns, Outcome};

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "fencing",
    summary: "fencing tokens repeated or out of order; stale writes that the resource accepted",
    metrics: METRICS,
    applies: |_| true,
    run,
};

const METRICS: &[MetricSpec] = &[
    metric(
        "tokens_seen",
        "tokens",
        "successful acquires that gave a token",
    ),
    metric(
        "tokens_repeated",
        "tokens",
        "successful acquires whose token had been given before",
    ),
    metric(
        "tokens_out_of_order",
        "tokens",
        "successful acquires with a smaller token than one that had returned before they began",
    ),
    metric(
        "stale_writes_attempted",
        "writes",
        "writes with a token below one that the register had already seen, or refused by the resource",
    ),
    metric(
        "stale_writes_accepted",
        "writes",
        "stale writes that the resource accepted",
    ),
    metric(
        "stale_writes_rejected",
        "writes",
        "writes that the resource refused",
    ),
];

/// A grant with its token; times are shrunk by the clock error.
#[derive(Clone, Copy)]
struct Grant {
    place: usize,
    token: u64,
    invoke_ns: Ns,
    return_ns: Ns,
}

/// A pair of places in the history: the grant that is wrong, and the one that shows it.
type Wrong = (usize, usize);

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let grants = grants(history);
    let seen: usize = grants.values().map(Vec::len).sum();
    let (mut repeated, mut disordered) = (Vec::new(), Vec::new());
    for of_lock in grants.values() {
        repeated.extend(find_repeated(of_lock));
        disordered.extend(find_disordered(of_lock));
    }
    let writes = stale_writes(history);

    let mut report = Report::new(SPEC.name);
    report.set("tokens_seen", seen as u64);
    report.set("tokens_repeated", repeated.len() as u64);
    report.set("tokens_out_of_order", disordered.len() as u64);
    let accepted = writes.accepted.len() as u64;
    report.set("stale_writes_attempted", accepted + writes.rejected);
    report.set("stale_writes_accepted", accepted);
    report.set("stale_writes_rejected", writes.rejected);

    let server = (!repeated.is_empty() || !disordered.is_empty()).then(|| evidence.service_class());
    report.blame(server);
    let resource = (accepted > 0).then(|| stale_class(history));
    report.blame(resource);
    report.witnesses = witnesses(&evidence, &mut repeated, &mut disordered, &writes.accepted);
    if report.class.is_some() {
        report.verdict = Verdict::Invalid;
    } else if seen == 0 {
        report.verdict = Verdict::Unknown;
        report.unknown_because =
            Some("no acquire gave a token: this lock has none, or nothing was acquired".to_owned());
    }
    report
}

fn grants(history: &History) -> BTreeMap<u32, Vec<Grant>> {
    let error_ns = history.header.clock_error_ns;
    let mut grants: BTreeMap<u32, Vec<Grant>> = BTreeMap::new();
    for (place, operation) in history.operations.iter().enumerate() {
        if operation.f == Function::Acquire
            && operation.outcome == Outcome::Ok
            && let Some(token) = operation.token
        {
            grants.entry(operation.lock).or_default().push(Grant {
                place,
                token,
                invoke_ns: operation.invoke_ns.saturating_sub(error_ns),
                return_ns: operation.return_ns.saturating_add(error_ns),
            });
        }
    }
    grants
}

fn find_repeated(grants: &[Grant]) -> Vec<Wrong> {
    let mut first: HashMap<u64, usize> = HashMap::new();
    let mut by_return = grants.to_vec();
    by_return.sort_by_key(|grant| (grant.return_ns, grant.place));
    let mut repeated = Vec::new();
    for grant in by_return {
        if let Some(&before) = first.get(&grant.token) {
            repeated.push((grant.place, before));
        } else {
            first.insert(grant.token, grant.place);
        }
    }
    repeated
}

fn find_disordered(grants: &[Grant]) -> Vec<Wrong> {
    let mut by_invoke = grants.to_vec();
    by_invoke.sort_by_key(|grant| (grant.invoke_ns, grant.place));
    let mut by_return = grants.to_vec();
    by_return.sort_by_key(|grant| (grant.return_ns, grant.place));
    let mut returned = by_return.into_iter().peekable();
    let mut highest: Option<Grant> = None;
    let mut disordered = Vec::new();
    for grant in by_invoke {
        while let Some(before) = returned.next_if(|before| before.return_ns < grant.invoke_ns) {
            if highest.is_none_or(|highest| highest.token < before.token) {
                highest = Some(before);
            }
        }
        // An equal token is a repeated one, counted there.
        if let Some(highest) = highest
            && highest.token > grant.token
        {
            disordered.push((grant.place, highest.place));
        }
    }
    disordered
}

struct StaleWrites<'h> {
    /// Each with the earlier accepted write that had the higher token.
    accepted: Vec<(&'h Access, &'h Access)>,
    rejected: u64,
}

fn stale_writes(history: &History) -> StaleWrites<'_> {
    // Tokens of different locks cannot be compared.
    let mut highest: HashMap<(&str, Option<u32>), &Access> = HashMap::new();
    let mut found = StaleWrites {
        accepted: Vec::new(),
        rejected: 0,
    };
    for access in &history.accesses {
        if access.f != Function::Write {
            continue;
        }
        if !access.accepted {
            found.rejected += 1;
            continue;
        }
        if access.token.is_none() {
            continue;
        }
        let operation = history.index_of(access.op);
        let lock = operation.map(|place| history.operations[place].lock);
        let highest = highest.entry((&access.key, lock)).or_insert(access);
        if access.token < highest.token {
            found.accepted.push((access, *highest));
        } else {
            *highest = access;
        }
    }
    found
}

fn stale_class(history: &History) -> Class {
    if history.header.tokens == "enforce" {
        Class::HarnessFault
    } else {
        Class::InherentHazard
    }
}

fn witnesses(
    evidence: &Evidence<'_>,
    repeated: &mut [Wrong],
    disordered: &mut [Wrong],
    stale: &[(&Access, &Access)],
) -> Vec<Witness> {
    let history = evidence.history;
    let returned = |wrong: &Wrong| (history.operations[wrong.0].return_ns, wrong.0);
    repeated.sort_by_key(returned);
    disordered.sort_by_key(returned);
    let tokens = repeated
        .iter()
        .map(|wrong| (wrong, "was given a second time"))
        .chain(
            disordered
                .iter()
                .map(|wrong| (wrong, "is smaller than one given before")),
        );
    let mut witnesses: Vec<Witness> = tokens
        .take(MAX_WITNESSES)
        .map(|(wrong, what)| token_witness(evidence, *wrong, what))
        .collect();
    let room = MAX_WITNESSES - witnesses.len();
    let stale = stale.iter().take(room);
    witnesses.extend(stale.map(|(write, before)| stale_witness(evidence, write, before)));
    witnesses
}

fn token_witness(evidence: &Evidence<'_>, (wrong, before): Wrong, what: &str) -> Witness {
    let history = evidence.history;
    let mut story = Story::new(evidence);
    for place in [before, wrong] {
        let operation = &history.operations[place];
        let client = story.client(operation.client);
        let (op, token) = (operation.op, operation.token.unwrap_or_default());
        story.line(
            operation.invoke_ns,
            format!("{client} asked for the lock (op {op})"),
        );
        story.line(
            operation.return_ns,
            format!("{client} acquired it with token {token} (op {op})"),
        );
        story.involve(place);
    }
    let operation = &history.operations[wrong];
    let token = operation.token.unwrap_or_default();
    let lock = history.locks.name(operation.lock);
    story.tell(
        format!("lock `{lock}`: token {token} {what}"),
        Some(evidence.service_class()),
    )
}

fn stale_witness(evidence: &Evidence<'_>, write: &Access, before: &Access) -> Witness {
    let history = evidence.history;
    let mut story = Story::new(evidence);
    for access in [before, write] {
        let who = match history.index_of(access.op) {
            Some(place) => {
                if let Some(term) = evidence.term_of(place) {
                    story.acquired(term);
                }
                story.involve(place);
                story.client(history.operations[place].client)
            }
            None => "an unknown client".to_owned(),
        };
        let text = format!(
            "the resource accepted the write of {who} with token {} (op {}, version {})",
            access.token.unwrap_or_default(),
            access.op,
            access.version
        );
        story.line(access.at_ns, text);
    }
    let class = stale_class(history);
    let why = match class {
        Class::HarnessFault => "although it enforces tokens",
        _ => "as it only records tokens",
    };
    let headline = format!(
        "`{}`: a write with token {} was accepted after one with token {}, {why}",
        write.key,
        write.token.unwrap_or_default(),
        before.token.unwrap_or_default()
    );
    story.tell(headline, Some(class))
}
