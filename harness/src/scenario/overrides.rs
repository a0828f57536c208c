//! Values put over those of the file: by an arm's `set`, and by `--set` on the command line.
//!
//! An override is a dotted key with a value. Here it is checked that the key exists; whether the value
//! is right is found out when the changed tables are read.

use super::error::Problem;
use super::keys::{Key, Kind, Table};
use super::known::Known;
use super::node::{Entry, Node, Origin, Value, parse_override, shortened};
use super::suggest::closest;

/// The override that switches an arm's faults off.
const FAULTS: &str = "faults";

/// A key that exists, and the value to put there.
#[derive(Clone, Debug)]
pub(super) struct Override {
    steps: Vec<String>,
    node: Node,
}

/// The overrides in a `set` table.
pub(super) fn from_set(set: &Node, faults: usize, known: &Known) -> (Vec<Override>, Vec<Problem>) {
    let mut found = Found::new(faults, known);
    for entry in set.entries() {
        found.flatten(&entry.key, entry);
    }
    (found.overrides, found.problems)
}

/// The overrides of the command line.
pub(super) fn from_flags(
    flags: &[(String, String)],
    faults: usize,
    known: &Known,
) -> (Vec<Override>, Vec<Problem>) {
    let mut found = Found::new(faults, known);
    for (path, text) in flags {
        let flag = flag_text(path, text);
        let mut node = parse_override(text, &flag);
        // `--set cluster.version=3.5` means the text, though TOML would read a number.
        if resolve_path(path, known).is_ok_and(|key| key.is_some_and(|key| key.kind.is_text()))
            && node.text().is_none()
        {
            node.value = Value::Text(text.clone());
        }
        found.add(path, &Origin::Flag(flag), node);
    }
    (found.overrides, found.problems)
}

/// A flag as the user gave it.
pub(super) fn flag_text(path: &str, text: &str) -> String {
    format!("--set {path}={text}")
}

/// Puts overrides over a file, the later over the earlier. False means that faults are switched off.
pub(super) fn apply<'a>(
    root: &mut Node,
    overrides: impl IntoIterator<Item = &'a Override>,
) -> bool {
    let mut faults_on = true;
    for change in overrides {
        match (change.steps.as_slice(), &change.node.value) {
            ([only], Value::Bool(on)) if only == FAULTS => faults_on = *on,
            (steps, _) => put(root, steps, &change.node),
        }
    }
    faults_on
}

struct Found<'a> {
    faults: usize,
    known: &'a Known,
    overrides: Vec<Override>,
    problems: Vec<Problem>,
}

impl<'a> Found<'a> {
    fn new(faults: usize, known: &'a Known) -> Self {
        Self {
            faults,
            known,
            overrides: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// `set.workload.ttl = "5s"` without quotes is a table in a table: it means the same as with quotes.
    fn flatten(&mut self, path: &str, entry: &Entry) {
        let holds_keys = matches!(
            path.split('.').collect::<Vec<_>>().as_slice(),
            ["cluster" | "workload" | "nemesis" | "fault"]
                | ["cluster", "tuning" | "options"]
                | ["workload", "options"]
                | ["fault", _]
        );
        match &entry.node.value {
            Value::Table(inner) if holds_keys => {
                for entry in inner {
                    self.flatten(&format!("{path}.{}", entry.key), entry);
                }
            }
            _ => self.add(path, &entry.key_at, entry.node.clone()),
        }
    }

    fn add(&mut self, path: &str, key_at: &Origin, node: Node) {
        if let Err(expected) = self.check(path, &node) {
            let words = settable();
            self.problems.push(Problem {
                at: key_at.clone(),
                key: shortened(path),
                found: if path == FAULTS {
                    node.describe()
                } else {
                    format!("`{}`", shortened(path))
                },
                hint: (path != FAULTS)
                    .then(|| {
                        closest(path, words.iter().map(String::as_str))
                            .map(|word| format!("did you mean `{word}`?"))
                    })
                    .flatten(),
                expected,
            });
            return;
        }
        self.overrides.push(Override {
            steps: path.split('.').map(str::to_owned).collect(),
            node,
        });
    }

    /// What was expected instead, when the path leads nowhere.
    fn check(&self, path: &str, node: &Node) -> Result<(), String> {
        if path == FAULTS {
            let is_bool = matches!(node.value, Value::Bool(_));
            return if is_bool {
                Ok(())
            } else {
                Err("true or false".to_owned())
            };
        }
        resolve_path(path, self.known)?;
        let number = path
            .strip_prefix("fault.")
            .and_then(|rest| rest.split('.').next());
        match number.and_then(|number| number.parse::<usize>().ok()) {
            Some(number) if !(1..=self.faults).contains(&number) => Err(match self.faults {
                0 => "no fault here: the scenario has none".to_owned(),
                1 => "fault.1, the scenario's only fault".to_owned(),
                faults => format!("fault.1 to fault.{faults}"),
            }),
            _ => Ok(()),
        }
    }
}

/// The key at the end of a dotted path; `None` for the word `faults`, a parameter of a fault and an option.
/// Otherwise what was expected. Whether that very fault, backend or lock has it is found out when it is read.
fn resolve_path(path: &str, known: &Known) -> Result<Option<&'static Key>, String> {
    if path == FAULTS {
        return Ok(None);
    }
    let mut steps = path.split('.');
    let mut table = match steps.next() {
        Some("cluster") => Table::Cluster,
        Some("workload") => Table::Workload,
        Some("nemesis") => Table::Nemesis,
        Some("fault") => match steps.next().and_then(|number| number.parse::<usize>().ok()) {
            Some(_) => Table::Fault,
            None => return Err("the number of a fault, as in fault.1.lasts".to_owned()),
        },
        _ => return Err("a key of `cluster`, `workload`, `nemesis` or a fault such as workload.ttl or fault.1.lasts, or `faults`".to_owned()),
    };
    let keys_of = |table: Table| {
        format!(
            "a key of {}: {}",
            table.title(),
            super::read::key_list(table)
        )
    };
    let mut found: Option<&'static Key> = None;
    let mut steps = steps.peekable();
    while let Some(step) = steps.next() {
        if let Some(above) = found {
            table = below(above)
                .ok_or_else(|| format!("nothing below `{}`, which is no table", above.name))?;
        }
        if table == Table::Fault && steps.peek().is_none() && known.has_fault_param(step) {
            return Ok(None);
        }
        if table.is_open() {
            let names = known.option_names(table);
            return match steps.peek() {
                Some(_) => Err(format!("nothing below `{step}`, which is no table")),
                None if names.contains(&step) => Ok(None),
                None => Err(format!("an option: {}", names.join(", "))),
            };
        }
        found = Some(table.key(step).ok_or_else(|| keys_of(table))?);
    }
    found.map(Some).ok_or_else(|| keys_of(table))
}

/// The table that a key's value is or can be.
fn below(key: &Key) -> Option<Table> {
    match key.kind {
        Kind::Table(inner) => Some(inner),
        Kind::Lasts => Some(Table::Lasts),
        _ => None,
    }
}

/// Every dotted key that can be set, for suggestions.
fn settable() -> Vec<String> {
    let under = |prefix: &'static str, table: Table| {
        table.keys().map(move |key| format!("{prefix}{}", key.name))
    };
    under("cluster.", Table::Cluster)
        .chain(under("cluster.tuning.", Table::Tuning))
        .chain(under("workload.", Table::Workload))
        .chain(under("nemesis.", Table::Nemesis))
        .chain(under("fault.1.", Table::Fault))
        .chain(under("fault.1.when.", Table::When))
        .chain([FAULTS.to_owned()])
        .collect()
}

/// Puts a value at a path, making the tables that are missing on the way.
fn put(node: &mut Node, steps: &[String], new: &Node) {
    let [step, rest @ ..] = steps else {
        *node = new.clone();
        return;
    };
    if let Value::List(items) = &mut node.value {
        let item = step
            .parse::<usize>()
            .ok()
            .and_then(|number| items.get_mut(number.checked_sub(1)?));
        if let Some(item) = item {
            put(item, rest, new);
        }
        return;
    }
    if !matches!(node.value, Value::Table(_)) {
        *node = Node {
            at: new.at.clone(),
            value: Value::Table(Vec::new()),
        };
    }
    let Value::Table(entries) = &mut node.value else {
        return;
    };
    let index = entries
        .iter()
        .position(|entry| entry.key == *step)
        .unwrap_or_else(|| {
            let empty = Node {
                at: new.at.clone(),
                value: Value::Table(Vec::new()),
            };
            entries.push(Entry {
                key: step.clone(),
                key_at: new.at.clone(),
                node: empty,
            });
            entries.len() - 1
        });
    put(&mut entries[index].node, rest, new);
}
