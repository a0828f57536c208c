//! `clock-rate`: the target's own clocks run fast or slow, readings and timeouts alike, as with a bad
//! oscillator or a virtual machine that steals time.
//!
//! Healing sets the rate to 1 and keeps what the monotonic clock has gained, because it may never go back;
//! the wall clock is set right. What does not follow is listed in `nemesis::clock`.

use std::sync::Arc;

use crate::clock::RATES;
use crate::fault::skew::{self, Course};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request};
use crate::mechanism::probe;
use crate::target::ALL_FORMS;
use crate::{HostControl, Need, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "clock-rate",
    summary: "makes all clocks of the target run fast or slow: what its programs read, and how long they \
        wait (not io_uring timeouts, SO_RCVTIMEO, setitimer, TCP's own timers, programs that read the \
        processor's counter themselves)",
    targets: ALL_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check,
    layer: Layer::Clock,
    needs: &[Need::Clock],
    build: || Box::new(ClockRate),
    probe: || vec![probe::own_clock()],
};

const RATE: &str = "rate";
const SHAPE: &str = "shape";
const PERIOD: &str = "period";

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: RATE,
        kind: ParamKind::Text,
        default: None,
        summary: "Own seconds a real one, \"0.1x\" to \"10x\", or a drift such as \"+500ppm\" or \"-50ppm\".",
    },
    ParamSpec {
        name: SHAPE,
        kind: ParamKind::Word(&["steady", "ramp", "sine"]),
        default: Some("\"steady\""),
        summary: "At this rate all the time, evenly towards it over one period, or swinging between it and \
            its inverse once a period.",
    },
    ParamSpec {
        name: PERIOD,
        kind: ParamKind::Duration,
        default: None,
        summary: "With shape = \"ramp\" or \"sine\": how long that takes.",
    },
];

fn check(_: &Target, params: &Params) -> Result<(), String> {
    course(params).map(drop)
}

/// Reads `2x`, `0.25x`, `+500ppm`.
fn rate(text: &str) -> Option<f64> {
    let rate = if let Some(drift) = text.strip_suffix("ppm") {
        1.0 + drift.trim().parse::<f64>().ok()? / 1e6
    } else {
        text.strip_suffix('x')?.trim().parse().ok()?
    };
    RATES.contains(&rate).then_some(rate)
}

fn course(params: &Params) -> Result<Course, String> {
    let text = params.text(RATE);
    let rate = text.and_then(rate).ok_or_else(|| {
        let found = text.map_or("none".to_owned(), |text| format!("{text:?}"));
        format!(
            "a `rate` such as \"2x\" (from \"{}x\" to \"{}x\") or \"+500ppm\", found {found}",
            RATES.start(),
            RATES.end()
        )
    })?;
    let period = params.duration_ns(PERIOD);
    match (params.text(SHAPE), period) {
        (None | Some("steady"), None) => Ok(Course::Rate(rate)),
        (None | Some("steady"), Some(_)) => Err(
            "`period` only beside shape = \"ramp\" or \"sine\"; remove it, or write a shape".into(),
        ),
        (Some(shape), None | Some(0)) => Err(format!(
            "a `period` above zero beside shape = \"{shape}\", found none; add period = \"10s\""
        )),
        (Some("ramp"), Some(over_ns)) => Ok(Course::Ramp { to: rate, over_ns }),
        (Some(_), Some(period_ns)) => Ok(Course::Sine {
            peak: rate,
            period_ns,
        }),
    }
}

/// The fault.
struct ClockRate;

impl Fault for ClockRate {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let course = course(request.params).map_err(|expected| FaultError::Refused {
            host: hosts.first().map_or("?", |host| host.name()).to_owned(),
            what: format!("expected {expected}"),
        })?;
        skew::inject(hosts, course, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamValue;

    fn params(values: &[(&str, ParamValue)]) -> Params {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        Params(values.collect())
    }

    fn text(text: &str) -> ParamValue {
        ParamValue::Text(text.to_owned())
    }

    #[test]
    fn what_does_not_follow_is_told_to_whoever_chooses_it() {
        assert!(SPEC.summary.contains(crate::clock::NOT_SKEWED));
    }

    #[test]
    fn rates_are_read_with_their_unit_and_within_their_range() {
        assert_eq!(rate("2x"), Some(2.0));
        assert_eq!(rate("0.25 x"), Some(0.25));
        assert_eq!(rate("+500ppm"), Some(1.0005));
        assert_eq!(rate("-50ppm"), Some(0.999_95));
        for bad in ["2", "x", "0.05x", "11x", "NaNx", "-1x", "ppm", "2 ppm s"] {
            assert_eq!(rate(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_what_would_not() {
        let word = |word: &str| ParamValue::Word(word.to_owned());
        let period = ParamValue::DurationNs(1_000_000_000);
        for (bad, fragment) in [
            (params(&[]), "found none"),
            (params(&[(RATE, text("fast"))]), "found \"fast\""),
            (
                params(&[(RATE, text("2x")), (PERIOD, period.clone())]),
                "`period` only",
            ),
            (
                params(&[(RATE, text("2x")), (SHAPE, word("sine"))]),
                "add period",
            ),
        ] {
            let why = course(&bad).expect_err("refused");
            assert!(why.contains(fragment), "{why}");
        }
        let ramp = params(&[(RATE, text("2x")), (SHAPE, word("ramp")), (PERIOD, period)]);
        let expected = Course::Ramp {
            to: 2.0,
            over_ns: 1_000_000_000,
        };
        assert_eq!(course(&ramp), Ok(expected));
    }
}
