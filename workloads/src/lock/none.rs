//! The lock `none`: every acquire succeeds at once. What a workload does without any lock.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use super::{Grant, LockClient, LockConnection, LockSpec};
use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::reply::Reply;

/// Registry entry.
pub const SPEC: LockSpec = LockSpec {
    name: "none",
    summary: "no lock at all: every acquire succeeds at once; shows what the checks report then",
    backend: "",
    token: "none",
    leased: false,
    disciplines: &[Discipline::Ignore],
    options: &[],
    check: |_| Ok(()),
    connect: |_| ready(Ok(Box::new(NoLock) as Box<dyn LockConnection>)).boxed(),
};

struct NoLock;

impl LockConnection for NoLock {
    fn client(&self, _client: u32, _belief: Arc<Belief>) -> Box<dyn LockClient> {
        Box::new(NoLock)
    }
}

impl LockClient for NoLock {
    fn acquire<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        ready(Reply::Ok(Grant::default())).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        ready(Reply::Ok(())).boxed()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }
}
