//! The reference of scenario files, in Markdown, made from the table of keys.

use nemesis::fault::{FAULTS, FaultSpec};

use workloads::lock::LOCKS;
use workloads::option::OptionSpec;

use super::build::options::{describe, show_default};
use super::keys::{Absent, Key, Kind, Table};
use crate::backend::BACKENDS;

const INTRODUCTION: &str = "\
# Scenario files

<!-- Made by `fencepost` from its table of keys (harness/src/scenario/keys.rs). Do not edit by hand. -->

A scenario is a TOML file: a lock service, what its clients do, what is done to both meanwhile, and what
that must show. Every key that it may have is listed here; any other is an error. `fencepost list` names
the backends, locks, resources, workloads, faults and metrics.

```toml
title  = \"etcd: a lock alone loses writes when its holder pauses\"
claims = [10, 11]
issue  = \"etcd-io/etcd#11457\"

[cluster]
backend = \"etcd\"
version = \"3.5.16\"

[workload]
kind     = \"guarded-set\"
lock     = \"etcd-v3lock\"
resource = \"memory\"
clients  = 5
ttl      = \"2s\"
hold     = \"0s..2s\"
duration = \"60s\"

[[fault]]
kind   = \"pause\"
target = \"holder\"
when   = { every = \"5s\" }
lasts  = \"4s\"

[[arm]]
name   = \"unfenced\"
expect = { lost_writes = \"> 0\" }

[[arm]]
name   = \"fenced\"
set    = { \"workload.discipline\" = \"token\" }
expect = { lost_writes = \"== 0\", stale_writes_rejected = \"> 0\" }

[[arm]]
name   = \"no fault\"
set    = { \"faults\" = false }
expect = { lost_writes = \"== 0\" }
```

**Durations** are a number and a unit, `ns`, `us`, `ms`, `s`, `m` or `h`: `250ms`, `1.5s`, `2m`. A **range**
`0s..2s` is drawn from uniformly, from the scenario's seed.

**Precedence**: `--set KEY=VALUE` on the command line goes over an arm's `set`, that over the file, and that
over the defaults below. `KEY` is dotted, such as `workload.ttl`, `cluster.tuning.election`, `fault.1.lasts` or
`faults`.
";

/// Every key with its type, default, unit and an example: the text of `scenarios/README.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for table in Table::ALL {
        text.push_str(&format!("\n## {}\n\n", heading(*table)));
        match table {
            Table::ClusterOptions => {
                text.push_str("Each backend has its own; those that are not listed have none.\n");
                let owners = BACKENDS
                    .iter()
                    .map(|spec| ("backend", spec.name, spec.options));
                text.extend(owners.map(options_of));
                continue;
            }
            Table::LockOptions => {
                text.push_str("Each lock has its own; those that are not listed have none.\n");
                let owners = LOCKS.iter().map(|spec| ("lock", spec.name, spec.options));
                text.extend(owners.map(options_of));
                continue;
            }
            _ => {}
        }
        text.push_str(
            "| key | type | default | unit | example | meaning |\n|---|---|---|---|---|---|\n",
        );
        for key in table.keys() {
            text.push_str(&row(key));
        }
        if *table == Table::Fault {
            let with_params = FAULTS.iter().filter(|spec| !spec.params.is_empty());
            text.extend(with_params.map(params_of));
        }
    }
    text
}

/// The parameters of one fault, which stand beside the keys that every fault has.
fn params_of(spec: &FaultSpec) -> String {
    let mut text = format!(
        "\n### With `kind = \"{}\"`\n\nIt {}.\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
        spec.name, spec.summary
    );
    for param in spec.params {
        let default = param
            .default
            .map_or("none".to_owned(), |value| format!("`{value}`"));
        let cells = [
            format!("`{}`", param.name),
            param.kind.to_string(),
            default,
            param.summary.to_owned(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// The options of one backend or lock.
fn options_of((key, name, specs): (&str, &str, &[OptionSpec])) -> String {
    if specs.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n### With `{key} = \"{name}\"`\n\n| key | type | default | meaning |\n|---|---|---|---|\n"
    );
    for spec in specs {
        let cells = [
            format!("`{}`", spec.name),
            describe(spec.kind),
            format!("`{}`", show_default(spec)),
            spec.about.to_owned(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

fn heading(table: Table) -> String {
    let title = table.title();
    match table {
        Table::Top => "Top level".to_owned(),
        _ if title.starts_with('[') => format!("`{title}`"),
        _ => title.to_owned(),
    }
}

fn row(key: &Key) -> String {
    let default = match key.absent {
        Absent::Required => "required".to_owned(),
        Absent::Default(text) => format!("`{text}`"),
        Absent::Optional(words) => words.to_owned(),
    };
    let kind = match key.kind {
        // The full sentence of the error would repeat what the tables below say.
        Kind::Lasts => "a duration, a range, or a table with `gc`".to_owned(),
        Kind::Text => "a text".to_owned(),
        Kind::Expectations => "a table of metrics".to_owned(),
        Kind::Overrides => "a table of dotted keys".to_owned(),
        Kind::Duration(_) => "a duration".to_owned(),
        Kind::Millis => "a duration in whole milliseconds".to_owned(),
        Kind::Range => "a duration or a range".to_owned(),
        kind => kind.describe(),
    };
    let unit = if key.unit.is_empty() { "–" } else { key.unit };
    let cells = [
        format!("`{}`", key.name),
        kind,
        default,
        unit.to_owned(),
        format!("`{}`", key.example),
        key.about.to_owned(),
    ];
    format!(
        "| {} |\n",
        cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn scenarios_readme_is_the_reference() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/README.md");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, reference()).expect("scenarios/README.md can be written");
        }
        let stored = std::fs::read_to_string(&path).expect("scenarios/README.md can be read");
        assert!(
            stored == reference(),
            "scenarios/README.md is behind the table of keys; write it anew with \
             `UPDATE_REFERENCE=1 cargo test -p harness reference`"
        );
    }
}
