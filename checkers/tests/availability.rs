//! Figures of `availability` and `lease` on a short history with known times.

mod common;

use checkers::check::{Metric, availability};
use checkers::history::{Event, FaultEvent, FaultPhase, Function, History};

const MS: u64 = 1_000_000;

fn fault(phase: FaultPhase, at_ms: u64) -> Event {
    Event::Fault(FaultEvent {
        id: 1,
        kind: "pause".into(),
        target: "holder".into(),
        hosts: vec!["c1".into()],
        phase,
        at_ns: at_ms * MS,
        requested_ns: at_ms * MS,
        proven: true,
        receipt: String::new(),
    })
}

/// An operation from `invoke_ms` to `return_ms`, both in one go.
fn done(op: u64, client: u32, f: Function, invoke_ms: u64, return_ms: u64) -> [Event; 2] {
    [
        Event::Invoke(common::invoke(op, client, f, "l", invoke_ms * MS)),
        Event::Ok(common::completion(op, invoke_ms * MS, return_ms * MS)),
    ]
}

#[test]
fn waits_idle_times_and_faults_are_measured() {
    let mut events = vec![
        Event::Header(common::header()),
        common::client(1),
        common::client(2),
        common::client(3),
    ];
    // Client 1 holds from 10 to 50. Client 2 waits from 20 to 200, client 3 from 30 to 60: it goes first.
    events.extend(done(0, 1, Function::Acquire, 0, 10));
    events.push(fault(FaultPhase::Injected, 15));
    events.push(fault(FaultPhase::Healed, 55));
    events.extend(done(1, 1, Function::Release, 50, 51));
    events.extend(done(2, 2, Function::Acquire, 20, 200));
    events.extend(done(3, 3, Function::Acquire, 30, 60));
    events.extend(done(4, 3, Function::Release, 100, 101));
    events.push(common::end(300 * MS));
    let history = History::from_events(events).expect("it settles");
    let report = (availability::SPEC.run)(&history);
    let ms = |name: &str| report.metrics.get(name).copied().map(Metric::value);
    // Nobody held from 0 to 10, from 50 to 60, and from 100 to 200, and somebody waited all the while.
    assert_eq!(ms("idle_total_ms"), Some(120.0));
    assert_eq!(ms("idle_longest_ms"), Some(100.0));
    // 50 → 60 and 100 → 200.
    assert_eq!(ms("handover_p50_ms"), Some(10.0));
    assert_eq!(ms("handover_max_ms"), Some(100.0));
    // 15 → 60, and 55 → 60.
    assert_eq!(ms("grant_after_fault_max_ms"), Some(45.0));
    assert_eq!(ms("grant_after_heal_max_ms"), Some(5.0));
    assert_eq!(ms("faults_without_grant_after"), Some(0.0));
    assert_eq!(ms("wait_longest_ms"), Some(180.0));
    assert_eq!(ms("overtaken_most"), Some(1.0));
    assert_eq!(ms("woken_per_release_max"), Some(1.0));
    // Nobody counted.
    assert_eq!(ms("wakes_per_release_mean"), None);
    assert_eq!(ms("wakes_per_acquire_max"), None);
}

#[test]
fn wake_ups_that_clients_counted_are_set_against_the_releases_that_somebody_waited_for() {
    let counted = |op, client, invoke_ms, return_ms, wakes| {
        let [invoke, _] = done(op, client, Function::Acquire, invoke_ms, return_ms);
        let mut completion = common::completion(op, invoke_ms * MS, return_ms * MS);
        completion.wakes = Some(wakes);
        [invoke, Event::Ok(completion)]
    };
    let mut events = vec![
        Event::Header(common::header()),
        common::client(1),
        common::client(2),
        common::client(3),
    ];
    // A herd: the release at 50 wakes both waiters, the one at 100 the one that is left, the one at 150 nobody.
    events.extend(counted(0, 1, 0, 10, 0));
    events.extend(done(1, 1, Function::Release, 50, 51));
    events.extend(counted(2, 2, 20, 60, 1));
    events.extend(done(3, 2, Function::Release, 100, 101));
    events.extend(counted(4, 3, 30, 110, 2));
    events.extend(done(5, 3, Function::Release, 150, 151));
    events.push(common::end(300 * MS));
    let history = History::from_events(events).expect("it settles");
    let report = (availability::SPEC.run)(&history);
    let value = |name: &str| report.metrics.get(name).copied().map(Metric::value);
    assert_eq!(value("wakes_per_release_mean"), Some(1.5));
    assert_eq!(value("wakes_per_acquire_max"), Some(2.0));
    // Each was woken by each release during its wait.
    assert_eq!(value("wakes_share_mean"), Some(1.0));
}
