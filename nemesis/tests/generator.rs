//! The generator: what it draws, and the engine carrying it out on real processes.

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;

use checkers::history::{FaultEvent, FaultPhase};
use nemesis::schedule::HealPhase;
use nemesis::{
    Engine, FaultPlan, Generator, HealRhythm, Lasts, Params, Schedule, Trigger, TriggerEvent,
};
use proptest::prelude::*;
use support::{By, GroupHost, GroupWorld, MS, SLEEPERS, now, sleep_ms};

fn drawn(kind: &str, target: &str, weight: u32, lasts_ms: u64) -> FaultPlan {
    FaultPlan {
        kind: kind.to_owned(),
        target: target.parse().expect("a target"),
        trigger: Trigger::Drawn { weight },
        lasts: Some(Lasts::Fixed { ns: lasts_ms * MS }),
        params: Params::default(),
    }
}

fn generator(every_ms: (u64, u64)) -> Generator {
    Generator {
        every_min_ns: every_ms.0 * MS,
        every_max_ns: every_ms.1 * MS,
        at_most_at_once: 1,
        quiet_ns: 0,
        heal: None,
        final_heal_ns: 0,
    }
}

fn draw(seed: u64, plans: &[FaultPlan], generator: &Generator, duration_ms: u64) -> Schedule {
    Schedule::draw_with(seed, plans, Some(generator), duration_ms * MS).expect("it can be drawn")
}

/// Should this fail, stored seeds no longer mean what they meant: find out why before touching the figures.
#[test]
fn the_draws_of_seed_42_are_what_they_always_were() {
    let plans = [
        drawn("pause", "holder", 3, 400),
        drawn("crash", "one", 2, 1000),
        drawn("pause", "leader", 1, 2000),
    ];
    let schedule = draw(42, &plans, &generator((1000, 3000)), 12_000);
    let firings = &schedule.drawn.expect("a generator").firings;
    let firings: Vec<(u64, Vec<usize>)> = firings
        .iter()
        .map(|one| {
            let order = one.choices.iter().map(|choice| choice.fault);
            (one.at_ns, order.collect())
        })
        .collect();
    assert_eq!(
        firings,
        GOLDEN.map(|(at_ns, order)| (at_ns, order.to_vec()))
    );
}

const GOLDEN: [(u64, [usize; 3]); 6] = [
    (1_807_082_965, [0, 1, 2]),
    (4_344_974_251, [0, 1, 2]),
    (5_750_983_123, [0, 1, 2]),
    (7_119_184_765, [0, 1, 2]),
    (8_227_445_846, [1, 0, 2]),
    (10_166_267_236, [2, 0, 1]),
];

#[test]
fn faults_come_as_often_as_their_weights_say_also_when_one_cannot_apply() {
    let plans = [
        drawn("pause", "holder", 6, 1),
        drawn("pause", "client", 3, 1),
        drawn("pause", "leader", 1, 1),
        drawn("pause", "one", 0, 1),
    ];
    let schedule = draw(1, &plans, &generator((10, 10)), 90_000);
    let firings = schedule.drawn.expect("a generator").firings;
    let first_of = |fits: &dyn Fn(usize) -> bool| {
        let mut counts = [0_u32; 4];
        for firing in &firings {
            let choice = firing.choices.iter().find(|choice| fits(choice.fault));
            counts[choice.expect("one fits").fault] += 1;
        }
        counts.map(|count| f64::from(count) / firings.len() as f64)
    };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02, "{found}");
    let all = first_of(&|_| true);
    [0.6, 0.3, 0.1, 0.0]
        .into_iter()
        .zip(all)
        .for_each(|(expected, found)| close(found, expected));
    // Nobody holds: its weight is 0 at that moment, and the others share what is left.
    let without = first_of(&|fault| fault != 0);
    [0.0, 0.75, 0.25, 0.0]
        .into_iter()
        .zip(without)
        .for_each(|(expected, found)| close(found, expected));
}

#[test]
fn heal_phases_come_at_their_times_and_nothing_else_strikes_in_them() {
    let every = FaultPlan {
        trigger: Trigger::Every {
            every_ns: 1000 * MS,
            first_ns: 0,
        },
        ..drawn("pause", "one", 1, 100)
    };
    let plans = [drawn("crash", "one", 1, 5000), every];
    let with = Generator {
        heal: Some(HealRhythm {
            every_ns: 10_000 * MS,
            lasts_ns: 3_000 * MS,
        }),
        final_heal_ns: 5_000 * MS,
        ..generator((500, 1500))
    };
    let schedule = draw(9, &plans, &with, 40_000);
    let phase = |from_s: u64, to_s: u64| HealPhase {
        from_ns: from_s * 1000 * MS,
        to_ns: to_s * 1000 * MS,
    };
    let phases = [phase(10, 13), phase(20, 23), phase(30, 33), phase(35, 40)];
    assert_eq!(schedule.heal, phases);
    let timed = schedule.timed.iter().map(|one| one.at_ns);
    let drawn = schedule.drawn.iter().flat_map(|drawn| &drawn.firings);
    let mut count = 0;
    for at_ns in timed.chain(drawn.map(|one| one.at_ns)) {
        let healing = phases
            .iter()
            .find(|one| (one.from_ns..one.to_ns).contains(&at_ns));
        assert_eq!(healing, None, "{at_ns}");
        count += 1;
    }
    assert!(count > 30, "{count}");
}

#[test]
fn what_cannot_be_drawn_is_refused_with_what_to_do() {
    let good = generator((1000, 2000));
    let plans = [drawn("crash", "one", 1, 10)];
    let heal = |every_ns, lasts_ns| Generator {
        heal: Some(HealRhythm { every_ns, lasts_ns }),
        ..good.clone()
    };
    for (bad, says) in [
        (generator((0, 5)), "expected a time above zero"),
        (generator((5, 4)), "a range of them"),
        (
            Generator {
                every_min_ns: 1,
                ..good.clone()
            },
            "is the unit right?",
        ),
        (
            Generator {
                at_most_at_once: 0,
                ..good.clone()
            },
            "0 faults at once",
        ),
        (heal(5, 5), "with time in between"),
        (
            Generator {
                final_heal_ns: 60_000 * MS,
                ..good.clone()
            },
            "nothing ever strikes",
        ),
    ] {
        let error = Schedule::draw_with(1, &plans, Some(&bad), 60_000 * MS).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
    let none = [drawn("crash", "one", 0, 10)];
    let error = Schedule::draw_with(1, &none, Some(&good), MS).expect_err("no weight");
    assert!(error.to_string().contains("weight above 0"), "{error}");
    let error = Schedule::draw(1, &plans, MS).expect_err("no generator");
    assert!(error.to_string().contains("nothing draws it"), "{error}");
}

proptest! {
    // A failing case is printed in full; it belongs into a test of its own, not into a file beside.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// If each time the first choice applies, the plan itself keeps every limit.
    #[test]
    fn plans_keep_the_limits_and_survive_json(
        seed: u64,
        every_ms in (100..2000_u64, 0..2000_u64),
        at_most_at_once in 1..4_u32,
        quiet_ms in 0..1500_u64,
        heal_ms in proptest::option::of((2..9000_u64, 1..9000_u64)),
        final_heal_ms in 0..9000_u64,
        lasts_ms in prop::collection::vec(1..4000_u64, 1..5),
    ) {
        let duration_ms = 30_000;
        let generator = Generator {
            at_most_at_once,
            quiet_ns: quiet_ms * MS,
            heal: heal_ms.map(|(one, other)| HealRhythm {
                every_ns: (one.max(other) + 1) * MS,
                lasts_ns: one.min(other) * MS,
            }),
            final_heal_ns: final_heal_ms * MS,
            ..generator((every_ms.0, every_ms.0 + every_ms.1))
        };
        let plans: Vec<FaultPlan> = lasts_ms
            .iter()
            .map(|lasts_ms| drawn("pause", "one", 2, *lasts_ms))
            .collect();
        let schedule = draw(seed, &plans, &generator, duration_ms);
        prop_assert_eq!(&schedule, &draw(seed, &plans, &generator, duration_ms));
        let text = serde_json::to_string(&schedule).expect("serialises");
        prop_assert_eq!(&serde_json::from_str::<Schedule>(&text).expect("reads back"), &schedule);
        prop_assert_eq!(schedule.belongs_to(&plans), Ok(()));

        let mut changes: Vec<u64> = Vec::new();
        let mut ends: Vec<u64> = Vec::new();
        for firing in &schedule.drawn.as_ref().expect("a generator").firings {
            let at_ns = firing.at_ns;
            prop_assert!(at_ns < duration_ms * MS);
            prop_assert_eq!(firing.choices.len(), plans.len());
            for phase in &schedule.heal {
                prop_assert!(!(phase.from_ns..phase.to_ns).contains(&at_ns));
            }
            let in_force = ends.iter().filter(|end_ns| **end_ns > at_ns).count();
            prop_assert!(in_force < at_most_at_once as usize);
            for change_ns in changes.iter().filter(|ns| **ns <= at_ns) {
                prop_assert!(at_ns - change_ns >= quiet_ms * MS);
            }
            let healed_ns = schedule.heal.iter().map(|phase| phase.from_ns).find(|ns| *ns > at_ns);
            let lasts_ns = firing.choices[0].lasts_ns.expect("pauses last");
            let end_ns = (at_ns + lasts_ns).min(healed_ns.unwrap_or(u64::MAX));
            changes.extend([at_ns, end_ns]);
            ends.push(end_ns);
        }
    }
}

/// Carries a drawn schedule out on two hosts until its end, and returns all that was reported. Truth times
/// of the start and of the events count from the start.
fn carry_out(plans: &[FaultPlan], generator: &Generator, duration_ms: u64) -> Vec<FaultEvent> {
    let hosts = ["n1", "n2"].map(|name| GroupHost::start(name, SLEEPERS, By::Sigstop));
    let schedule = draw(3, plans, generator, duration_ms);
    let world = Arc::new(GroupWorld(hosts.iter().map(Arc::clone).collect()));
    let (sender, notices) = channel();
    let start_ns = now();
    let engine = Engine::start(&schedule, plans, world, sender, now, start_ns).expect("it starts");
    sleep_ms(duration_ms);
    assert!(
        engine
            .trigger(TriggerEvent::Acquired, Some("n1"))
            .is_empty()
    );
    engine.stop();
    for host in &hosts {
        assert!(host.census().first_stopped().is_none(), "all goes on");
    }
    drop(engine);
    let events = notices.iter().map(|notice| {
        let mut event = notice.into_event();
        event.at_ns = event.at_ns.saturating_sub(start_ns);
        event.requested_ns = event.requested_ns.saturating_sub(start_ns);
        event
    });
    events.collect()
}

/// Beginning and end of each fault that was in force, in the order of their beginnings.
fn in_force(events: &[FaultEvent]) -> Vec<(u64, u64)> {
    let begun = events
        .iter()
        .filter(|event| event.phase == FaultPhase::Injected);
    begun
        .map(|begun| {
            let end = events
                .iter()
                .find(|event| event.id == begun.id && event.phase == FaultPhase::Healed);
            let end = end.unwrap_or_else(|| panic!("{begun:?} was healed"));
            assert!(end.proven, "{}", end.receipt);
            (begun.requested_ns, end.at_ns)
        })
        .collect()
}

#[test]
fn a_fault_that_cannot_apply_has_no_weight_and_the_next_in_the_draw_strikes() {
    // Nobody holds anything in this world.
    let plans = [
        drawn("pause", "holder", 1000, 50),
        drawn("pause", "node:n1", 1, 50),
    ];
    let events = carry_out(&plans, &generator((300, 300)), 1300);
    assert_eq!(in_force(&events).len(), 4, "{events:?}");
    for event in &events {
        assert_eq!(
            (event.target.as_str(), event.hosts.as_slice()),
            ("node:n1", &["n1".to_owned()][..])
        );
    }
    let words = "drawn after pause of holder (nobody holds a lock)";
    assert!(
        events.iter().any(|event| event.receipt.contains(words)),
        "{events:?}"
    );

    let events = carry_out(&plans[..1], &generator((300, 300)), 700);
    let phases: Vec<_> = events.iter().map(|event| event.phase).collect();
    assert_eq!(phases, [FaultPhase::Skipped; 2]);
    let words = "nothing that can be drawn applies now: pause of holder (nobody holds a lock)";
    assert_eq!(events[0].receipt, words);
}

#[test]
fn faults_are_composed_up_to_the_limit_and_the_quiet_time_is_kept() {
    let plans = [drawn("pause", "one", 1, 700)];
    let two = Generator {
        at_most_at_once: 2,
        quiet_ns: 100 * MS,
        ..generator((50, 50))
    };
    let spans = in_force(&carry_out(&plans, &two, 4000));
    assert!(spans.len() >= 4, "{spans:?}");
    let mut together = 0;
    for (index, (begun_ns, _)) in spans.iter().enumerate() {
        let before = &spans[..index];
        let others = before
            .iter()
            .filter(|(_, end_ns)| end_ns > begun_ns)
            .count();
        assert!(others < 2, "{spans:?}");
        together = together.max(others + 1);
        // A fault may end while the next is being injected, but not begin.
        for (other_ns, _) in before {
            assert!(begun_ns - other_ns >= 100 * MS, "{spans:?}");
        }
    }
    assert_eq!(together, 2, "{spans:?}");
}

#[test]
fn a_heal_phase_ends_what_is_in_force_and_lets_nothing_begin() {
    let plans = [drawn("pause", "one", 1, 60_000)];
    let heals = Generator {
        heal: Some(HealRhythm {
            every_ns: 1000 * MS,
            lasts_ns: 500 * MS,
        }),
        ..generator((100, 100))
    };
    let events = carry_out(&plans, &heals, 3000);
    let spans = in_force(&events);
    assert_eq!(spans.len(), 3, "{events:?}");
    for (begun_ns, end_ns) in spans {
        let phase = begun_ns / (1000 * MS);
        // A phase begins each second, and is half a second long.
        let from_ns = (phase + 1) * 1000 * MS;
        assert!(
            phase == 0 || begun_ns % (1000 * MS) >= 500 * MS,
            "{begun_ns}"
        );
        assert!(
            (from_ns..from_ns + 400 * MS).contains(&end_ns),
            "{begun_ns} {end_ns}"
        );
    }
    let words = "until everything is healed";
    let begun = events
        .iter()
        .filter(|event| event.phase == FaultPhase::Injected);
    assert_eq!(
        begun.filter(|event| event.receipt.contains(words)).count(),
        3
    );
}
