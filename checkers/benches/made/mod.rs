//! Made histories for measurements: a lock that works, with as many operations as wanted.

use std::io::Write;

use checkers::history::{
    ClientOpened, Completion, End, EndReason, Event, FORMAT_VERSION, Function, Header,
    HistoryWriter, Invoke, Outcome,
};
use checkers::model::op::{Action, FOREVER, Op, UNKNOWN, pair};

/// What is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Acquires and releases.
    pub(crate) operations: u64,
    /// Clients at one time; one of unknown outcome is replaced.
    pub(crate) clients: u32,
    /// Of a hundred operations, so many have an unknown outcome.
    pub(crate) unknown_percent: u64,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// The operations of one lock in the order of their invokes, and valid. All clients wait; whoever has
/// the lock gives it back, and the next in turn gets it.
pub(crate) fn lock(shape: &Shape) -> Vec<Op> {
    let mut random = Random(7);
    let clients = u64::from(shape.clients);
    let mut ops: Vec<Op> = Vec::with_capacity(shape.operations as usize);
    let (mut now, mut next_process, mut token) = (1_000_000_u64, shape.clients, 0);
    // When each client asked for the lock, and under which number.
    let mut waiting: Vec<(u64, u32)> = (0..shape.clients)
        .map(|client| (now + u64::from(client), client))
        .collect();
    now += clients;
    while (ops.len() as u64) < shape.operations {
        let place = random.below(clients) as usize;
        let (asked_at, process) = waiting[place];
        let unknown = random.below(100) < shape.unknown_percent;
        let granted_at = now.max(asked_at) + 1 + random.below(500);
        token += 1;
        let op = |invoke_at, return_at, arg, action, unknown: bool| Op {
            invoke_at,
            return_at: if unknown { FOREVER } else { return_at },
            arg,
            process,
            key: 0,
            id: 0,
            action,
            outcome: if unknown { Outcome::Info } else { Outcome::Ok },
        };
        if unknown && random.below(2) == 0 {
            ops.push(op(asked_at, FOREVER, UNKNOWN, Action::Acquire, true));
            waiting[place] = (granted_at, next_process);
            next_process += 1;
            continue;
        }
        let released_at = granted_at + 1 + random.below(1_000);
        let returned_at = released_at + 1 + random.below(300);
        ops.push(op(asked_at, granted_at, token, Action::Acquire, false));
        ops.push(op(released_at, returned_at, 0, Action::Release, unknown));
        now = released_at;
        if unknown {
            waiting[place] = (returned_at + 1, next_process);
            next_process += 1;
        } else {
            waiting[place] = (returned_at + 1 + random.below(2_000), process);
        }
    }
    ops.sort_by_key(|op| op.invoke_at);
    (0_u32..).zip(&mut ops).for_each(|(id, op)| op.id = id);
    ops
}

/// The operations of one register with values that never repeat, and valid.
#[allow(dead_code)] // The example does not use it.
pub(crate) fn register(shape: &Shape) -> Vec<Op> {
    let mut random = Random(11);
    let (mut now, mut value, mut fresh) = (0_u64, 0_u32, 0_u32);
    let mut ops = Vec::with_capacity(shape.operations as usize);
    for place in 0..shape.operations {
        // Takes effect at `now`; begun up to `clients` operations before, as long as those that overlap.
        now += 10;
        let spread = 5 * u64::from(shape.clients);
        let unknown = random.below(100) < shape.unknown_percent;
        let (action, arg) = match random.below(3) {
            0 => (
                Action::Read,
                if unknown { UNKNOWN } else { u64::from(value) },
            ),
            1 => {
                fresh += 1;
                value = fresh;
                (Action::Write, u64::from(value))
            }
            _ => {
                fresh += 1;
                let arg = pair(value, fresh);
                value = fresh;
                (Action::Cas, arg)
            }
        };
        ops.push(Op {
            invoke_at: now.saturating_sub(random.below(spread)),
            return_at: if unknown {
                FOREVER
            } else {
                now + random.below(spread)
            },
            arg,
            process: place as u32,
            key: 0,
            id: 0,
            action,
            outcome: if unknown { Outcome::Info } else { Outcome::Ok },
        });
    }
    ops.sort_by_key(|op| op.invoke_at);
    (0_u32..).zip(&mut ops).for_each(|(id, op)| op.id = id);
    ops
}

/// A lock's history as fencepost stores it.
pub(crate) fn write(shape: &Shape, sink: impl Write) {
    let ops = lock(shape);
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * ops.len());
    for op in &ops {
        events.push((op.invoke_at, false, op.id));
        let gave_up_at = op.invoke_at + 1_000_000;
        events.push((
            if op.return_at == FOREVER {
                gave_up_at
            } else {
                op.return_at
            },
            true,
            op.id,
        ));
    }
    events.sort_unstable();
    let mut writer = HistoryWriter::new(sink).expect("it starts");
    writer.write(&Event::Header(header())).expect("it writes");
    let clients = ops.iter().map(|op| op.process).max().unwrap_or(0);
    for client in 0..=clients {
        let (host, node) = (format!("c{}", client % 5), "n1".to_owned());
        let opened = ClientOpened {
            client,
            host,
            node,
            at_ns: 1,
        };
        writer.write(&Event::Client(opened)).expect("it writes");
    }
    for (at_ns, completion, id) in events {
        writer
            .write(&event(&ops[id as usize], at_ns, completion))
            .expect("it writes");
    }
    let at_ns = ops.iter().map(|op| op.invoke_at).max().unwrap_or(0) + 2_000_000;
    writer
        .write(&Event::End(End {
            reason: EndReason::Completed,
            at_ns,
        }))
        .expect("it writes");
    writer.finish().expect("it ends");
}

fn event(op: &Op, at_ns: u64, completion: bool) -> Event {
    if !completion {
        return Event::Invoke(Invoke {
            op: op.id.into(),
            client: op.process,
            f: if op.action == Action::Acquire {
                Function::Acquire
            } else {
                Function::Release
            },
            lock: "l0".to_owned(),
            key: None,
            element: None,
            at_ns,
        });
    }
    let mut completion = Completion {
        op: op.id.into(),
        invoke_ns: op.invoke_at,
        return_ns: at_ns,
        renewed_ns: Some(op.invoke_at),
        ..Completion::default()
    };
    if op.outcome == Outcome::Info {
        completion.error = Some("timeout: no answer".to_owned());
        return Event::Info(completion);
    }
    completion.token = op.token().filter(|_| op.action == Action::Acquire);
    Event::Ok(completion)
}

fn header() -> Header {
    Header {
        format: FORMAT_VERSION,
        title: "made".into(),
        arm: "made".into(),
        trial: 1,
        seed: 7,
        backend: "made".into(),
        workload: "mutex".into(),
        lock: "made".into(),
        resource: String::new(),
        discipline: "ignore".into(),
        tokens: "record".into(),
        ttl_ms: 2000,
        faults: false,
        clock_error_ns: 0,
        at_ns: 0,
    }
}
