//! The clock faults on a host whose application is a program of ours: what their receipts prove, and what
//! they do not.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nemesis::clock::HostClock;
use nemesis::clock::launch::Clocked;
use nemesis::fault::{self, Request};
use nemesis::receipt::Receipt;
use nemesis::{HostControl, ParamValue, Params, Target, World};

use crate::subject::{now_ns, subject};

/// A host with a ticking program.
struct TestHost {
    clock: Option<HostClock>,
    pid: i32,
    /// Ends the process when dropped.
    _process: Mutex<Clocked>,
    /// A process that is said to be the host's too.
    stranger: Option<i32>,
}

impl TestHost {
    fn start() -> Self {
        let clock = HostClock::new("n1").with_canary(subject("").get_program().into());
        let process = clock
            .spawn(subject("tick").arg("30").stdout(Stdio::null()))
            .expect("started");
        Self {
            clock: Some(clock),
            pid: process.pid,
            _process: Mutex::new(process),
            stranger: None,
        }
    }
}

impl HostControl for TestHost {
    fn name(&self) -> &str {
        "n1"
    }

    fn tree(&self) -> Vec<i32> {
        [self.pid].into_iter().chain(self.stranger).collect()
    }

    fn signal_all(&self, _: i32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn kill_all(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn restart(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn clock(&self) -> Option<&HostClock> {
        self.clock.as_ref()
    }

    fn cgroup(&self) -> Option<&Path> {
        None
    }
}

/// Nobody else is there.
struct Nobody;

impl World for Nobody {
    fn resolve(
        &self,
        _: &Target,
        _: Option<&str>,
        _: u64,
    ) -> Result<Vec<Arc<dyn HostControl>>, String> {
        Ok(Vec::new())
    }
}

/// Injects a fault for that long.
fn strike(
    host: TestHost,
    kind: &str,
    values: &[(&str, ParamValue)],
    lasts: Duration,
) -> Result<Receipt, String> {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let params = Params(values.collect());
    let spec = fault::find(kind).expect("registered");
    (spec.check)(&Target::One, &params)?;
    let request = Request {
        asked_ns: None,
        now: now_ns,
        params: &params,
        pick: 0,
        world: &Nobody,
    };
    let host: Arc<dyn HostControl> = Arc::new(host);
    let mut in_force = (spec.build)()
        .inject(&[host], &request)
        .map_err(|error| error.to_string())?;
    thread::sleep(lasts);
    in_force.check().map_err(|error| error.to_string())?;
    let receipt = in_force.heal().map_err(|error| error.to_string())?;
    println!("{}", receipt.words);
    Ok(receipt)
}

fn text(text: &str) -> ParamValue {
    ParamValue::Text(text.to_owned())
}

fn word(word: &str) -> ParamValue {
    ParamValue::Word(word.to_owned())
}

const MS: u64 = 1_000_000;

#[test]
fn every_course_is_taken_and_proven() {
    let hour = ParamValue::DurationNs(3_600_000 * MS);
    let strobe = ParamValue::DurationNs(40 * MS);
    let period = ParamValue::DurationNs(1000 * MS);
    let courses: [(&str, &[(&str, ParamValue)]); 7] = [
        ("clock-rate", &[("rate", text("0.5x"))]),
        ("clock-rate", &[("rate", text("10x"))]),
        ("clock-rate", &[("rate", text("+500ppm"))]),
        (
            "clock-rate",
            &[
                ("rate", text("4x")),
                ("shape", word("ramp")),
                ("period", period.clone()),
            ],
        ),
        (
            "clock-rate",
            &[
                ("rate", text("3x")),
                ("shape", word("sine")),
                ("period", period),
            ],
        ),
        (
            "clock-offset",
            &[("by", hour.clone()), ("direction", word("backwards"))],
        ),
        ("clock-jump", &[("by", hour), ("strobe", strobe)]),
    ];
    for (kind, values) in courses {
        let receipt = strike(TestHost::start(), kind, values, Duration::from_millis(1500));
        let receipt = receipt.expect(kind);
        assert!(receipt.proven, "{}", receipt.words);
    }
}

#[test]
fn what_is_not_so_is_not_proven() {
    let rate: &[(&str, ParamValue)] = &[("rate", text("2x"))];
    let mut host = TestHost::start();
    host.stranger = Some(std::process::id().cast_signed());
    let receipt = strike(host, "clock-rate", rate, Duration::from_millis(400)).expect("healed");
    assert!(!receipt.proven && receipt.words.contains("do not live by this clock"));

    // Too short for the canary to live through anything.
    let receipt = strike(TestHost::start(), "clock-rate", rate, Duration::ZERO).expect("healed");
    assert!(!receipt.proven && receipt.words.contains("a longer fault is needed"));

    let mut host = TestHost::start();
    host.clock = None;
    let error = strike(host, "clock-rate", rate, Duration::ZERO).expect_err("refused");
    assert!(error.contains("must be started with one"), "{error}");
}
