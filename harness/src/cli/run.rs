//! `fencepost run`: run a scenario and say what it showed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::exit::Exit;
use crate::report::display::Display;
use crate::run::launcher::{self, RunOptions, What};

/// Run a scenario: every trial of every arm, each in a sandbox of its own
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fencepost run scenarios/quickstart.toml
  fencepost run scenarios/etcd/lock-set-paused-client.toml --seed 7 --trials 10 --backend etcd@3.4.23
  fencepost run scenarios/quickstart.toml --set workload.ttl=5s --set workload.duration=30s --arm unfenced
  fencepost run --replay results/latest/unfenced/trial-1/plan.json")]
pub struct RunArgs {
    /// The scenario file (see scenarios/README.md)
    #[arg(required_unless_present = "replay")]
    scenario: Option<PathBuf>,
    /// Run a stored plan again instead: the plan.json of a trial, or of a run with all its trials. Every
    /// fault strikes when it was drawn then; nothing is drawn anew
    #[arg(
        long,
        value_name = "PLAN",
        conflicts_with_all = ["scenario", "set", "backend", "seed", "trials", "worker"]
    )]
    replay: Option<PathBuf>,
    /// Override a key of the scenario in every arm, for instance workload.ttl=5s
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Use this backend and version in every arm, for instance etcd@3.4.23
    #[arg(long, value_name = "NAME[@VERSION]")]
    backend: Option<String>,
    /// Use this server binary instead of looking for one, for instance etcd=/opt/etcd/etcd. For zookeeper
    /// it is the main jar or the folder with all jars (also those in its lib); java is a Java 8 to 21
    #[arg(long = "binary", value_name = "NAME=PATH", value_parser = pair)]
    binaries: Vec<(String, String)>,
    /// Seed of everything that is drawn; trial k uses seed + k - 1
    #[arg(long)]
    seed: Option<u64>,
    /// Trials of each arm
    #[arg(long)]
    trials: Option<u32>,
    /// Run only this arm (may be repeated)
    #[arg(long = "arm", value_name = "NAME")]
    arms: Vec<String>,
    /// Drive this worker program instead of fencepost's own (see workloads/PROTOCOL.md)
    #[arg(long, value_name = "PROGRAM")]
    worker: Option<PathBuf>,
    /// Where runs are kept
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Print JSON lines instead of text
    #[arg(long)]
    json: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("expected NAME=VALUE, found \"{text}\"")),
    }
}

/// Does it.
///
/// # Errors
/// What keeps the run from starting or from being stored.
pub fn run(args: RunArgs) -> Result<Exit> {
    let rerun = rerun(&args);
    let mut set = args.set;
    if let Some(backend) = args.backend {
        let (name, version) = match backend.split_once('@') {
            Some((name, version)) => (name.to_owned(), Some(version.to_owned())),
            None => (backend, None),
        };
        set.push(("cluster.backend".to_owned(), name));
        set.extend(version.map(|version| ("cluster.version".to_owned(), version)));
    }
    let absolute = |program: PathBuf| program.canonicalize().unwrap_or(program);
    let worker = args
        .worker
        .map(|program| vec![absolute(program).display().to_string()]);
    let what = match (args.replay, args.scenario) {
        (Some(plan), _) => What::Replay(plan),
        (None, scenario) => What::Scenario(scenario.unwrap_or_default()),
    };
    launcher::run(RunOptions {
        what,
        set,
        seed: args.seed,
        trials: args.trials,
        arms: args.arms,
        binaries: args
            .binaries
            .into_iter()
            .map(|(name, path)| (name, path.into()))
            .collect::<BTreeMap<_, _>>(),
        worker,
        results: args.results,
        display: Display::choose(args.json),
        rerun,
    })
}

/// The command line without its seed, which the launcher adds, quoted for a shell.
fn rerun(args: &RunArgs) -> String {
    let mut words = vec!["fencepost".to_owned(), "run".to_owned()];
    words.extend(
        args.scenario
            .iter()
            .map(|file| quote(&file.display().to_string())),
    );
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), quote(value)]);
    args.replay
        .iter()
        .for_each(|plan| add("--replay", &plan.display().to_string()));
    args.set
        .iter()
        .for_each(|(key, value)| add("--set", &format!("{key}={value}")));
    args.backend
        .iter()
        .for_each(|backend| add("--backend", backend));
    args.binaries
        .iter()
        .for_each(|(name, path)| add("--binary", &format!("{name}={path}")));
    args.trials
        .iter()
        .for_each(|trials| add("--trials", &trials.to_string()));
    args.arms.iter().for_each(|arm| add("--arm", arm));
    args.worker
        .iter()
        .for_each(|worker| add("--worker", &worker.display().to_string()));
    words.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=@:+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote("workload.ttl=5s"), "workload.ttl=5s");
        assert_eq!(quote("no fault"), "'no fault'");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
