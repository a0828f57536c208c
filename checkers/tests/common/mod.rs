//! Events for tests, without the fields that a test does not care about.
#![allow(dead_code)] // Each test binary uses some of them.

use checkers::history::{
    ClientOpened, Completion, End, EndReason, Event, FORMAT_VERSION, Function, Header, Invoke, Ns,
};

/// A header of a run without faults.
pub(crate) fn header() -> Header {
    Header {
        format: FORMAT_VERSION,
        title: "test".into(),
        arm: "default".into(),
        trial: 1,
        seed: 7,
        backend: "builtin@model".into(),
        workload: "guarded-set".into(),
        lock: "builtin".into(),
        resource: "memory".into(),
        discipline: "ignore".into(),
        tokens: "record".into(),
        ttl_ms: 2000,
        faults: false,
        clock_error_ns: 0,
        at_ns: 0,
    }
}

/// A client on host `c<number>`.
pub(crate) fn client(client: u32) -> Event {
    Event::Client(ClientOpened {
        client,
        host: format!("c{client}"),
        node: "n1".into(),
        at_ns: 0,
    })
}

/// An invoke without key and element.
pub(crate) fn invoke(op: u64, client: u32, f: Function, lock: &str, at_ns: Ns) -> Invoke {
    Invoke {
        op,
        client,
        f,
        lock: lock.into(),
        key: None,
        element: None,
        at_ns,
    }
}

/// A completion with its times only.
pub(crate) fn completion(op: u64, invoke_ns: Ns, return_ns: Ns) -> Completion {
    Completion {
        op,
        invoke_ns,
        return_ns,
        ..Completion::default()
    }
}

/// The last line.
pub(crate) fn end(at_ns: Ns) -> Event {
    Event::End(End {
        reason: EndReason::Completed,
        at_ns,
    })
}
