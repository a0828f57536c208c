//! The worker protocol: JSON lines on the worker's standard input and output. See `workloads/PROTOCOL.md`.
//!
//! A controller must take any line from a worker without failing itself: a bad line ends that worker.

use std::borrow::Cow;

use checkers::history::{Completion, Function, Ns, Outcome};
use serde::{Deserialize, Serialize};

use crate::discipline::Discipline;
use crate::lock::LockConfig;
use crate::resource::ResourceConfig;

/// Version of the protocol. A worker answers `hello` with its own; they must be equal.
pub const PROTOCOL_VERSION: u32 = 1;

/// First line to a worker: what its clients are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// [`PROTOCOL_VERSION`] of the controller.
    pub protocol: u32,
    /// Registry name of the lock.
    pub lock: String,
    /// How to reach it.
    pub lock_config: LockConfig,
    /// Registry name of the resource; absent when the workload has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How to reach it.
    pub resource_config: ResourceConfig,
    /// What holders do about a lock that may be gone.
    pub discipline: Discipline,
}

/// One step for one logical client. A client that was not named before is opened by its first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step<'a> {
    /// Number of the operation; its completion carries it.
    pub op: u64,
    /// The logical client.
    pub client: u32,
    /// What to do.
    #[serde(rename = "do")]
    pub f: Function,
    /// The lock to acquire, release, or act under.
    #[serde(borrow)]
    pub lock: Cow<'a, str>,
    /// The register (read and write).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// The element to add (write).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<u64>,
}

/// Any line to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToWorker<'a> {
    /// A step.
    #[serde(borrow)]
    Step(Step<'a>),
    /// The first line.
    Setup {
        /// The set-up.
        setup: Box<Setup>,
    },
    /// Retire a logical client: it gives up what it holds and is not used again.
    Close {
        /// The logical client.
        close: u32,
    },
}

/// Any line from a worker: exactly one of `hello`, `ready`, `refused`, `lost`, or a completion (`op` and `type`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromWorker {
    /// First line of a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hello: Option<Hello>,
    /// Answer to the set-up: steps may come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ready: bool,
    /// Answer to the set-up: it cannot be done, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Unasked: a holder could know from now on that its lock is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostLine>,
    /// The operation that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<u64>,
    /// How it ended.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Truth time before the request was sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub invoke_ns: Ns,
    /// Truth time after the answer was received.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub return_ns: Ns,
    /// See [`Completion::token`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// See [`Completion::dead_on_arrival`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead_on_arrival: bool,
    /// See [`Completion::wakes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<u64>,
    /// See [`Completion::version`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// See [`Completion::base`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// See [`Completion::holds`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// See [`Completion::renewed_ns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_ns: Option<Ns>,
    /// See [`Completion::error`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Who the worker is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The protocol version it speaks.
    pub protocol: u32,
    /// Name and version, for the run's records.
    pub worker: String,
}

/// A belief that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostLine {
    /// The logical client.
    pub client: u32,
    /// The lock.
    pub lock: String,
    /// Truth time.
    pub at_ns: Ns,
    /// What told it.
    pub why: String,
}

/// A line from a worker, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// [`FromWorker::hello`].
    Hello(Hello),
    /// [`FromWorker::ready`].
    Ready,
    /// [`FromWorker::refused`].
    Refused(String),
    /// [`FromWorker::lost`].
    Lost(LostLine),
    /// An operation ended.
    Done(Outcome, Completion),
}

impl FromWorker {
    /// The line of a completed operation.
    #[must_use]
    pub fn done(outcome: Outcome, completion: Completion) -> Self {
        let Completion {
            op,
            invoke_ns,
            return_ns,
            token,
            dead_on_arrival,
            wakes,
            version,
            base,
            holds,
            renewed_ns,
            error,
        } = completion;
        Self {
            op: Some(op),
            outcome: Some(outcome),
            invoke_ns,
            return_ns,
            token,
            dead_on_arrival,
            wakes,
            version,
            base,
            holds,
            renewed_ns,
            error,
            ..Self::default()
        }
    }
}

/// Reads one line of a worker.
///
/// # Errors
/// What is wrong with it, in words; the caller adds whose line it was.
pub fn parse(line: &[u8]) -> Result<Said, String> {
    let said: FromWorker = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match said {
        FromWorker {
            op: Some(op),
            outcome: Some(outcome),
            ..
        } => {
            if said.invoke_ns == 0 || said.return_ns < said.invoke_ns {
                return Err(format!(
                    "operation {op}: expected 0 < invoke_ns <= return_ns, found {} and {}",
                    said.invoke_ns, said.return_ns
                ));
            }
            let FromWorker {
                invoke_ns,
                return_ns,
                token,
                dead_on_arrival,
                wakes,
                version,
                base,
                ..
            } = said;
            let FromWorker {
                holds,
                renewed_ns,
                error,
                ..
            } = said;
            let completion = Completion {
                op,
                invoke_ns,
                return_ns,
                token,
                dead_on_arrival,
                wakes,
                version,
                base,
                holds,
                renewed_ns,
                error,
            };
            Ok(Said::Done(outcome, completion))
        }
        FromWorker {
            hello: Some(hello), ..
        } => Ok(Said::Hello(hello)),
        FromWorker {
            lost: Some(lost), ..
        } => Ok(Said::Lost(lost)),
        FromWorker {
            refused: Some(why), ..
        } => Ok(Said::Refused(why)),
        FromWorker { ready: true, .. } => Ok(Said::Ready),
        _ => Err("expected `hello`, `ready`, `refused`, `lost`, or `op` with `type`".to_owned()),
    }
}

fn is_zero(ns: &Ns) -> bool {
    *ns == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_survives_the_trip() {
        let completion = Completion {
            op: 7,
            invoke_ns: 10,
            return_ns: 20,
            token: Some(3),
            renewed_ns: Some(9),
            error: Some("timeout: late".into()),
            ..Completion::default()
        };
        let line =
            serde_json::to_vec(&FromWorker::done(Outcome::Info, completion.clone())).unwrap();
        assert_eq!(parse(&line), Ok(Said::Done(Outcome::Info, completion)));
    }

    #[test]
    fn rubbish_is_named_not_swallowed() {
        for (line, expected) in [
            ("hello", "expected value"),
            ("{}", "expected `hello`"),
            (r#"{"op":1,"type":"ok"}"#, "invoke_ns"),
            (
                r#"{"op":1,"type":"ok","invoke_ns":5,"return_ns":4}"#,
                "found 5 and 4",
            ),
            (
                r#"{"op":1,"type":"maybe","invoke_ns":5,"return_ns":6}"#,
                "unknown variant",
            ),
            (r#"{"ready":true,"colour":"red"}"#, "unknown field `colour`"),
        ] {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
