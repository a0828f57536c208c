//! `fencepost backends`: which servers are known, which are here, and fetching the others.
//!
//! Only talks to the user; finding and fetching is [`crate::provision`].

use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::provision::{Located, ProvisionError, Provisioner, Row, Source, State, Wanted};
use crate::say;

/// List the lock servers that fencepost can run, and fetch them.
///
/// A server is looked for in this order: --binary of `fencepost run`, the cache, PATH (if it has
/// exactly the wanted version), and then it is fetched as Debian packages, without root, from the
/// mirror that this machine is configured with. Redis and Java come with the libraries of their
/// own Debian release and use no others. ZooKeeper needs Java 8 to 21: --binary java=PATH, else
/// that on PATH, else it is fetched, too. Fetched servers are kept in $FENCEPOST_CACHE, else
/// $XDG_CACHE_HOME/fencepost, else ~/.cache/fencepost.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  fencepost backends\n  \
                        fencepost backends fetch etcd@3.4.23 redis@valkey-8.1.1 zookeeper")]
pub struct BackendsArgs {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Option<BackendsCommand>,
}

#[derive(Subcommand, Debug)]
enum BackendsCommand {
    /// Put servers into the cache, so that runs need no network
    Fetch {
        /// What to fetch, for example etcd@3.5.16; without a version, the usual one
        #[arg(required = true, value_name = "BACKEND@VERSION")]
        wanted: Vec<Wanted>,
    },
}

/// Runs `fencepost backends`.
pub fn run(args: BackendsArgs) -> anyhow::Result<()> {
    let provisioner = Provisioner::from_env();
    match args.command {
        None => list(&provisioner, args.json),
        Some(BackendsCommand::Fetch { wanted }) => fetch(&provisioner, &wanted, args.json),
    }
}

fn list(provisioner: &Provisioner, as_json: bool) -> anyhow::Result<()> {
    let rows = provisioner.list();
    if as_json {
        let all = json!({ "cache_dir": provisioner.cache_dir, "backends": rows });
        say!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    say!("{}", table(&rows).trim_end());
    match &provisioner.cache_dir {
        Some(dir) => say!("\nThe cache is {}.", dir.display()),
        None => say!("\nThere is no cache: {}.", ProvisionError::NoCacheDir),
    }
    if rows.iter().any(|row| row.state == State::Fetchable) {
        say!("What is not here is fetched when first used, or by `fencepost backends fetch`.");
    }
    Ok(())
}

fn fetch(provisioner: &Provisioner, all: &[Wanted], as_json: bool) -> anyhow::Result<()> {
    let mut located = Vec::new();
    let mut failed: Option<ProvisionError> = None;
    for wanted in all {
        let started = Instant::now();
        // Progress goes to stderr, so that what goes to stdout can be piped.
        match provisioner.fetch(wanted, &|line| eprintln!("{line}")) {
            Ok(found) => {
                if !as_json {
                    say!("{}", told(&found, started));
                }
                located.push(found);
            }
            // The others may still be had. The first error decides the exit code.
            Err(error) if failed.is_none() => failed = Some(error),
            Err(error) => eprintln!("{error}"),
        }
    }
    if as_json {
        say!("{}", serde_json::to_string_pretty(&located)?);
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn told(found: &Located, started: Instant) -> String {
    let name = format!("{} {}", found.backend, found.version);
    match found.source {
        Source::Fetched => {
            let (path, took_s) = (found.path.display(), started.elapsed().as_secs_f64());
            format!(
                "{name}: fetched in {took_s:.1} s to {path}\n  {}",
                found.detail
            )
        }
        Source::Own => format!("{name}: {}", found.detail),
        _ => format!(
            "{name}: already here, {}\n  {}",
            found.path.display(),
            found.detail
        ),
    }
}

fn table(rows: &[Row]) -> String {
    let cells: Vec<[String; 5]> =
        std::iter::once(["backend", "version", "here", "size", "from"].map(String::from))
            .chain(rows.iter().map(|row| {
                let here = match row.state {
                    State::Cached => "cached",
                    State::OnPath => "on PATH",
                    State::Fetchable => "no",
                    State::Own => "built in",
                };
                let size = match row.size_bytes {
                    Some(bytes) if row.state != State::Own => {
                        format!("{:.1} MB", bytes as f64 / 1e6)
                    }
                    _ => "-".into(),
                };
                [
                    row.backend.clone(),
                    row.version.clone(),
                    here.into(),
                    size,
                    row.origin.clone(),
                ]
            }))
            .collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..4).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for [backend, version, here, size, from] in &cells {
        text += &format!(
            "{backend:<0$}  {version:<1$}  {here:<2$}  {size:>3$}  {from}\n",
            widths[0], widths[1], widths[2], widths[3]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |version: &str, state, size_bytes| Row {
            backend: "etcd".into(),
            version: version.into(),
            state,
            origin: "Debian trixie".into(),
            path: None,
            size_bytes,
        };
        let rows = [
            row("3.5.16", State::Cached, Some(26_700_000)),
            row("3.10", State::OnPath, None),
        ];
        let expected = "\
backend  version  here        size  from
etcd     3.5.16   cached   26.7 MB  Debian trixie
etcd     3.10     on PATH        -  Debian trixie
";
        assert_eq!(table(&rows), expected);
    }
}
