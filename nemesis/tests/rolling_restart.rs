//! `rolling-restart` on real processes: one after the other, and none stays down.

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use checkers::history::FaultPhase;
use nemesis::fault::{FaultError, InForce, Request, find};
use nemesis::{Engine, FaultPlan, HostControl, ParamValue, Params, Schedule, Trigger};
use support::{By, GroupHost, GroupWorld, MS, SLEEPERS, next, now, sleep_ms, wait_for};

fn hosts() -> Vec<Arc<GroupHost>> {
    let names = ["n1", "n2", "n3"].into_iter();
    names
        .map(|name| GroupHost::start(name, SLEEPERS, By::Sigstop))
        .collect()
}

fn params(down_ms: u64, between_ms: u64, patience_ms: u64) -> Params {
    let times = [
        ("down", down_ms),
        ("between", between_ms),
        ("patience", patience_ms),
    ];
    let times = times.map(|(name, ms)| (name.to_owned(), ParamValue::DurationNs(ms * MS)));
    Params(times.into())
}

fn inject(hosts: &[Arc<GroupHost>], params: &Params) -> Result<Box<dyn InForce>, FaultError> {
    let fault = (find("rolling-restart").expect("registered").build)();
    let request = Request {
        asked_ns: None,
        now,
        params,
        pick: 0,
        world: &GroupWorld(Vec::new()),
    };
    let hosts: Vec<_> = hosts
        .iter()
        .map(|host| Arc::clone(host) as Arc<dyn HostControl>)
        .collect();
    fault.inject(&hosts, &request)
}

fn restarts(hosts: &[Arc<GroupHost>]) -> Vec<u32> {
    hosts
        .iter()
        .map(|host| host.restarts.load(Ordering::SeqCst))
        .collect()
}

#[test]
fn each_is_restarted_once_and_never_are_two_down() {
    let hosts = hosts();
    let plan = FaultPlan {
        kind: "rolling-restart".to_owned(),
        target: "all".parse().expect("a target"),
        trigger: Trigger::At { at_ns: 0 },
        lasts: None,
        params: params(150, 50, 1000),
    };
    let plans = [plan];
    let schedule = Schedule::draw(1, &plans, 60_000 * MS).expect("it can be drawn");
    let world = Arc::new(GroupWorld(hosts.clone()));
    let (sender, notices) = channel();
    let engine = Engine::start(&schedule, &plans, world, sender, now, now()).expect("it starts");
    let begun = next(&notices).into_event();
    assert_eq!(begun.phase, FaultPhase::Injected, "{}", begun.receipt);
    assert!(hosts[0].tree().is_empty());
    while restarts(&hosts) != [1, 1, 1] {
        let down = hosts.iter().filter(|host| host.tree().is_empty()).count();
        assert!(down <= 1);
        sleep_ms(5);
    }
    // Over by itself, long before the trial is.
    let healed = next(&notices).into_event();
    assert!(
        healed.proven && healed.phase == FaultPhase::Healed,
        "{}",
        healed.receipt
    );
    assert!(
        healed.receipt.starts_with("3 of 3 restarted"),
        "{}",
        healed.receipt
    );
    assert_eq!(engine.active(), Vec::<String>::new());
    wait_for("all processes", || {
        hosts.iter().all(|host| host.tree().len() == 3)
    });
}

#[test]
fn one_that_is_ended_early_is_not_proven_and_leaves_nobody_down() {
    let hosts = hosts();
    let mut roll = inject(&hosts, &params(60_000, 0, 0)).expect("it rolls");
    sleep_ms(50);
    assert!(!roll.is_over() && hosts[0].tree().is_empty());
    let receipt = roll.heal().expect("it heals");
    assert!(!receipt.proven);
    assert!(
        receipt.words.starts_with("1 of 3 restarted"),
        "{}",
        receipt.words
    );
    assert_eq!(restarts(&hosts), [1, 0, 0]);
    drop(inject(&hosts, &params(60_000, 0, 0)).expect("it rolls"));
    assert_eq!(restarts(&hosts), [2, 0, 0]);
}

#[test]
fn the_next_waits_until_the_one_before_is_well_but_not_for_ever() {
    let hosts = hosts();
    *hosts[0].well.lock().expect("no panic") = Some(false);
    *hosts[1].well.lock().expect("no panic") = Some(true);
    let mut roll = inject(&hosts, &params(10, 0, 60_000)).expect("it rolls");
    wait_for("the first restart", || restarts(&hosts)[0] == 1);
    sleep_ms(300);
    assert_eq!(restarts(&hosts), [1, 0, 0], "the second waits");
    *hosts[0].well.lock().expect("no panic") = Some(true);
    wait_for("the end", || roll.is_over());
    let receipt = roll.heal().expect("it heals");
    assert!(
        receipt.proven && receipt.words.contains("at work again"),
        "{}",
        receipt.words
    );

    *hosts[0].well.lock().expect("no panic") = Some(false);
    let mut roll = inject(&hosts, &params(10, 0, 100)).expect("it rolls");
    wait_for("the end", || roll.is_over());
    let receipt = roll.heal().expect("it heals");
    assert!(
        receipt.proven && receipt.words.contains("not at work within 1"),
        "{}",
        receipt.words
    );
}

#[test]
fn a_restart_that_fails_ends_the_roll_with_its_reason() {
    let hosts = hosts();
    *hosts[1].restart_error.lock().expect("no panic") = Some(io::Error::other("the port is taken"));
    let mut roll = inject(&hosts, &params(10, 0, 0)).expect("it rolls");
    wait_for("the end", || roll.is_over());
    let error = roll.heal().expect_err("it failed").to_string();
    assert!(
        error.contains("n2") && error.contains("the port is taken"),
        "{error}"
    );
    assert_eq!(restarts(&hosts), [1, 0, 0], "the third was left alone");
    let error = inject(&hosts[1..2], &params(10, 0, 0))
        .err()
        .expect("n2 is down");
    assert!(matches!(error, FaultError::NothingRuns { .. }), "{error}");
}
