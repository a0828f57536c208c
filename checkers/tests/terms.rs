//! Check `terms` against a look at every pair and every instant.

mod common;

use checkers::check::{Class, Metric, Report, Verdict, run_all};
use checkers::history::{Event, FaultEvent, FaultPhase, Function, History, Lost};
use proptest::prelude::*;

/// One round of a client: wait, hold, and how it ends.
#[derive(Clone, Debug)]
struct Round {
    lock: u32,
    wait: u64,
    hold: u64,
    released: bool,
    lost_after: Option<u64>,
    refused: bool,
}

/// A term as the test itself derives it: lock, client, start, end.
type Span = (u32, u32, u64, u64);

fn any_round() -> impl Strategy<Value = Round> {
    let lost_after = prop::option::weighted(0.2, 0_u64..12);
    (
        0_u32..2,
        1_u64..9,
        0_u64..12,
        prop::bool::weighted(0.8),
        lost_after,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(lock, wait, hold, released, lost_after, refused)| Round {
            lock,
            wait,
            hold,
            released,
            lost_after,
            refused,
        })
}

const MS: u64 = 1_000_000;

fn build(clients: &[Vec<Round>], heeds_lost: bool) -> (History, Vec<Span>) {
    let mut header = common::header();
    header.resource = String::new();
    header.discipline = if heeds_lost { "session" } else { "ignore" }.to_owned();
    let mut events = vec![Event::Header(header)];
    let (mut spans, mut op, mut last) = (Vec::new(), 0, 0);
    for (client, rounds) in clients.iter().enumerate() {
        let client = client as u32;
        events.push(common::client(client));
        let mut now = 0;
        let mut open: [Option<u64>; 2] = [None; 2];
        for round in rounds {
            let lock = format!("l{}", round.lock);
            let asked = now;
            now += round.wait;
            events.push(Event::Invoke(common::invoke(
                op,
                client,
                Function::Acquire,
                &lock,
                asked * MS,
            )));
            // Asking again ends a term that was never released.
            if let Some(start) = open[round.lock as usize].take() {
                spans.push((round.lock, client, start, asked));
            }
            let done = common::completion(op, asked * MS, now * MS);
            op += 1;
            last = last.max(now);
            if round.refused {
                events.push(Event::Fail(done));
                continue;
            }
            events.push(Event::Ok(done));
            let start = now;
            now += round.hold;
            let lost = round
                .lost_after
                .filter(|&after| heeds_lost && after < round.hold);
            if let Some(after) = round.lost_after.filter(|&after| after < round.hold) {
                let at_ns = (start + after) * MS;
                events.push(Event::Lost(Lost {
                    client,
                    lock: lock.clone(),
                    at_ns,
                    why: "test".into(),
                }));
            }
            match lost {
                Some(after) => spans.push((round.lock, client, start, start + after)),
                None if round.released => spans.push((round.lock, client, start, now)),
                None => open[round.lock as usize] = Some(start),
            }
            if round.released {
                events.push(Event::Invoke(common::invoke(
                    op,
                    client,
                    Function::Release,
                    &lock,
                    now * MS,
                )));
                events.push(Event::Ok(common::completion(op, now * MS, (now + 1) * MS)));
                op += 1;
                now += 1;
            }
            last = last.max(now);
        }
        spans.extend(
            (0..2).filter_map(|lock| {
                open[lock as usize].map(|start| (lock, client, start, u64::MAX))
            }),
        );
    }
    last += 3;
    for span in &mut spans {
        span.3 = span.3.min(last);
    }
    events.push(common::end(last * MS));
    (History::from_events(events).expect("it settles"), spans)
}

struct Truth {
    pairs: f64,
    longest: f64,
    shared: f64,
    depth: f64,
    first: Option<f64>,
}

fn brute_force(spans: &[Span]) -> Truth {
    let (mut pairs, mut longest, mut first) = (0_u32, 0, None);
    for (i, a) in spans.iter().enumerate() {
        for b in &spans[i + 1..] {
            let (from, to) = (a.2.max(b.2), a.3.min(b.3));
            if a.0 == b.0 && a.1 != b.1 && from < to {
                pairs += 1;
                longest = longest.max(to - from);
                first = Some(first.map_or(from, |first: u64| first.min(from)));
            }
        }
    }
    let believers = |lock, t| {
        spans
            .iter()
            .filter(|s| s.0 == lock && s.2 <= t && t < s.3)
            .count()
    };
    let instants = || (0..2).flat_map(|lock| (0..400).map(move |t| (lock, t)));
    let shared = instants()
        .filter(|&(lock, t)| believers(lock, t) >= 2)
        .count();
    let depth = instants().map(|(lock, t)| believers(lock, t)).max();
    Truth {
        pairs: f64::from(pairs),
        longest: longest as f64,
        shared: shared as f64,
        depth: depth.unwrap_or(0) as f64,
        first: first.map(|first| first as f64),
    }
}

fn terms_report(history: &History) -> Report {
    let reports = run_all(history);
    reports
        .into_iter()
        .find(|report| report.check == "terms")
        .expect("it applies")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn agrees_with_every_pair_and_every_instant(
        clients in prop::collection::vec(prop::collection::vec(any_round(), 0..6), 1..5),
        heeds_lost in any::<bool>(),
    ) {
        let (history, spans) = build(&clients, heeds_lost);
        let truth = brute_force(&spans);
        let report = terms_report(&history);
        let metric = |name: &str| report.metrics.get(name).map(|metric| metric.value());
        prop_assert_eq!(metric("terms"), Some(spans.len() as f64));
        prop_assert_eq!(metric("overlapping_terms"), Some(truth.pairs));
        prop_assert_eq!(metric("overlap_longest_ms"), Some(truth.longest));
        prop_assert_eq!(metric("overlap_total_ms"), Some(truth.shared));
        prop_assert_eq!(metric("overlap_depth"), Some(truth.depth));
        prop_assert_eq!(metric("first_overlap_ms"), truth.first);
        prop_assert_eq!(report.verdict == Verdict::Invalid, truth.pairs > 0.0);
        prop_assert_eq!(report.witnesses.is_empty(), truth.pairs == 0.0);
    }
}

/// One client's term of 100 ms and another's that begins 10 ms before its end.
fn slight_overlap(clock_error_ns: u64) -> Report {
    let mut header = common::header();
    header.clock_error_ns = clock_error_ns;
    let mut events = vec![Event::Header(header), common::client(1), common::client(2)];
    for (client, from) in [(1, 0), (2, 90)] {
        let op = u64::from(client - 1) * 2;
        let (from, to) = (from * MS, (from + 100) * MS);
        events.push(Event::Invoke(common::invoke(
            op,
            client,
            Function::Acquire,
            "l",
            from,
        )));
        events.push(Event::Ok(common::completion(op, from, from)));
        events.push(Event::Invoke(common::invoke(
            op + 1,
            client,
            Function::Release,
            "l",
            to,
        )));
        events.push(Event::Ok(common::completion(op + 1, to, to)));
    }
    terms_report(&History::from_events(events).expect("it settles"))
}

#[test]
fn overlaps_within_the_clock_error_are_none() {
    assert_eq!(slight_overlap(0).verdict, Verdict::Invalid);
    assert_eq!(slight_overlap(4 * MS).verdict, Verdict::Invalid);
    assert_eq!(slight_overlap(5 * MS).verdict, Verdict::Valid);
}

#[test]
fn nothing_acquired_is_unknown_not_valid() {
    let events = [Event::Header(common::header()), common::end(5)];
    let report = terms_report(&History::from_events(events).expect("it settles"));
    assert_eq!(report.verdict, Verdict::Unknown);
    assert!(report.unknown_because.is_some());
}

/// Two clients are granted one lock within its TTL, under a fault of this kind on this host.
fn granted_twice(kind: &str, host: &str) -> Report {
    let mut events = vec![Event::Header(common::header())];
    events.extend([common::client(1), common::client(2)]);
    events.push(Event::Fault(FaultEvent {
        id: 1,
        kind: kind.to_owned(),
        target: "one".into(),
        hosts: vec![host.to_owned()],
        phase: FaultPhase::Injected,
        at_ns: 1,
        requested_ns: 1,
        proven: true,
        receipt: String::new(),
    }));
    for (op, client, from_ms) in [(0, 1, 10), (1, 2, 500)] {
        let (invoke_ns, return_ns) = (from_ms * MS, (from_ms + 1) * MS);
        let invoke = common::invoke(op, client, Function::Acquire, "l", invoke_ns);
        events.push(Event::Invoke(invoke));
        events.push(Event::Ok(common::completion(op, invoke_ns, return_ns)));
    }
    events.push(common::end(900 * MS));
    let history = History::from_events(events).expect("it settles");
    let mut reports = run_all(&history).into_iter();
    reports
        .find(|report| report.check == "terms")
        .expect("terms")
}

#[test]
fn a_service_whose_clock_was_bent_promised_nothing() {
    for (kind, host, class) in [
        ("pause", "n1", Class::ServerFault),
        ("clock-rate", "c1", Class::ServerFault),
        ("clock-rate", "n1", Class::InherentHazard),
    ] {
        let report = granted_twice(kind, host);
        assert_eq!(report.verdict, Verdict::Invalid);
        assert_eq!(report.class, Some(class), "{kind} on {host}");
        let doubles = report.metrics.get("double_grants").copied();
        assert_eq!(doubles.map(Metric::value), Some(1.0));
        assert!(report.witnesses.iter().all(|one| one.class == Some(class)));
    }
}
