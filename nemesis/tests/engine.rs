//! The engine on real processes: what strikes when, and that everything is healed whatever happens.

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

use checkers::history::FaultEvent;
use nemesis::{
    Engine, EngineError, FaultPlan, HostControl, Lasts, Notice, Params, Schedule, Target, Trigger,
    TriggerEvent,
};
use nix::sys::signal::{Signal, killpg};
use support::{
    By, GroupHost, GroupWorld, MS, SLEEPERS, SPINNER, both_ways, next, now, sleep_ms, wait_for,
};

const DURATION_NS: u64 = 60_000 * MS;

fn plan(kind: &str, target: &str, trigger: Trigger, lasts_ms: u64) -> FaultPlan {
    FaultPlan {
        kind: kind.to_owned(),
        target: target.parse().expect("a target"),
        trigger,
        lasts: Some(Lasts::Fixed { ns: lasts_ms * MS }),
        params: Params::default(),
    }
}

fn at(ms: u64) -> Trigger {
    Trigger::At { at_ns: ms * MS }
}

fn on(event: TriggerEvent, after_ms: u64) -> Trigger {
    Trigger::On {
        event,
        after_ns: after_ms * MS,
        probability: 1.0,
        at_most: None,
        spacing_ns: 0,
    }
}

struct Run {
    engine: Engine,
    notices: Receiver<Notice>,
    schedule: Schedule,
    start_ns: u64,
}

fn run(plans: &[FaultPlan], hosts: &[&Arc<GroupHost>], duration_ns: u64) -> Run {
    let schedule = Schedule::draw(5, plans, duration_ns).expect("it can be drawn");
    let world = Arc::new(GroupWorld(
        hosts.iter().map(|host| Arc::clone(host)).collect(),
    ));
    let (sender, notices) = channel();
    let start_ns = now();
    let engine = Engine::start(&schedule, plans, world, sender, now, start_ns).expect("it starts");
    Run {
        engine,
        notices,
        schedule,
        start_ns,
    }
}

fn injected(notice: Notice) -> FaultEvent {
    match notice {
        Notice::Injected(event) => event,
        other => panic!("expected Injected, found {other:?}"),
    }
}

fn healed(notice: Notice) -> FaultEvent {
    match notice {
        Notice::Healed(event) => event,
        other => panic!("expected Healed, found {other:?}"),
    }
}

fn skipped(notice: Notice) -> FaultEvent {
    match notice {
        Notice::Skipped(event) => event,
        other => panic!("expected Skipped, found {other:?}"),
    }
}

fn failed(notice: Notice) -> FaultEvent {
    match notice {
        Notice::Failed(event) => event,
        other => panic!("expected Failed, found {other:?}"),
    }
}

#[test]
fn every_fires_again_and_again_until_the_end() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SPINNER, by);
        let every = Trigger::Every {
            every_ns: 600 * MS,
            first_ns: 50 * MS,
        };
        let run = run(&[plan("pause", "node:n1", every, 60)], &[&host], 2000 * MS);
        for (index, due_ms) in [50, 650, 1250, 1850].into_iter().enumerate() {
            let begin = injected(next(&run.notices));
            let end = healed(next(&run.notices));
            assert_eq!(begin.id as usize, index + 1);
            assert_eq!((end.id, end.requested_ns), (begin.id, begin.requested_ns));
            assert_eq!(begin.hosts, ["n1"]);
            assert_eq!(
                (begin.kind.as_str(), begin.target.as_str()),
                ("pause", "node:n1")
            );
            assert!(begin.requested_ns >= run.start_ns + due_ms * MS);
            assert!(begin.at_ns >= begin.requested_ns);
            assert!(end.at_ns >= begin.at_ns + 60 * MS);
            assert!(end.proven, "{}", end.receipt);
            let late_us = (begin.requested_ns - run.start_ns - due_ms * MS) / 1000;
            let over_us = (end.at_ns - begin.at_ns - 60 * MS) / 1000;
            println!(
                "{by:?}: asked {late_us} µs late, {over_us} µs too long; {}",
                end.receipt
            );
        }
        sleep_ms(100);
        assert!(
            run.notices.try_recv().is_err(),
            "nothing strikes after the end"
        );
    }
}

#[test]
fn a_crash_at_a_time_brings_its_host_back() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    let run = run(&[plan("crash", "one", at(50), 1000)], &[&host], DURATION_NS);
    let begin = injected(next(&run.notices));
    assert!(host.tree().is_empty());
    assert_eq!(run.engine.active(), ["crash n1"]);
    let end = healed(next(&run.notices));
    println!("{}", end.receipt);
    assert!(
        end.proven && end.at_ns >= begin.at_ns + 1000 * MS,
        "{end:?}"
    );
    wait_for("its processes", || host.tree().len() == 3);
}

#[test]
fn a_crash_without_end_lasts_until_the_engine_stops() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    let crash = FaultPlan {
        lasts: None,
        ..plan("crash", "one", at(0), 1)
    };
    let run = run(&[crash], &[&host], DURATION_NS);
    injected(next(&run.notices));
    sleep_ms(300);
    assert!(host.tree().is_empty() && run.notices.try_recv().is_err());
    run.engine.stop();
    let end = healed(next(&run.notices));
    assert!(end.proven && !end.receipt.contains("cut short"), "{end:?}");
    wait_for("its processes", || host.tree().len() == 3);
}

#[test]
fn a_write_can_be_held_back_until_its_client_is_stopped() {
    for by in both_ways() {
        let host = GroupHost::start("c1", SPINNER, by);
        let other = GroupHost::start("c2", SPINNER, by);
        let plans = [plan(
            "pause",
            "holder",
            on(TriggerEvent::BeforeWrite, 0),
            1500,
        )];
        let run = run(&plans, &[&other, &host], DURATION_NS);
        assert!(
            run.engine
                .trigger(TriggerEvent::Acquired, Some("c1"))
                .is_empty()
        );
        let asked_ns = now();
        let caused = run.engine.trigger(TriggerEvent::BeforeWrite, Some("c1"));
        let cost_us = (now() - asked_ns) / 1000;
        assert!(caused.len() == 1 && caused[0].immediate);
        let notice = next(&run.notices);
        let held_us = (now() - asked_ns) / 1000;
        println!("{by:?}: trigger() took {cost_us} µs, the write was held back for {held_us} µs");
        assert_eq!(notice.id(), caused[0].id);
        assert_eq!(injected(notice).hosts, ["c1"]);
        assert_eq!(host.cpu_used_ns(20), 0, "it is stopped by now");
        assert!(other.cpu_used_ns(200) > 0, "the other is not");
        assert!(healed(next(&run.notices)).proven);
    }
}

#[test]
fn an_event_with_a_delay_strikes_later_and_is_not_waited_for() {
    let host = GroupHost::start("c1", SLEEPERS, By::Sigstop);
    let plans = [plan("pause", "holder", on(TriggerEvent::Acquired, 150), 50)];
    let run = run(&plans, &[&host], DURATION_NS);
    let at_ns = now();
    let caused = run.engine.trigger(TriggerEvent::Acquired, Some("c1"));
    assert!(caused.len() == 1 && !caused[0].immediate);
    let begin = injected(next(&run.notices));
    assert!(begin.requested_ns >= at_ns + 150 * MS);
    assert!(healed(next(&run.notices)).proven);
}

#[test]
fn probability_follows_the_drawn_schedule() {
    let host = GroupHost::start("c1", SLEEPERS, By::Sigstop);
    let sometimes = Trigger::On {
        event: TriggerEvent::LeaderChanged,
        after_ns: 0,
        probability: 0.3,
        at_most: None,
        spacing_ns: 0,
    };
    let run = run(
        &[plan("pause", "holder", sometimes, 1)],
        &[&host],
        DURATION_NS,
    );
    // Once around and a little more; without a host to strike each one ends at once.
    let fired: Vec<bool> = (0..300)
        .map(|_| {
            !run.engine
                .trigger(TriggerEvent::LeaderChanged, None)
                .is_empty()
        })
        .collect();
    let drawn = run.schedule.on_event[0].draws.iter().map(|draw| draw.fires);
    let expected: Vec<bool> = drawn.cycle().take(300).collect();
    assert_eq!(fired, expected);
    run.engine.stop();
    let skips = fired.iter().filter(|fired| **fired).count();
    let mut ids: Vec<u32> = run
        .notices
        .try_iter()
        .map(|notice| skipped(notice).id)
        .collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        (1..=u32::try_from(skips).expect("few")).collect::<Vec<_>>()
    );
}

#[test]
fn spacing_and_at_most_are_kept_and_a_skipped_firing_does_not_count() {
    let host = GroupHost::start("c1", SLEEPERS, By::Sigstop);
    let twice = Trigger::On {
        event: TriggerEvent::Acquired,
        after_ns: 0,
        probability: 1.0,
        at_most: Some(2),
        spacing_ns: 200 * MS,
    };
    let run = run(&[plan("pause", "holder", twice, 10)], &[&host], DURATION_NS);
    let acquire = |about| run.engine.trigger(TriggerEvent::Acquired, about).len();
    let mut fired_ns = now();
    assert_eq!(acquire(None), 1);
    assert_eq!(skipped(next(&run.notices)).receipt, "nobody holds a lock");
    for firing in [1, 1, 0] {
        let early = acquire(Some("c1"));
        // On a busy machine the spacing may be over by now.
        if now() < fired_ns + 200 * MS {
            assert_eq!(early, 0, "too close to the one before");
            sleep_ms(210);
            fired_ns = now();
            assert_eq!(acquire(Some("c1")), firing);
        } else {
            assert_eq!(early, firing);
        }
        if firing == 1 {
            injected(next(&run.notices));
            assert!(healed(next(&run.notices)).proven);
        }
    }
}

#[test]
fn stopping_or_dropping_the_engine_in_the_middle_of_a_pause_heals_it() {
    for by in both_ways() {
        for dropped in [false, true] {
            let host = GroupHost::start("n1", SPINNER, by);
            let run = run(
                &[plan("pause", "one", at(0), 50_000)],
                &[&host],
                DURATION_NS,
            );
            injected(next(&run.notices));
            assert_eq!(run.engine.active(), ["pause n1"]);
            assert_eq!(host.cpu_used_ns(100), 0);
            let asked_ns = now();
            let notices = run.notices;
            if dropped {
                drop(run.engine);
            } else {
                run.engine.stop();
                assert!(run.engine.active().is_empty());
                assert!(run.engine.trigger(TriggerEvent::Acquired, None).is_empty());
                run.engine.stop();
            }
            println!("{by:?}: stopped in {} µs", (now() - asked_ns) / 1000);
            assert!(host.cpu_used_ns(200) > 0, "{by:?}: it runs again");
            let end = healed(
                notices
                    .try_recv()
                    .expect("it was sent before stop returned"),
            );
            assert!(
                !end.proven && end.receipt.ends_with("cut short by the end of the run"),
                "{end:?}"
            );
            assert!(notices.try_recv().is_err());
        }
    }
}

#[test]
fn a_promised_firing_that_never_became_due_is_reported() {
    let host = GroupHost::start("c1", SLEEPERS, By::Sigstop);
    let plans = [plan(
        "pause",
        "holder",
        on(TriggerEvent::Acquired, 5000),
        50,
    )];
    let run = run(&plans, &[&host], DURATION_NS);
    let caused = run.engine.trigger(TriggerEvent::Acquired, Some("c1"));
    run.engine.stop();
    let notice = skipped(run.notices.try_recv().expect("sent before stop returned"));
    assert_eq!(notice.id, caused[0].id);
    assert!(notice.receipt.contains("ended before"), "{notice:?}");
}

#[test]
fn a_target_that_dies_while_paused_fails_at_once_and_blocks_nothing() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SLEEPERS, by);
        let run = run(
            &[plan("pause", "one", at(0), 50_000)],
            &[&host],
            DURATION_NS,
        );
        injected(next(&run.notices));
        killpg(host.group(), Signal::SIGKILL).expect("sent");
        let end = failed(next(&run.notices));
        println!("{by:?}: {}", end.receipt);
        assert!(end.receipt.contains("died while it was stopped"), "{end:?}");
        assert!(!end.proven && run.engine.active().is_empty());
    }
}

#[test]
fn a_host_under_one_fault_is_not_given_a_second() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    let other = GroupHost::start("n2", SLEEPERS, By::Sigstop);
    let plans = [
        plan("pause", "node:n1", at(0), 50_000),
        plan("pause", "all", on(TriggerEvent::Acquired, 0), 50),
        plan("crash", "node:n1", on(TriggerEvent::BeforeWrite, 0), 50),
        plan("pause", "node:n2", on(TriggerEvent::LeaderChanged, 0), 50),
    ];
    let run = run(&plans, &[&host, &other], DURATION_NS);
    let trigger = |event| assert_eq!(run.engine.trigger(event, None).len(), 1);
    assert_eq!(injected(next(&run.notices)).hosts, ["n1"]);
    trigger(TriggerEvent::Acquired);
    let overlapping = skipped(next(&run.notices));
    assert_eq!(overlapping.receipt, "n1 is already under fault 1 (pause)");
    assert_eq!(overlapping.hosts, ["n1", "n2"]);
    trigger(TriggerEvent::BeforeWrite);
    assert_eq!(skipped(next(&run.notices)).kind, "crash");
    // Twice: a host is free again as soon as its healing is reported.
    for _ in 0..2 {
        trigger(TriggerEvent::LeaderChanged);
        assert_eq!(injected(next(&run.notices)).hosts, ["n2"]);
        assert!(healed(next(&run.notices)).proven);
    }
    run.engine.stop();
    assert_eq!(healed(next(&run.notices)).hosts, ["n1"]);
}

#[test]
fn a_panic_in_the_world_is_reported_and_the_engine_goes_on() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    let plans = [
        plan("pause", "leader", at(0), 50),
        plan("pause", "one", on(TriggerEvent::Acquired, 0), 50),
    ];
    let run = run(&plans, &[&host], DURATION_NS);
    let event = failed(next(&run.notices));
    assert!(
        event.receipt.contains("panicked: the world is broken"),
        "{event:?}"
    );
    assert_eq!(run.engine.trigger(TriggerEvent::Acquired, None).len(), 1);
    injected(next(&run.notices));
    assert!(healed(next(&run.notices)).proven);
}

#[test]
fn a_panic_while_a_pause_is_in_force_heals_it() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SPINNER, by);
        let run = run(&[plan("pause", "one", at(0), 1500)], &[&host], DURATION_NS);
        injected(next(&run.notices));
        host.panics.store(true, Ordering::SeqCst);
        let event = failed(next(&run.notices));
        assert!(
            event.receipt.contains("panicked: the tree fell over"),
            "{event:?}"
        );
        assert_eq!(event.hosts, ["n1"]);
        assert!(host.cpu_used_ns(200) > 0, "{by:?}: it runs again");
        assert!(run.engine.active().is_empty());
    }
}

#[test]
fn a_failed_restart_is_reported() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    *host.restart_error.lock().expect("no panic") = Some(io::Error::other("the port is taken"));
    let run = run(&[plan("crash", "one", at(0), 50)], &[&host], DURATION_NS);
    injected(next(&run.notices));
    let event = failed(next(&run.notices));
    assert!(event.receipt.contains("the port is taken"), "{event:?}");
}

#[test]
fn a_schedule_of_other_plans_is_refused() {
    let plans = [
        plan("pause", "one", at(0), 50),
        plan("pause", "holder", on(TriggerEvent::Acquired, 0), 50),
    ];
    let schedule = Schedule::draw(1, &plans, DURATION_NS).expect("it can be drawn");
    let start = |plans: &[FaultPlan]| {
        let world = Arc::new(GroupWorld(Vec::new()));
        Engine::start(&schedule, plans, world, channel().0, now, now()).map(drop)
    };
    assert!(matches!(
        start(&plans[..1]),
        Err(EngineError::Mismatch { .. })
    ));
    assert!(matches!(start(&[]), Err(EngineError::Mismatch { .. })));
    let swapped = [plans[1].clone(), plans[0].clone()];
    assert!(matches!(start(&swapped), Err(EngineError::Mismatch { .. })));
    let unknown = FaultPlan {
        kind: "meteor".to_owned(),
        target: Target::One,
        ..plans[0].clone()
    };
    assert!(matches!(start(&[unknown]), Err(EngineError::Plan(_))));
}
