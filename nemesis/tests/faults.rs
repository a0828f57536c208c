//! `pause` and `crash` on real process trees, and everything that can go wrong with them.

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nemesis::fault::{FaultError, InForce, Request, find};
use nemesis::{HostControl, Params};
use nix::sys::signal::{Signal, killpg};
use support::{
    By, GroupHost, GroupWorld, HELPER, HELPER_THREADS, MS, SLEEPERS, SPINNER, both_ways, now,
    sleep_ms, wait_for,
};

fn inject(
    kind: &str,
    hosts: &[&Arc<GroupHost>],
    asked_ms: u64,
) -> Result<Box<dyn InForce>, FaultError> {
    let fault = (find(kind).expect("registered").build)();
    let hosts: Vec<Arc<dyn HostControl>> = hosts
        .iter()
        .map(|host| Arc::clone(host) as Arc<dyn HostControl>)
        .collect();
    let request = Request {
        asked_ns: Some(asked_ms * MS),
        now,
        params: &Params::default(),
        pick: 0,
        world: &GroupWorld(Vec::new()),
    };
    fault.inject(&hosts, &request)
}

/// The error of an injection that must fail, and that it took less than three seconds.
fn refused(kind: &str, host: &Arc<GroupHost>) -> String {
    let started_ns = now();
    let error = match inject(kind, &[host], 100) {
        Ok(in_force) => panic!("it must fail: {}", in_force.words()),
        Err(error) => error.to_string(),
    };
    assert!(now() - started_ns < 3000 * MS, "it hung: {error}");
    error
}

#[test]
fn the_helpers_own_threads_confirm_the_measured_edges() {
    for by in both_ways() {
        let host = GroupHost::start("c1", HELPER, by);
        let mut pause = inject("pause", &[&host], 300).expect("it stops");
        let stopped_ns = pause.since_ns();
        sleep_ms(300);
        let receipt = pause.heal().expect("it goes on");
        println!("{by:?}: {}", receipt.words);
        assert!(receipt.proven, "{}", receipt.words);
        let mut covered = [false; HELPER_THREADS];
        while covered.contains(&false) {
            let (thread, from_ns, to_ns) = host.next_gap(5000).expect("each thread has its gap");
            // A thread's last look before the stop and its first after it enclose what was measured.
            if from_ns <= stopped_ns && to_ns >= receipt.lifted_ns {
                covered[thread] = true;
                let late_us = (to_ns - receipt.lifted_ns) / 1000;
                let early_us = (stopped_ns - from_ns) / 1000;
                println!(
                    "  thread {thread}: last ran {early_us} µs before the confirmed stop, again {late_us} µs after the lift"
                );
            }
        }
    }
}

#[test]
fn spinning_and_sleeping_trees_stop_and_go_on() {
    for by in both_ways() {
        for script in [SPINNER, SLEEPERS] {
            let host = GroupHost::start("n1", script, by);
            let mut pause = inject("pause", &[&host], 100).expect("it stops");
            assert_eq!(host.cpu_used_ns(50), 0, "{by:?}: stopped");
            sleep_ms(50);
            let receipt = pause.heal().expect("it goes on");
            println!("{by:?}: {}", receipt.words);
            assert!(receipt.proven, "{}", receipt.words);
            if script == SPINNER {
                assert!(host.cpu_used_ns(200) > 0, "{by:?}: it runs again");
            }
            assert!(host.census().first_stopped().is_none());
        }
    }
}

#[test]
fn a_pause_of_several_hosts_has_one_receipt_for_all() {
    for by in both_ways() {
        let one = GroupHost::start("n1", SPINNER, by);
        let two = GroupHost::start("n2", SLEEPERS, by);
        let mut pause = inject("pause", &[&one, &two], 60).expect("both stop");
        assert_eq!(one.cpu_used_ns(60) + two.cpu_used_ns(1), 0);
        let receipt = pause.heal().expect("both go on");
        assert!(receipt.proven, "{}", receipt.words);
        assert!(receipt.words.contains("n1: ") && receipt.words.contains("; n2: "));
        assert!(
            receipt.words.contains("3 processes and 3 threads"),
            "{}",
            receipt.words
        );
    }
}

#[test]
fn when_one_of_several_hosts_cannot_be_stopped_the_others_go_on() {
    for by in both_ways() {
        let good = GroupHost::start("n1", SPINNER, by);
        let dead = GroupHost::start("n2", SLEEPERS, by);
        dead.kill_all().expect("killed");
        wait_for("its end", || dead.tree().is_empty());
        let error = inject("pause", &[&good, &dead], 100)
            .map(drop)
            .expect_err("n2 is dead");
        assert!(
            error
                .to_string()
                .starts_with("n2: expected a running application"),
            "{error}"
        );
        assert!(good.cpu_used_ns(200) > 0, "{by:?}: n1 runs");
    }
}

#[test]
fn a_pause_that_is_too_short_is_not_proven() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SLEEPERS, by);
        let mut pause = inject("pause", &[&host], 10_000).expect("it stops");
        sleep_ms(20);
        let receipt = pause.heal().expect("it goes on");
        assert!(!receipt.proven);
        assert!(
            receipt.words.contains("shorter than nine tenths"),
            "{}",
            receipt.words
        );
    }
}

#[test]
fn a_dropped_pause_lets_its_host_go_on() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SPINNER, by);
        drop(inject("pause", &[&host], 10_000).expect("it stops"));
        assert!(host.cpu_used_ns(200) > 0, "{by:?}");
    }
}

#[test]
fn whoever_continues_a_stopped_host_spoils_the_proof() {
    let host = GroupHost::start("n1", SPINNER, By::Sigstop);
    let mut pause = inject("pause", &[&host], 200).expect("it stops");
    killpg(host.group(), Signal::SIGCONT).expect("sent");
    let error = pause.heal().expect_err("it ran").to_string();
    assert!(error.contains("ended before it was lifted"), "{error}");

    let mut pause = inject("pause", &[&host], 300).expect("it stops");
    killpg(host.group(), Signal::SIGCONT).expect("sent");
    wait_for("some work of its", || host.cpu_used_ns(5) > 0);
    killpg(host.group(), Signal::SIGSTOP).expect("sent");
    wait_for("its second stop", || {
        host.census().first_unstopped().is_none()
    });
    sleep_ms(300);
    let receipt = pause.heal().expect("it was stopped at both edges");
    assert!(!receipt.proven, "{}", receipt.words);
    assert!(
        receipt.words.contains("of CPU time used while stopped"),
        "{}",
        receipt.words
    );
}

#[test]
fn whoever_thaws_a_frozen_host_spoils_the_proof() {
    if !both_ways().contains(&By::Freezer) {
        return;
    }
    let host = GroupHost::start("n1", SPINNER, By::Freezer);
    let mut pause = inject("pause", &[&host], 200).expect("it stops");
    let switch = host.cgroup().expect("it has one").join("cgroup.freeze");
    std::fs::write(switch, "0").expect("thawed");
    let error = pause.heal().expect_err("it ran").to_string();
    assert!(error.contains("frozen 0"), "{error}");
}

#[test]
fn a_target_that_dies_while_it_is_paused_is_a_failure_in_words() {
    for by in both_ways() {
        let host = GroupHost::start("c2", SLEEPERS, by);
        let mut pause = inject("pause", &[&host], 10_000).expect("it stops");
        assert!(pause.check().is_ok());
        killpg(host.group(), Signal::SIGKILL).expect("sent");
        wait_for("the end of all", || host.tree().is_empty());
        assert!(pause.check().is_err());
        let error = pause.heal().expect_err("it died").to_string();
        println!("{by:?}: {error}");
        assert!(
            error.starts_with("c2: 3 of 3 died while it was stopped"),
            "{error}"
        );
    }
}

#[test]
fn an_empty_tree_is_a_failure_in_words() {
    for by in both_ways() {
        for kind in ["pause", "crash"] {
            let host = GroupHost::start("n1", SLEEPERS, by);
            host.kill_all().expect("killed");
            wait_for("its end", || host.tree().is_empty());
            let error = refused(kind, &host);
            assert!(error.contains("found no process"), "{error}");
            assert_eq!(host.restarts.load(Ordering::SeqCst), 0);
        }
    }
}

#[test]
fn a_stop_that_does_nothing_is_not_taken_for_a_pause() {
    let host = GroupHost::start("n1", SPINNER, By::Sigstop);
    host.deaf.store(true, Ordering::SeqCst);
    let error = refused("pause", &host);
    println!("{error}");
    assert!(
        error.contains("was not confirmed within 1000 ms"),
        "{error}"
    );
    assert!(
        error.contains("no freezer: the host has no cgroup"),
        "{error}"
    );
    host.deaf.store(false, Ordering::SeqCst);
}

#[test]
fn a_process_outside_its_hosts_cgroup_is_not_taken_for_frozen() {
    if !both_ways().contains(&By::Freezer) {
        return;
    }
    let host = GroupHost::start("n1", SPINNER, By::Freezer);
    let own = nemesis::mechanism::cgroup::own_directory().expect("it was used just now");
    std::fs::write(own.join("cgroup.procs"), host.group().to_string()).expect("moved out");
    let error = refused("pause", &host);
    assert!(error.contains("is not in the host's cgroup"), "{error}");
}

#[test]
fn a_crash_kills_everything_and_starts_it_again() {
    for by in both_ways() {
        let host = GroupHost::start("n1", SLEEPERS, by);
        let before = host.tree();
        let mut crash = inject("crash", &[&host], 50).expect("it dies");
        assert!(host.tree().is_empty());
        sleep_ms(50);
        let receipt = crash.heal().expect("it comes back");
        println!("{by:?}: {}", receipt.words);
        assert!(receipt.proven, "{}", receipt.words);
        assert!(
            before
                .iter()
                .all(|pid| receipt.words.contains(&pid.to_string()))
        );
        wait_for("its processes", || host.tree().len() == 3);
        drop(crash);
        assert_eq!(host.restarts.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_host_that_is_never_started_again_is_still_proven_to_have_crashed() {
    let host = GroupHost::start("c1", SLEEPERS, By::Sigstop);
    let never = io::Error::new(
        io::ErrorKind::Unsupported,
        "a worker is replaced, not restarted",
    );
    *host.restart_error.lock().expect("no panic") = Some(never);
    let mut crash = inject("crash", &[&host], 10).expect("it dies");
    let receipt = crash.heal().expect("no failure");
    assert!(receipt.proven);
    assert!(
        receipt
            .words
            .ends_with("not started again: a worker is replaced, not restarted")
    );
}

#[test]
fn a_failed_restart_is_a_failure_in_words() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    *host.restart_error.lock().expect("no panic") = Some(io::Error::other("the port is taken"));
    let mut crash = inject("crash", &[&host], 10).expect("it dies");
    let error = crash.heal().expect_err("it stays down").to_string();
    assert!(
        error.contains("could not be started again: the port is taken"),
        "{error}"
    );
}

#[test]
fn a_dropped_crash_starts_its_host_again() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    drop(inject("crash", &[&host], 10_000).expect("it dies"));
    assert_eq!(host.restarts.load(Ordering::SeqCst), 1);
    wait_for("its processes", || host.tree().len() == 3);
}

#[test]
fn a_kill_that_does_nothing_is_not_taken_for_a_crash() {
    let host = GroupHost::start("n1", SLEEPERS, By::Sigstop);
    host.deaf.store(true, Ordering::SeqCst);
    let error = inject("crash", &[&host], 10)
        .map(drop)
        .expect_err("it lives")
        .to_string();
    assert!(
        error.contains("the end of all its processes was not confirmed within 5000 ms"),
        "{error}"
    );
    assert_eq!(host.restarts.load(Ordering::SeqCst), 0, "no twin");
}

/// Long: run it alone with `cargo test -p nemesis --test faults -- --ignored oversubscribed --nocapture`.
#[test]
#[ignore = "takes half a minute and all processors"]
fn every_pause_on_an_oversubscribed_machine_is_proven() {
    /// Spinning hosts beside the one that is paused.
    const HOGS: usize = 4;
    for by in both_ways() {
        let hogs: Vec<_> = (0..HOGS)
            .map(|index| GroupHost::start(&format!("hog{index}"), SPINNER, By::Sigstop))
            .collect();
        let host = GroupHost::start("c1", HELPER, by);
        let mut confirmed_us = Vec::new();
        for round in 0..200 {
            let asked_ns = now();
            let mut pause = inject("pause", &[&host], 20)
                .unwrap_or_else(|error| panic!("{by:?}, round {round}: {error}"));
            confirmed_us.push((pause.since_ns() - asked_ns) / 1000);
            sleep_ms(20);
            let receipt = pause.heal().expect("it goes on");
            assert!(receipt.proven, "{by:?}, round {round}: {}", receipt.words);
            sleep_ms(20);
        }
        confirmed_us.sort_unstable();
        let [median, p99, most] = [100, 198, 199].map(|rank| confirmed_us[rank]);
        println!("{by:?}: confirmed after {median} µs (median), {p99} µs (p99), {most} µs (most)");
        drop(hogs);
    }
}
