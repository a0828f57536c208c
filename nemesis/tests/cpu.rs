//! `cpu` on a process that spins, and what can go wrong with it.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nemesis::fault::{FaultError, InForce, Request, find};
use nemesis::{FaultPlan, HostControl, Lasts, ParamValue, Params, Target, Trigger};
use nix::sys::signal::{Signal, killpg};
use support::{GroupHost, GroupWorld, MS, SPINNER, both_ways, now, sleep_ms, wait_for};

fn params(share: f64) -> Params {
    Params(
        [
            ("share".to_owned(), ParamValue::Share(share)),
            ("period".to_owned(), ParamValue::DurationNs(50 * MS)),
        ]
        .into(),
    )
}

fn inject(host: &Arc<GroupHost>, share: f64) -> Result<Box<dyn InForce>, FaultError> {
    let fault = (find("cpu").expect("registered").build)();
    let request = Request {
        asked_ns: None,
        now,
        params: &params(share),
        pick: 0,
        world: &GroupWorld(Vec::new()),
    };
    fault.inject(&[Arc::clone(host) as Arc<dyn HostControl>], &request)
}

/// The numbers of a receipt: share of the time for which it might run, that time and the CPU time used, in ms.
fn figures(words: &str) -> (f64, f64, f64) {
    let after = |mark: &str| {
        let rest = words
            .split_once(mark)
            .unwrap_or_else(|| panic!("{mark:?} in {words}"))
            .1;
        let number = rest.split(' ').next().expect("a word");
        number
            .parse::<f64>()
            .unwrap_or_else(|error| panic!("{number}: {error}"))
    };
    (after("run for ") / 100.0, after("% of "), after("it used "))
}

/// On a busy machine the spinner gets less than its share, and whoever stops it may be late, so each figure is
/// compared with another of the same run: it cannot have used more CPU time than it was let run for. That the
/// receipt proves the fault may take a quieter moment.
#[test]
fn a_spinner_gets_no_more_than_its_share_and_runs_freely_afterwards() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SPINNER, by);
        let proven = (0..5).any(|_| {
            let mut starved = inject(&host, 0.2).expect("it starves");
            sleep_ms(700);
            let receipt = starved.heal().expect("it goes on");
            println!("{by:?}: {}", receipt.words);
            let (share, lasted_ms, used_ms) = figures(&receipt.words);
            // Ticks of 10 ms where the kernel has no finer figures, at both ends.
            let allowed_ms = share * lasted_ms + 20.0;
            assert!(
                used_ms <= allowed_ms,
                "{used_ms} of {allowed_ms} ms: {}",
                receipt.words
            );
            assert!(host.census().first_stopped().is_none());
            receipt.proven
        });
        assert!(proven, "{by:?}: not once in five attempts");
        // Whatever else runs here, it gets more in the same time than under a share of a twentieth.
        let mut starved = inject(&host, 0.05).expect("it starves");
        let little_ns = host.cpu_used_ns(700);
        starved.heal().expect("it goes on");
        wait_for("more time", || host.cpu_used_ns(700) > 2 * little_ns);
    }
}

#[test]
fn dropping_it_ends_it() {
    let host = GroupHost::start("n1", SPINNER, both_ways()[0]);
    drop(inject(&host, 0.1).expect("it starves"));
    sleep_ms(100);
    assert!(host.census().first_stopped().is_none());
    assert!(host.cpu_used_ns(300) > 50 * MS);
}

#[test]
fn a_target_that_dies_meanwhile_is_a_failure_in_words() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SPINNER, by);
        let mut starved = inject(&host, 0.2).expect("it starves");
        killpg(host.group(), Signal::SIGKILL).expect("it lives");
        sleep_ms(200);
        let error = starved.heal().expect_err("nothing is proven").to_string();
        assert!(error.contains("n1: "), "{error}");
    }
}

#[test]
fn a_host_that_does_not_stop_is_refused_and_left_running() {
    let host = GroupHost::start("n1", SPINNER, support::By::Sigstop);
    host.deaf.store(true, Ordering::SeqCst);
    let error = inject(&host, 0.2).err().expect("it does not stop");
    assert!(error.to_string().contains("not stopped"), "{error}");
    host.deaf.store(false, Ordering::SeqCst);
    assert!(host.cpu_used_ns(300) > 20 * MS);
}

#[test]
fn shares_and_periods_that_make_no_sense_are_refused() {
    let plan = |params: Params| FaultPlan {
        kind: "cpu".to_owned(),
        target: Target::Leader,
        trigger: Trigger::At { at_ns: 0 },
        lasts: Some(Lasts::Fixed { ns: MS }),
        params,
    };
    assert!(plan(params(0.5)).check(1, MS).is_ok());
    for share in [0.0, 1.0] {
        let error = plan(params(share)).check(1, MS).expect_err("no share");
        assert!(error.to_string().contains("`share` between"), "{error}");
    }
    let short = Params([("period".to_owned(), ParamValue::DurationNs(MS))].into());
    let error = plan(short).check(1, MS).expect_err("too short").to_string();
    assert!(error.contains("at least 10 ms"), "{error}");
}
