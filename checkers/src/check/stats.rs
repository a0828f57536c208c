//! Check `stats`: how much was done, how fast, and which faults were in force. It judges nothing.
//!
//! Percentiles are exact (by sorting), over operations that succeeded.

use super::{CheckSpec, Metric, MetricSpec, Report, metric};
use crate::history::{FaultPhase, Function, History, Outcome};
use crate::stats::percentile;

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "stats",
    summary: "operations, errors, latencies, faults; judges nothing",
    metrics: METRICS,
    applies: |_| true,
    run,
};

/// The figures of one function, by its name.
macro_rules! function_metrics {
    ($($f:literal),*) => {
        &[
            metric("ops", "operations", "operations invoked"),
            metric("ops_per_s", "operations/s", "operations invoked per second of the workload"),
            $(
                metric(concat!($f, "_ops"), "operations", concat!($f, " operations invoked")),
                metric(concat!($f, "_ok"), "operations", concat!($f, " operations that succeeded")),
                metric(concat!($f, "_fail"), "operations", concat!($f, " operations that definitely had no effect")),
                metric(concat!($f, "_info"), "operations", concat!($f, " operations of unknown outcome")),
                metric(concat!($f, "_p50_ms"), "ms", concat!("median latency of ", $f, " operations that succeeded; absent without one")),
                metric(concat!($f, "_p99_ms"), "ms", concat!("99th percentile of the latency of ", $f, " operations that succeeded; absent without one")),
                metric(concat!($f, "_max_ms"), "ms", concat!("longest latency of ", $f, " operations that succeeded; absent without one")),
            )*
            metric("faults_injected", "faults", "faults that came into force"),
            metric("faults_proven", "faults", "faults whose receipt proves that they were there"),
            metric("faults_skipped", "faults", "faults that could not apply when they were due"),
            metric("faults_failed", "faults", "faults whose injection or healing went wrong"),
            metric("leaders_seen", "leaders", "times that a leader was seen who was not the one seen before"),
        ]
    };
}

const METRICS: &[MetricSpec] = function_metrics!("acquire", "release", "read", "write", "holds");

const FUNCTIONS: [(Function, &str); 5] = [
    (Function::Acquire, "acquire"),
    (Function::Release, "release"),
    (Function::Read, "read"),
    (Function::Write, "write"),
    (Function::Holds, "holds"),
];

fn run(history: &History) -> Report {
    let mut report = Report::new(SPEC.name);
    let ops = history.operations.len();
    report.set("ops", ops as u64);
    let lasted_s = history.last_ns.saturating_sub(history.header.at_ns) as f64 / 1e9;
    if lasted_s > 0.0 {
        report.set("ops_per_s", Metric::rounded(ops as f64 / lasted_s));
    }
    for (f, name) in FUNCTIONS {
        count_function(history, f, name, &mut report);
    }
    for operation in &history.operations {
        if let Some(error) = &operation.error {
            let code = error.split(':').next().unwrap_or_default().trim();
            *report.errors.entry(code.to_owned()).or_default() += 1;
        }
    }
    count_faults(history, &mut report);
    report
}

fn count_function(history: &History, f: Function, name: &str, report: &mut Report) {
    let (mut ok, mut fail, mut info) = (0_u64, 0_u64, 0_u64);
    let mut latencies_ns = Vec::new();
    for operation in history.operations.iter().filter(|op| op.f == f) {
        match operation.outcome {
            Outcome::Ok => {
                ok += 1;
                latencies_ns.push(operation.return_ns - operation.invoke_ns);
            }
            Outcome::Fail => fail += 1,
            Outcome::Info => info += 1,
        }
    }
    report.set(&format!("{name}_ops"), ok + fail + info);
    report.set(&format!("{name}_ok"), ok);
    report.set(&format!("{name}_fail"), fail);
    report.set(&format!("{name}_info"), info);
    latencies_ns.sort_unstable();
    for (percent, suffix) in [(50, "p50"), (99, "p99"), (100, "max")] {
        if let Some(latency_ns) = percentile(&latencies_ns, percent) {
            report.set(&format!("{name}_{suffix}_ms"), Metric::ms(latency_ns));
        }
    }
}

fn count_faults(history: &History, report: &mut Report) {
    let count = |phase| history.faults.iter().filter(|f| f.phase == phase).count() as u64;
    report.set("faults_injected", count(FaultPhase::Injected));
    let proven = history.faults.iter().filter(|fault| fault.proven);
    report.set("faults_proven", proven.count() as u64);
    report.set("faults_skipped", count(FaultPhase::Skipped));
    report.set("faults_failed", count(FaultPhase::Failed));
    let mut nodes: Vec<&str> = history
        .leaders
        .iter()
        .map(|seen| seen.node.as_str())
        .collect();
    nodes.retain(|node| !node.is_empty());
    nodes.dedup();
    report.set("leaders_seen", nodes.len() as u64);
}
