//! Check `lost-writes` against a register that is replayed write by write.

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};

use checkers::check::{Verdict, run_all};
use checkers::evidence::Evidence;
use checkers::history::{Access, Event, FinalRead, Function, History};
use checkers::register::registers;
use proptest::prelude::*;

/// How a write ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Ok,
    Fail,
    UnknownDone,
    UnknownUndone,
}

/// One step: a client that has read writes, one that has not reads.
type Step = (usize, Ending);

fn any_step() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![
        8 => Just(Ending::Ok),
        1 => Just(Ending::Fail),
        1 => Just(Ending::UnknownDone),
        1 => Just(Ending::UnknownUndone),
    ];
    (0_usize..4, ending)
}

/// What really happened.
#[derive(Default)]
struct Truth {
    attempted: u64,
    acknowledged: HashSet<u64>,
    unknown: HashSet<u64>,
    content: HashSet<u64>,
    /// Element → the elements of the writes that removed it, in order.
    removed_by: HashMap<u64, Vec<u64>>,
}

fn simulate(steps: &[Step], report_accesses: bool, read_at_end: bool) -> (History, Truth) {
    let mut events = vec![Event::Header(common::header())];
    let mut truth = Truth::default();
    let mut contents: Vec<HashSet<u64>> = vec![HashSet::new()];
    let mut seats: Vec<(u32, Option<u64>)> = (0..4).map(|client| (client, None)).collect();
    let (mut op, mut next_client, mut seq) = (0, 4, 0);
    for (now, &(seat, ending)) in steps.iter().enumerate() {
        let at_ns = now as u64 * 1_000_000;
        let (client, base) = seats[seat];
        let version = contents.len() as u64 - 1;
        let f = if base.is_some() {
            Function::Write
        } else {
            Function::Read
        };
        let mut invoke = common::invoke(op, client, f, "l", at_ns);
        invoke.key = Some("r".into());
        let mut done = common::completion(op, at_ns, at_ns + 1000);
        let Some(base) = base else {
            events.push(Event::Invoke(invoke));
            done.version = Some(version);
            events.push(Event::Ok(done));
            seats[seat].1 = Some(version);
            op += 1;
            continue;
        };
        let element = op;
        truth.attempted += 1;
        invoke.element = Some(element);
        events.push(Event::Invoke(invoke));
        if matches!(ending, Ending::Ok | Ending::UnknownDone) {
            let mut content = contents[base as usize].clone();
            content.insert(element);
            let mut removed: Vec<u64> = contents[version as usize]
                .difference(&content)
                .copied()
                .collect();
            removed.sort_unstable();
            for &gone in &removed {
                truth.removed_by.entry(gone).or_default().push(element);
            }
            contents.push(content);
            if report_accesses {
                events.push(Event::Access(Access {
                    seq,
                    op,
                    key: "r".into(),
                    f: Function::Write,
                    token: None,
                    accepted: true,
                    version: version + 1,
                    removed,
                    at_ns: at_ns + 500,
                }));
                seq += 1;
            }
        }
        seats[seat].1 = None;
        match ending {
            Ending::Ok => {
                truth.acknowledged.insert(element);
                done.version = Some(version + 1);
                done.base = Some(base);
                events.push(Event::Ok(done));
            }
            Ending::Fail => events.push(Event::Fail(done)),
            Ending::UnknownDone | Ending::UnknownUndone => {
                truth.unknown.insert(element);
                events.push(Event::Info(done));
                seats[seat].0 = next_client;
                next_client += 1;
            }
        }
        op += 1;
    }
    truth.content = contents.pop().expect("there is one");
    if read_at_end {
        let mut elements: Vec<u64> = truth.content.iter().copied().collect();
        elements.sort_unstable();
        events.push(Event::Final(FinalRead {
            key: "r".into(),
            version: contents.len() as u64,
            elements,
            at_ns: u64::from(u32::MAX),
        }));
    }
    events.push(common::end(u64::from(u32::MAX)));
    (History::from_events(events).expect("it settles"), truth)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn agrees_with_a_replayed_register(
        steps in prop::collection::vec(any_step(), 0..40),
        report_accesses in any::<bool>(),
    ) {
        let (history, truth) = simulate(&steps, report_accesses, true);
        let reports = run_all(&history);
        let report = reports.iter().find(|r| r.check == "lost-writes").expect("it applies");
        let lost: HashSet<u64> = truth.acknowledged.difference(&truth.content).copied().collect();
        let expected: BTreeMap<&str, f64> = BTreeMap::from([
            ("attempted", truth.attempted as f64),
            ("acknowledged", truth.acknowledged.len() as f64),
            ("lost_writes", lost.len() as f64),
            ("recovered_writes", truth.unknown.intersection(&truth.content).count() as f64),
            ("unexpected_elements", 0.0),
            ("duplicated_elements", 0.0),
        ]);
        for (name, value) in expected {
            prop_assert_eq!(report.metrics[name].value(), value, "{}", name);
        }
        prop_assert_eq!(report.verdict == Verdict::Invalid, !lost.is_empty());
        prop_assert_eq!(report.witnesses.len(), lost.len().min(10));

        // Each lost write names the write that really removed it.
        let evidence = Evidence::gather(&history);
        for register in registers(&evidence) {
            let places: Vec<usize> = (0..register.writes.len())
                .filter(|&place| lost.contains(&register.writes[place].element))
                .collect();
            for clobber in register.clobbers(&history, &places) {
                let element = history.operations[clobber.lost].element.expect("a write");
                let by = clobber.by.map(|by| history.operations[by].element.expect("a write"));
                let removals = &truth.removed_by[&element];
                if report_accesses {
                    prop_assert_eq!(by, removals.last().copied());
                } else if truth.unknown.is_empty() {
                    prop_assert_eq!(by, removals.first().copied());
                } else if let Some(by) = by {
                    // A write of unknown outcome may have removed it earlier; what is named did not hold it.
                    prop_assert!(by > element);
                }
            }
        }
    }

    #[test]
    fn what_a_killed_run_held_is_derived_or_said_to_be_unknown(
        steps in prop::collection::vec(any_step(), 0..40),
        report_accesses in any::<bool>(),
    ) {
        let (history, truth) = simulate(&steps, report_accesses, false);
        let evidence = Evidence::gather(&history);
        for register in registers(&evidence) {
            match register.survivors() {
                Ok(survivors) => prop_assert_eq!(&survivors, &truth.content),
                Err(why) => prop_assert!(!truth.unknown.is_empty(), "{}", why),
            }
        }
        let reports = run_all(&history);
        let report = reports.iter().find(|r| r.check == "lost-writes").expect("it applies");
        let lost = truth.acknowledged.difference(&truth.content).count();
        match report.verdict {
            Verdict::Valid => prop_assert_eq!(lost, 0),
            Verdict::Invalid => prop_assert!(lost > 0),
            Verdict::Unknown => prop_assert!(truth.acknowledged.is_empty() || !truth.unknown.is_empty()),
        }
    }
}
