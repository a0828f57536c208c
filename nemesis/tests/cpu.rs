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

#[test]
#[ignore = "shares of CPU time need a machine that is otherwise quiet"]
fn a_spinner_gets_its_share_and_no_more_and_runs_freely_afterwards() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SPINNER, by);
        let mut starved = inject(&host, 0.2).expect("it starves");
        let used_ns = host.cpu_used_ns(1000);
        let receipt = starved.heal().expect("it goes on");
        println!("{by:?}: {}", receipt.words);
        assert!(receipt.proven, "{}", receipt.words);
        assert!(used_ns < 350 * MS, "{used_ns} ns in 1 s");
        wait_for("full speed", || host.cpu_used_ns(200) > 50 * MS);
        assert!(host.census().first_stopped().is_none());
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
