//! Invokes and completions of processes in, operations out.
//!
//! The formats differ in notation; what is a well-formed history is decided here, once. Ticks are the
//! positions of events in the file, so that the file's own order is the order of time, as in Jepsen.

use std::collections::HashMap;

use super::error::ForeignProblem;
use super::mapping::Named;
use super::tables::{Lists, Values};
use super::{Foreign, Format, Options};
use crate::history::{Names, Ns, Outcome, Truncation};
use crate::model::op::{Action, FOREVER, Op, UNKNOWN};

/// More warnings than this say nothing new.
const MAX_WARNINGS: usize = 20;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Invoke,
    Completion(Outcome),
}

impl Type {
    pub(super) fn named(text: &str) -> Option<Self> {
        Some(match text {
            "invoke" => Type::Invoke,
            "ok" => Type::Completion(Outcome::Ok),
            "fail" => Type::Completion(Outcome::Fail),
            "info" => Type::Completion(Outcome::Info),
            _ => return None,
        })
    }
}

/// An argument or result, as a reader found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arg {
    /// Nothing that this action uses.
    Absent,
    /// As `Op::arg` has it.
    Number(u64),
    /// The elements of a set.
    List(Vec<u32>),
}

/// One event of a process.
pub(super) struct Event {
    pub(super) kind: Type,
    pub(super) process: i64,
    pub(super) action: Action,
    pub(super) key: u32,
    pub(super) arg: Arg,
    pub(super) time_ns: Option<i64>,
}

/// What a process is in the middle of.
#[derive(Clone, Copy)]
enum State {
    Idle,
    Open(u32),
    Retired(u32),
}

/// Collects events.
pub(super) struct Collector<'o> {
    pub(super) options: &'o Options,
    /// The line that is being read.
    pub(super) line: u64,
    pub(super) foreign: Foreign,
    processes: HashMap<i64, (u32, State)>,
    tick: u64,
    last_time: Option<i64>,
    timed: bool,
}

impl<'o> Collector<'o> {
    pub(super) fn new(format: Format, options: &'o Options) -> Self {
        Self {
            options,
            line: 0,
            foreign: Foreign {
                format,
                ops: Vec::new(),
                keys: Names::default(),
                values: Values::default(),
                lists: Lists::default(),
                lines: Vec::new(),
                times: Vec::new(),
                start_ns: 0,
                failed_cas_observes: format == Format::Porcupine,
                warnings: Vec::new(),
                truncated: None,
            },
            processes: HashMap::new(),
            tick: 0,
            last_time: None,
            timed: true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.foreign.ops.is_empty()
    }

    /// What the file calls `name`; `None` when it is to be ignored.
    pub(super) fn action(&self, name: &str) -> Result<Option<Action>, ForeignProblem> {
        match self.options.mapping.named(self.options.shape, name) {
            Named::Action(action) => Ok(Some(action)),
            Named::Ignored => Ok(None),
            Named::Unknown => {
                let ours = self.options.shape.actions().iter().map(|(name, _)| *name);
                Err(ForeignProblem::Function {
                    found: name.to_owned(),
                    expected: ours.collect::<Vec<_>>().join(", "),
                })
            }
        }
    }

    /// Takes one event.
    pub(super) fn push(&mut self, event: Event) -> Result<(), ForeignProblem> {
        let tick = self.tick;
        self.tick += 1;
        self.note_time(event.time_ns);
        let fresh = u32::try_from(self.processes.len()).map_err(|_| ForeignProblem::TooMany)?;
        let (process, state) = self
            .processes
            .entry(event.process)
            .or_insert((fresh, State::Idle));
        match event.kind {
            Type::Invoke => {
                let place =
                    u32::try_from(self.foreign.ops.len()).map_err(|_| ForeignProblem::TooMany)?;
                let line_of = |op: u32| u64::from(self.foreign.lines[op as usize]);
                match *state {
                    State::Idle => {}
                    State::Open(open) => {
                        return Err(ForeignProblem::TwoOpen {
                            process: event.process,
                            open_line: line_of(open),
                        });
                    }
                    State::Retired(unknown) => {
                        return Err(ForeignProblem::Retired {
                            process: event.process,
                            unknown_line: line_of(unknown),
                        });
                    }
                }
                *state = State::Open(place);
                let process = *process;
                let arg = self.number(event.arg);
                self.foreign
                    .lines
                    .push(u32::try_from(self.line).unwrap_or(u32::MAX));
                self.foreign.ops.push(Op {
                    invoke_at: tick,
                    return_at: FOREVER,
                    arg,
                    process,
                    key: event.key,
                    id: place,
                    action: event.action,
                    outcome: Outcome::Info,
                });
            }
            Type::Completion(outcome) => {
                let State::Open(place) = *state else {
                    return Err(ForeignProblem::NoInvoke {
                        process: event.process,
                    });
                };
                *state = match outcome {
                    Outcome::Info => State::Retired(place),
                    _ => State::Idle,
                };
                self.complete(place, outcome, event, tick)?;
            }
        }
        Ok(())
    }

    fn complete(
        &mut self,
        place: u32,
        outcome: Outcome,
        event: Event,
        tick: u64,
    ) -> Result<(), ForeignProblem> {
        let op = &self.foreign.ops[place as usize];
        if op.action != event.action {
            return Err(ForeignProblem::OtherOperation {
                process: event.process,
                found: name(event.action),
                open: name(op.action),
            });
        }
        let result = outcome == Outcome::Ok
            && matches!(op.action, Action::Acquire | Action::Read | Action::ReadAll);
        // What was asked for stays, unless it was left out then.
        let arg = if result || op.arg == UNKNOWN {
            self.number(event.arg)
        } else {
            op.arg
        };
        let op = &mut self.foreign.ops[place as usize];
        op.outcome = outcome;
        op.arg = if outcome == Outcome::Info && op.action == Action::Acquire {
            UNKNOWN
        } else {
            arg
        };
        if op.action != Action::Acquire && op.action != Action::Release && op.key != event.key {
            self.warn("the completion names another key than the invoke; the invoke's counts");
        }
        let op = &mut self.foreign.ops[place as usize];
        if outcome != Outcome::Info {
            op.return_at = tick;
        }
        Ok(())
    }

    fn number(&mut self, arg: Arg) -> u64 {
        match arg {
            Arg::Absent => UNKNOWN,
            Arg::Number(number) => number,
            Arg::List(list) => self.foreign.lists.push(list),
        }
    }

    /// Times are for the reader's eye and never decide anything.
    fn note_time(&mut self, time_ns: Option<i64>) {
        let Some(time_ns) = time_ns.filter(|_| self.timed) else {
            self.timed = false;
            self.foreign.times = Vec::new();
            return;
        };
        if let Some(before) = self.last_time
            && time_ns < before
        {
            self.warn("the time goes back; the order in the file is taken as the order of events");
        }
        self.last_time = Some(time_ns);
        self.foreign.times.push(Ns::try_from(time_ns).unwrap_or(0));
    }

    /// The time before which a strict format must not go back.
    pub(super) fn last_time(&self) -> Option<i64> {
        self.last_time
    }

    pub(super) fn warn(&mut self, what: &str) {
        let warnings = &mut self.foreign.warnings;
        match warnings.len() {
            n if n < MAX_WARNINGS => warnings.push(format!("line {}: {what}", self.line)),
            MAX_WARNINGS => warnings.push("more warnings are left out".to_owned()),
            _ => {}
        }
    }

    pub(super) fn finish(mut self, truncated: Option<Truncation>) -> Foreign {
        self.foreign.truncated = truncated;
        if self.foreign.format == Format::Fencepost {
            // They held clients; the numbers of operations say more than lines.
            self.foreign.lines = Vec::new();
        } else {
            self.foreign.start_ns = self.foreign.times.first().copied().unwrap_or(0);
        }
        // An invoke without its value is of no use where the value decides.
        let valued = |op: &Op| {
            !matches!(op.action, Action::Write | Action::Cas | Action::Add) || op.arg != UNKNOWN
        };
        let before = self.foreign.ops.len();
        self.foreign.ops.retain(valued);
        let dropped = before - self.foreign.ops.len();
        if dropped > 0 {
            self.warn(&format!("{dropped} writes without a value are left out"));
        }
        self.foreign
    }
}

/// Our name of an action.
pub(super) fn name(action: Action) -> &'static str {
    match action {
        Action::Acquire => "acquire",
        Action::Release => "release",
        Action::Read | Action::ReadAll => "read",
        Action::Write => "write",
        Action::Cas => "cas",
        Action::Add => "add",
    }
}
