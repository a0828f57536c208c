//! `fencepost list`: everything that scenario files may name, from the registries.

use anyhow::Result;
use checkers::check::CHECKS;
use clap::Args;
use nemesis::fault::FAULTS;
use serde::Serialize;
use workloads::lock::LOCKS;
use workloads::resource::RESOURCES;
use workloads::script::WORKLOADS;

use crate::backend::BACKENDS;
use crate::exit::Exit;
use crate::say;

/// List backends, locks, resources, workloads, faults and checks
#[derive(Debug, Args)]
#[command(after_help = "Example:
  fencepost list --json")]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Section {
    kind: &'static str,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    details: Vec<String>,
}

/// Does it.
///
/// # Errors
/// Never; the signature is that of every verb.
pub fn run(args: &ListArgs) -> Result<Exit> {
    let sections = sections();
    if args.json {
        say!("{}", serde_json::to_string_pretty(&sections)?);
        return Ok(Exit::Met);
    }
    for section in sections {
        say!("{}", section.kind);
        for entry in section.entries {
            say!("  {:<14} {}", entry.name, entry.summary);
            entry
                .details
                .iter()
                .for_each(|detail| say!("  {:<14} {detail}", ""));
        }
        say!();
    }
    Ok(Exit::Met)
}

fn sections() -> Vec<Section> {
    let entry = |name, summary, details| Entry {
        name,
        summary,
        details,
    };
    let of = |backend: &str| {
        if backend.is_empty() {
            "needs no server".into()
        } else {
            format!("backend: {backend}")
        }
    };
    vec![
        Section {
            kind: "backends",
            entries: BACKENDS
                .iter()
                .map(|spec| entry(spec.name, spec.summary, bugs(spec.bugs)))
                .collect(),
        },
        Section {
            kind: "locks",
            entries: LOCKS
                .iter()
                .map(|spec| {
                    let disciplines: Vec<_> =
                        spec.disciplines.iter().map(|one| one.name()).collect();
                    let details = [
                        of(spec.backend),
                        format!("token: {}", spec.token),
                        format!("disciplines: {}", disciplines.join(", ")),
                    ];
                    entry(spec.name, spec.summary, details.into())
                })
                .collect(),
        },
        Section {
            kind: "resources",
            entries: RESOURCES
                .iter()
                .map(|spec| entry(spec.name, spec.summary, vec![of(spec.backend)]))
                .collect(),
        },
        Section {
            kind: "workloads",
            entries: WORKLOADS
                .iter()
                .map(|spec| entry(spec.name, spec.summary, Vec::new()))
                .collect(),
        },
        Section {
            kind: "faults",
            entries: FAULTS
                .iter()
                .map(|spec| {
                    let targets = format!("targets: {}", spec.targets.join(", "));
                    let params = spec.params.iter().map(|param| {
                        let default = param.default.map(|value| format!(" [{value}]"));
                        format!(
                            "{:<12} {}{}: {}",
                            param.name,
                            param.summary,
                            default.unwrap_or_default(),
                            param.kind
                        )
                    });
                    let details = [targets].into_iter().chain(params).collect();
                    entry(spec.name, spec.summary, details)
                })
                .collect(),
        },
        Section {
            kind: "checks",
            entries: CHECKS
                .iter()
                .map(|spec| {
                    let metric = |metric: &checkers::check::MetricSpec| {
                        format!("{:<28} {}", metric.name, metric.summary)
                    };
                    entry(
                        spec.name,
                        spec.summary,
                        spec.metrics.iter().map(metric).collect(),
                    )
                })
                .collect(),
        },
    ]
}

fn bugs(bugs: &[&str]) -> Vec<String> {
    if bugs.is_empty() {
        Vec::new()
    } else {
        vec![format!("bugs on request: {}", bugs.join(", "))]
    }
}
