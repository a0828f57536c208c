//! `fencepost doctor`: prints what this machine lets fencepost do.

use anyhow::Result;
use clap::Args;

use crate::doctor::{Diagnosis, FaultFinding, Finding, diagnose};
use crate::exit::Exit;
use crate::say;

/// Try everything that runs need on this machine, and say what is missing and what to do
///
/// Exits with 0 when runs are possible, also if some faults are not, and with 3 when none is.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  fencepost doctor
  fencepost doctor --json")]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
///
/// # Errors
/// When the result cannot be written as JSON.
pub fn run(args: &DoctorArgs) -> Result<Exit> {
    let diagnosis = diagnose();
    if args.json {
        say!("{}", serde_json::to_string_pretty(&diagnosis)?);
    } else {
        print(&diagnosis);
    }
    Ok(if diagnosis.can_run() {
        Exit::Met
    } else {
        Exit::SetUp
    })
}

fn print(diagnosis: &Diagnosis) {
    let who = if diagnosis.root {
        "root"
    } else {
        "an ordinary user"
    };
    say!("Linux {}, as {who}", diagnosis.kernel);
    say!();
    diagnosis.operations.iter().for_each(print_operation);
    if !diagnosis.faults.is_empty() {
        say!();
        say!("faults");
        diagnosis.faults.iter().for_each(print_fault);
    }
    say!();
    say!(
        "{}",
        if diagnosis.can_run() {
            "Runs are possible."
        } else {
            "Runs are NOT possible: see above what to do."
        }
    );
}

fn print_operation(finding: &Finding) {
    say!(
        "  {} {:<19} {}",
        mark(finding.works),
        finding.name,
        finding.detail
    );
    if finding.works {
        return;
    }
    let errno = finding.errno.as_deref().unwrap_or("no errno");
    say!("    {:<19} by {}: {errno}", "", finding.call);
    if !finding.lost.is_empty() && finding.instead.is_none() {
        say!(
            "    {:<19} lost without it: {}",
            "",
            finding.lost.join(", ")
        );
    }
    if let Some(instead) = &finding.instead {
        say!("    {:<19} instead: {instead}", "");
    }
}

fn print_fault(fault: &FaultFinding) {
    for (index, mechanism) in fault.mechanisms.iter().enumerate() {
        let (sign, name) = if index == 0 {
            (mark(fault.available), fault.name.as_str())
        } else {
            (" ", "")
        };
        let works = if mechanism.works { "" } else { "not " };
        say!(
            "  {sign} {name:<19} {works}by {}: {}",
            mechanism.name,
            mechanism.detail
        );
    }
}

fn mark(works: bool) -> &'static str {
    if works { "+" } else { "-" }
}
