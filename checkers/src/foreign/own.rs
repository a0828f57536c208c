//! fencepost's own history, read straight into the operations of a lock model: no line is kept.
//!
//! The other events (losses, leases, faults) say nothing to these models and are passed over once they
//! are known to be well-formed. Here ticks are nanoseconds of truth time.

use super::ForeignProblem;
use super::collect::Collector;
use super::mapping::Shape;
use crate::history::decode::by_serde;
use crate::history::hot::{Hot, HotCompletion, HotInvoke, hot};
use crate::history::lines::Lines;
use crate::history::{Event, FORMAT_VERSION, Function, Ns, Outcome, Problem, Truncation};
use crate::model::op::{Action, FOREVER, Op, UNKNOWN};
use crate::slots::Slots;

/// What became of the operations of other functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the table of operations.
    Lock(u32),
    /// Read, write, holds.
    Other,
    /// Completed.
    Done,
}

struct Own {
    /// By operation number, which counts from 0.
    places: Vec<Place>,
    clients: Slots<Client>,
    ended: bool,
    last_lock: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Client {
    #[default]
    Idle,
    Open(u32),
    Retired(u32),
}

pub(super) fn read(
    lines: &mut Lines<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<Truncation>, ForeignProblem> {
    if collector.options.shape != Shape::Lock {
        return Err(ForeignProblem::OwnShape);
    }
    let mut own = Own {
        places: Vec::new(),
        clients: Slots::new(1 << 18),
        ended: false,
        last_lock: None,
    };
    let mut header = false;
    let truncated = super::each_line(lines, collector, |line, collector| {
        if header && let Some(hot) = hot(line) {
            return own.push(hot, collector);
        }
        let event = by_serde(line).map_err(|problem| match problem {
            // Told apart from other problems, because half of a last line is not one.
            Problem::NotJson { found, detail } => ForeignProblem::NotJson { found, detail },
            other => other.into(),
        })?;
        match event {
            Event::Header(_) if header => return Err(Problem::SecondHeader.into()),
            Event::Header(first) => {
                if first.format > FORMAT_VERSION {
                    return Err(Problem::NewerFormat {
                        found: first.format,
                    }
                    .into());
                }
                collector.foreign.start_ns = first.at_ns;
                header = true;
            }
            _ if !header => {
                let found = crate::history::lines::shorten(line);
                return Err(Problem::NoHeader { found }.into());
            }
            Event::Invoke(invoke) => return own.push(Hot::Invoke((&invoke).into()), collector),
            Event::Ok(end) => {
                return own.push(Hot::Completion(Outcome::Ok, (&end).into()), collector);
            }
            Event::Fail(end) => {
                return own.push(Hot::Completion(Outcome::Fail, (&end).into()), collector);
            }
            Event::Info(end) => {
                return own.push(Hot::Completion(Outcome::Info, (&end).into()), collector);
            }
            Event::End(_) => own.ended = true,
            _ => {}
        }
        Ok(())
    })?;
    let killed = truncated.is_none() && !own.ended;
    Ok(truncated.or(killed.then(|| super::cut_off(lines.number))))
}

impl Own {
    fn push(&mut self, hot: Hot<'_>, collector: &mut Collector<'_>) -> Result<(), ForeignProblem> {
        match hot {
            Hot::Invoke(invoke) => self.invoke(invoke, collector),
            Hot::Completion(outcome, completion) => self.complete(outcome, completion, collector),
        }
    }

    fn invoke(
        &mut self,
        invoke: HotInvoke<'_>,
        collector: &mut Collector<'_>,
    ) -> Result<(), ForeignProblem> {
        let HotInvoke { op, client, .. } = invoke;
        // Numbers are given in order; one that skips far ahead would cost memory for nothing.
        let number = u32::try_from(op).map_err(|_| ForeignProblem::TooMany)?;
        let place = number as usize;
        if place > self.places.len() {
            let before = self.places.len() as i64 - 1;
            return Err(ForeignProblem::OutOfOrder {
                what: "operation number",
                found: op as i64,
                before,
            });
        }
        if place < self.places.len() {
            return Err(Problem::RepeatedInvoke { op }.into());
        }
        match std::mem::replace(self.clients.at(client), Client::Open(number)) {
            Client::Idle => {}
            Client::Open(open) => {
                return Err(Problem::TwoOpen {
                    client,
                    op,
                    open: open.into(),
                }
                .into());
            }
            Client::Retired(unknown) => {
                return Err(Problem::Retired {
                    client,
                    op,
                    unknown: unknown.into(),
                }
                .into());
            }
        }
        let action = match invoke.f {
            Function::Acquire => Action::Acquire,
            Function::Release => Action::Release,
            Function::Read | Function::Write | Function::Holds => {
                self.places.push(Place::Other);
                // Its client must be known at the completion, which does not name it.
                collector.foreign.lines.push(client);
                return Ok(());
            }
        };
        let foreign = &mut collector.foreign;
        let key = match self.last_lock {
            Some(last) if foreign.keys.name(last) == invoke.lock => last,
            _ => foreign.keys.intern(invoke.lock),
        };
        self.last_lock = Some(key);
        self.places.push(Place::Lock(foreign.ops.len() as u32));
        foreign.lines.push(client);
        foreign.ops.push(Op {
            invoke_at: invoke.at_ns,
            return_at: FOREVER,
            arg: UNKNOWN,
            process: client,
            key,
            id: number,
            action,
            outcome: Outcome::Info,
        });
        Ok(())
    }

    fn complete(
        &mut self,
        outcome: Outcome,
        completion: HotCompletion<'_>,
        collector: &mut Collector<'_>,
    ) -> Result<(), ForeignProblem> {
        let number = completion.op;
        let place = usize::try_from(number)
            .ok()
            .and_then(|place| self.places.get_mut(place));
        let Some(place) = place else {
            return Err(Problem::NoInvoke { op: number }.into());
        };
        let was = std::mem::replace(place, Place::Done);
        if was == Place::Done {
            return Err(Problem::SecondCompletion { op: number }.into());
        }
        let client = collector.foreign.lines[number as usize];
        *self.clients.at(client) = match outcome {
            Outcome::Info => Client::Retired(number as u32),
            _ => Client::Idle,
        };
        let Place::Lock(place) = was else {
            return Ok(());
        };
        let op = &mut collector.foreign.ops[place as usize];
        // A completion made up for a client that died may have no invoke time of its own.
        if completion.invoke_ns != 0 {
            op.invoke_at = completion.invoke_ns;
        }
        op.outcome = outcome;
        if outcome == Outcome::Info {
            return Ok(());
        }
        let return_ns: Ns = completion.return_ns;
        if return_ns < op.invoke_at {
            return Err(Problem::Backwards {
                op: number,
                invoke_ns: op.invoke_at,
                return_ns,
            }
            .into());
        }
        op.return_at = return_ns;
        if op.action == Action::Acquire && outcome == Outcome::Ok {
            op.arg = completion.token.unwrap_or(UNKNOWN);
        }
        Ok(())
    }
}
