//! Events in, a settled history out.
//!
//! An operation's outcome often stands far behind its invoke, so no check may look at an operation
//! before the last line was read: an unreported `fail` would otherwise keep a lock held for ever.
//! This is the first pass; the checks are the second.

use std::collections::{BTreeMap, HashMap};

use super::error::Problem;
use super::event::{Event, FORMAT_VERSION, Header, Ns, Outcome};
use super::hot::{Hot, HotCompletion, HotInvoke};
use super::names::Names;
use super::settled::{History, Operation, Truncation};
use crate::slots::Slots;

/// More warnings than this say nothing new.
const MAX_WARNINGS: usize = 50;

/// What a client is in the middle of.
#[derive(Clone, Copy)]
enum Busy {
    Open(u64),
    Retired(u64),
}

/// Collects events.
pub(super) struct Settler {
    history: History,
    settled: Vec<bool>,
    busy: Slots<Option<Busy>>,
}

impl Settler {
    /// Starts from the first event, which must be a header.
    pub(super) fn new(first: Event) -> Result<Self, Problem> {
        let Event::Header(header) = first else {
            let found = serde_json::to_value(&first)
                .ok()
                .and_then(|value| Some(format!("`{}`", value.get("e")?.as_str()?)));
            return Err(Problem::NoHeader {
                found: found.unwrap_or_else(|| "another event".to_owned()),
            });
        };
        if header.format > FORMAT_VERSION {
            return Err(Problem::NewerFormat {
                found: header.format,
            });
        }
        Ok(Self {
            history: empty(header),
            settled: Vec::new(),
            // Client numbers are given in order, so a few unused ones are all that there can be.
            busy: Slots::new(1 << 18),
        })
    }

    /// Takes the event of one line.
    pub(super) fn push(&mut self, event: Event, line: u64) -> Result<(), Problem> {
        if self.history.end.is_some() {
            self.warn(line, "an event after the `end` event");
        }
        match event {
            Event::Header(_) => return Err(Problem::SecondHeader),
            Event::Client(client) => {
                self.seen(client.at_ns);
                let number = client.client;
                if self.history.clients.insert(number, client).is_some() {
                    self.warn(line, &format!("client {number} is opened a second time"));
                }
            }
            Event::Invoke(invoke) => self.invoke(HotInvoke::from(&invoke), line)?,
            Event::Ok(completion) => {
                self.complete(HotCompletion::from(&completion), Outcome::Ok, line)?;
            }
            Event::Fail(completion) => {
                self.complete(HotCompletion::from(&completion), Outcome::Fail, line)?;
            }
            Event::Info(completion) => {
                self.complete(HotCompletion::from(&completion), Outcome::Info, line)?;
            }
            Event::Lost(lost) => {
                self.seen(lost.at_ns);
                self.history.lost.push(lost);
            }
            Event::Access(access) => {
                self.seen(access.at_ns);
                self.history.accesses.push(access);
            }
            Event::Lease(lease) => {
                self.seen(lease.at_ns);
                self.history.leases.push(lease);
            }
            Event::Leader(leader) => {
                self.seen(leader.at_ns);
                self.history.leaders.push(leader);
            }
            Event::Fault(fault) => {
                self.seen(fault.at_ns);
                self.history.faults.push(fault);
            }
            Event::Final(read) => {
                self.seen(read.at_ns);
                self.history.finals.push(read);
            }
            Event::End(end) => {
                self.seen(end.at_ns);
                self.history.end = Some(end);
            }
        }
        Ok(())
    }

    /// Takes the event of one line that was read the fast way.
    pub(super) fn push_hot(&mut self, hot: Hot<'_>, line: u64) -> Result<(), Problem> {
        if self.history.end.is_some() {
            self.warn(line, "an event after the `end` event");
        }
        match hot {
            Hot::Invoke(invoke) => self.invoke(invoke, line),
            Hot::Completion(outcome, completion) => self.complete(completion, outcome, line),
        }
    }

    /// The history so far; `truncated` says where it stops if that is not its end.
    pub(super) fn finish(mut self, truncated: Option<Truncation>) -> History {
        // The recorder may write accesses a little out of turn; `seq` is the resource's own order.
        self.history.accesses.sort_by_key(|access| access.seq);
        self.history.truncated = truncated;
        self.history
    }

    /// True when the `end` event was seen.
    pub(super) fn ended(&self) -> bool {
        self.history.end.is_some()
    }

    fn invoke(&mut self, invoke: HotInvoke<'_>, line: u64) -> Result<(), Problem> {
        let (op, client) = (invoke.op, invoke.client);
        if self.history.index_of(op).is_some() {
            return Err(Problem::RepeatedInvoke { op });
        }
        match self.busy.at(client).replace(Busy::Open(op)) {
            Some(Busy::Open(open)) => return Err(Problem::TwoOpen { client, op, open }),
            Some(Busy::Retired(unknown)) => {
                return Err(Problem::Retired {
                    client,
                    op,
                    unknown,
                });
            }
            None => {}
        }
        if !self.history.clients.contains_key(&client) {
            self.warn(line, &format!("client {client} was never opened"));
        }
        self.seen(invoke.at_ns);
        let history = &mut self.history;
        let place = history.operations.len();
        if place as u64 != op {
            history.displaced.insert(op, place);
        }
        history.operations.push(Operation {
            op,
            client,
            f: invoke.f,
            lock: history.locks.intern(invoke.lock),
            key: invoke.key.map(|key| history.keys.intern(key)),
            element: invoke.element,
            outcome: Outcome::Info,
            handed_over_ns: invoke.at_ns,
            invoke_ns: invoke.at_ns,
            return_ns: Ns::MAX,
            gave_up_ns: None,
            token: None,
            dead_on_arrival: false,
            wakes: None,
            version: None,
            base: None,
            holds: None,
            renewed_ns: None,
            error: None,
        });
        self.settled.push(false);
        Ok(())
    }

    fn complete(
        &mut self,
        completion: HotCompletion<'_>,
        outcome: Outcome,
        line: u64,
    ) -> Result<(), Problem> {
        let op = completion.op;
        let Some(place) = self.history.index_of(op) else {
            return Err(Problem::NoInvoke { op });
        };
        if std::mem::replace(&mut self.settled[place], true) {
            return Err(Problem::SecondCompletion { op });
        }
        let handed_over_ns = self.history.operations[place].handed_over_ns;
        // A completion made up for a client that died may have no invoke time of its own.
        let invoke_ns = match completion.invoke_ns {
            0 => handed_over_ns,
            invoke_ns => invoke_ns,
        };
        let return_ns = completion.return_ns;
        if return_ns < invoke_ns && outcome != Outcome::Info {
            return Err(Problem::Backwards {
                op,
                invoke_ns,
                return_ns,
            });
        }
        if invoke_ns.saturating_add(self.history.header.clock_error_ns) < handed_over_ns {
            self.warn(
                line,
                &format!("operation {op} was invoked before it was handed over"),
            );
        }
        self.seen(return_ns);
        let operation = &mut self.history.operations[place];
        let client = operation.client;
        operation.outcome = outcome;
        operation.invoke_ns = invoke_ns;
        operation.token = completion.token;
        operation.dead_on_arrival = completion.dead_on_arrival;
        operation.wakes = completion.wakes;
        operation.version = completion.version;
        operation.base = completion.base;
        operation.holds = completion.holds;
        operation.renewed_ns = completion.renewed_ns;
        operation.error = completion.error.map(Box::from);
        if outcome == Outcome::Info {
            operation.gave_up_ns = Some(return_ns.max(invoke_ns));
            *self.busy.at(client) = Some(Busy::Retired(op));
        } else {
            operation.return_ns = return_ns;
            *self.busy.at(client) = None;
        }
        Ok(())
    }

    fn seen(&mut self, at_ns: Ns) {
        self.history.last_ns = self.history.last_ns.max(at_ns);
    }

    fn warn(&mut self, line: u64, what: &str) {
        let warnings = &mut self.history.warnings;
        match warnings.len() {
            n if n < MAX_WARNINGS => warnings.push(format!("line {line}: {what}")),
            MAX_WARNINGS => warnings.push("more warnings are left out".to_owned()),
            _ => {}
        }
    }
}

fn empty(header: Header) -> History {
    History {
        last_ns: header.at_ns,
        header,
        operations: Vec::new(),
        locks: Names::default(),
        keys: Names::default(),
        clients: BTreeMap::new(),
        lost: Vec::new(),
        accesses: Vec::new(),
        leases: Vec::new(),
        leaders: Vec::new(),
        faults: Vec::new(),
        finals: Vec::new(),
        end: None,
        truncated: None,
        warnings: Vec::new(),
        displaced: HashMap::new(),
    }
}
