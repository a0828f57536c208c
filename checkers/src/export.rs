//! A fencepost history as Jepsen's EDN: one operation map a line, invokes and completions in the order of
//! time.
//!
//! For Knossos: `:acquire` and `:release`; the value of a successful acquire is its token. With more than one
//! lock the value is `[lock token]`, as `jepsen.independent` has it. For Elle: reads and writes of the resource
//! as transactions of rw-register, where the value of a register is the element that was written
//! last. A write also reads what it was built on, so Elle can see a lost update.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::history::{Function, History, Ns, Operation, Outcome};

/// Whom an export is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Lock models: acquires and releases.
    Knossos,
    /// Transactions on registers.
    Elle,
}

/// Writes `history`, or what concerns `lock` of it.
///
/// # Errors
/// When the sink refuses the data.
pub fn edn(
    history: &History,
    audience: Audience,
    lock: Option<&str>,
    sink: &mut impl Write,
) -> io::Result<()> {
    let wanted = |op: &Operation| match (audience, op.f) {
        (Audience::Knossos, Function::Acquire | Function::Release)
        | (Audience::Elle, Function::Read | Function::Write) => {
            lock.is_none_or(|lock| history.locks.name(op.lock) == lock)
        }
        _ => false,
    };
    let mut events: Vec<(Ns, bool, usize)> = Vec::new();
    for (place, op) in history
        .operations
        .iter()
        .enumerate()
        .filter(|(_, op)| wanted(op))
    {
        events.push((op.invoke_ns, false, place));
        // Jepsen has no history without completions: what nobody heard of ends as info.
        let end_ns = match op.outcome {
            Outcome::Info => op.gave_up_ns.unwrap_or(history.last_ns),
            _ => op.return_ns,
        };
        events.push((end_ns.max(op.invoke_ns), true, place));
    }
    // At one instant invokes go first, except that a client ends one operation before its next.
    events.sort_by_key(|&(at_ns, completion, place)| (at_ns, completion, place));
    let keyed = audience == Audience::Knossos && lock.is_none() && history.locks.len() > 1;
    let elements = Elements::new(history);
    for (index, (at_ns, completion, place)) in events.into_iter().enumerate() {
        let op = &history.operations[place];
        let kind = match (completion, op.outcome) {
            (false, _) => ":invoke",
            (true, Outcome::Ok) => ":ok",
            (true, Outcome::Fail) => ":fail",
            (true, Outcome::Info) => ":info",
        };
        let f = match op.f {
            Function::Acquire => ":acquire",
            Function::Release => ":release",
            _ => ":txn",
        };
        let known = completion && op.outcome == Outcome::Ok;
        let value = match op.f {
            Function::Acquire | Function::Release => lock_value(history, op, known, keyed),
            _ => elements.transaction(history, op, known),
        };
        let since_ns = at_ns.saturating_sub(history.header.at_ns);
        write!(
            sink,
            "{{:index {index}, :time {since_ns}, :type {kind}, :process {}, :f {f}, :value {value}",
            op.client
        )?;
        if let (true, Some(error)) = (completion, &op.error) {
            write!(sink, ", :error {}", quoted(error))?;
        }
        writeln!(sink, "}}")?;
    }
    Ok(())
}

fn lock_value(history: &History, op: &Operation, known: bool, keyed: bool) -> String {
    let token = op
        .token
        .filter(|_| known)
        .map_or_else(|| "nil".to_owned(), |token| token.to_string());
    if keyed {
        format!("[{} {token}]", quoted(history.locks.name(op.lock)))
    } else {
        token
    }
}

/// Which element each version of each register was made with.
struct Elements(HashMap<(u32, u64), u64>);

impl Elements {
    fn new(history: &History) -> Self {
        let mut elements = HashMap::new();
        for op in history
            .operations
            .iter()
            .filter(|op| op.f == Function::Write)
        {
            if let (Some(key), Some(version), Some(element)) = (op.key, op.version, op.element) {
                elements.insert((key, version), element);
            }
        }
        for access in history
            .accesses
            .iter()
            .filter(|access| access.accepted && access.f == Function::Write)
        {
            if let Some(op) = history
                .index_of(access.op)
                .map(|place| &history.operations[place])
                && let (Some(key), Some(element)) = (op.key, op.element)
            {
                elements.insert((key, access.version), element);
            }
        }
        Self(elements)
    }

    fn transaction(&self, history: &History, op: &Operation, known: bool) -> String {
        let key = op
            .key
            .map_or_else(|| "nil".to_owned(), |key| quoted(history.keys.name(key)));
        let at = |version: Option<u64>| {
            let element = op.key.zip(version).and_then(|at| self.0.get(&at));
            element.map_or_else(|| "nil".to_owned(), u64::to_string)
        };
        let element = op.element.unwrap_or_default();
        match (op.f, known, op.base) {
            (Function::Read, true, _) => format!("[[:r {key} {}]]", at(op.version)),
            (Function::Read, ..) => format!("[[:r {key} nil]]"),
            (_, true, Some(base)) => {
                format!("[[:r {key} {}] [:w {key} {element}]]", at(Some(base)))
            }
            (_, true, None) => format!("[[:w {key} {element}]]"),
            (..) => format!("[[:r {key} nil] [:w {key} {element}]]"),
        }
    }
}

/// An EDN string; control characters, which EDN readers disagree about, become spaces.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
