//! One logical client: it does the steps it is handed, one after the other, and stamps them.

use std::sync::Arc;

use checkers::history::{Completion, Function, Ns, Outcome};
use tokio::task::AbortHandle;

use super::protocol::{FromWorker, LostLine};
use super::serve::Out;
use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::lock::{Grant, LockClient};
use crate::reply::Reply;
use crate::resource::{Resource, Snapshot, Write};
use crate::truth;

/// A step without borrowed parts.
#[derive(Clone, Debug)]
pub struct OwnedStep {
    /// Operation.
    pub op: u64,
    /// What to do.
    pub f: Function,
    /// The lock.
    pub lock: String,
    /// The register.
    pub key: Option<String>,
    /// The element to add.
    pub element: Option<u64>,
}

/// A logical client of a worker.
pub struct Client {
    id: u32,
    lock: Box<dyn LockClient>,
    leased: bool,
    resource: Option<Arc<dyn Resource>>,
    discipline: Discipline,
    belief: Arc<Belief>,
    out: Out,
    grant: Option<Grant>,
    read: Option<(String, Snapshot)>,
    watch: Option<AbortHandle>,
}

impl Client {
    /// A client that holds nothing.
    #[must_use]
    pub fn new(
        id: u32,
        lock: Box<dyn LockClient>,
        leased: bool,
        resource: Option<Arc<dyn Resource>>,
        discipline: Discipline,
        belief: Arc<Belief>,
        out: Out,
    ) -> Self {
        Self {
            id,
            lock,
            leased,
            resource,
            discipline,
            belief,
            out,
            grant: None,
            read: None,
            watch: None,
        }
    }

    /// Does one step and reports its end.
    pub async fn step(&mut self, step: OwnedStep) {
        let mut done = Completion {
            op: step.op,
            invoke_ns: truth::now_ns(),
            ..Completion::default()
        };
        // A release forgets the lease; what was known of it until then still belongs to the term.
        let renewed_ns = self
            .belief
            .renewed_ns()
            .filter(|_| step.f != Function::Acquire);
        let reply = match step.f {
            Function::Acquire => self.acquire(&step, &mut done).await,
            Function::Release => self.release(&step).await,
            Function::Read => self.read(&step, &mut done).await,
            Function::Write => self.write(&step, &mut done).await,
            Function::Holds => {
                done.holds =
                    Some(self.grant.is_some() && self.discipline.permits(&self.belief).is_ok());
                Reply::Ok(())
            }
        };
        done.return_ns = truth::now_ns();
        done.renewed_ns = self.belief.renewed_ns().or(renewed_ns);
        let acquired = step.f == Function::Acquire && matches!(reply, Reply::Ok(()));
        let return_ns = done.return_ns;
        let outcome = match reply {
            Reply::Ok(()) => Outcome::Ok,
            Reply::Fail(reason) => {
                done.error = Some(reason.to_string());
                Outcome::Fail
            }
            Reply::Info(reason) => {
                done.error = Some(reason.to_string());
                Outcome::Info
            }
        };
        self.out.line(&FromWorker::done(outcome, done));
        if acquired && self.leased {
            self.watch_belief(step.lock, return_ns);
        }
    }

    /// Gives up what is held.
    pub async fn close(mut self) {
        self.stop_watching();
        self.lock.close().await;
    }

    async fn acquire(&mut self, step: &OwnedStep, done: &mut Completion) -> Reply<()> {
        self.read = None;
        let acquired = self.lock.acquire(&step.lock).await;
        done.wakes = self.lock.wakes();
        match acquired {
            Reply::Ok(grant) => {
                done.token = grant.token;
                done.dead_on_arrival = grant.dead_on_arrival;
                self.grant = Some(grant);
                Reply::Ok(())
            }
            Reply::Fail(reason) => Reply::Fail(reason),
            Reply::Info(reason) => Reply::Info(reason),
        }
    }

    async fn release(&mut self, step: &OwnedStep) -> Reply<()> {
        self.stop_watching();
        self.grant = None;
        self.lock.release(&step.lock).await
    }

    async fn read(&mut self, step: &OwnedStep, done: &mut Completion) -> Reply<()> {
        let (Some(resource), Some(key)) = (&self.resource, &step.key) else {
            return Reply::fail("bad-step", "a read needs a resource and a `key`");
        };
        let token = self.grant.as_ref().and_then(|grant| grant.token);
        resource
            .read(key, Some(step.op), token)
            .await
            .map(|snapshot| {
                done.version = Some(snapshot.version);
                self.read = Some((key.clone(), snapshot));
            })
    }

    async fn write(&mut self, step: &OwnedStep, done: &mut Completion) -> Reply<()> {
        let (Some(resource), Some(key), Some(element)) = (&self.resource, &step.key, step.element)
        else {
            return Reply::fail(
                "bad-step",
                "a write needs a resource, a `key` and an `element`",
            );
        };
        let Some((_, snapshot)) = self.read.take_if(|read| read.0 == *key) else {
            return Reply::fail("bad-step", "a write needs a read of the same key before it");
        };
        if let Err(reason) = self.discipline.permits(&self.belief) {
            return Reply::Fail(reason);
        }
        let grant = self.grant.clone().unwrap_or_default();
        let guard = match (self.discipline, &grant.guard) {
            (Discipline::Txn, None) => {
                return Reply::fail("no-guard", "the grant has no lock key to compare");
            }
            (Discipline::Txn, guard) => guard.as_ref(),
            _ => None,
        };
        let mut elements = snapshot.elements;
        elements.push(element);
        done.base = Some(snapshot.version);
        let write = Write {
            key,
            op: step.op,
            elements: &elements,
            token: grant.token,
            guard,
        };
        resource
            .write(write)
            .await
            .map(|version| done.version = Some(version))
    }

    /// Reports the moment at which the holder could know that its lock is gone.
    /// What was lost while the acquire was still under way the holder learns when it returns.
    fn watch_belief(&mut self, lock: String, acquired_ns: Ns) {
        self.stop_watching();
        let (belief, out, client) = (Arc::clone(&self.belief), self.out.clone(), self.id);
        let own_deadline = self.discipline == Discipline::Deadline;
        let watch = async move {
            let (at_ns, why) = tokio::select! {
                (moment, why) = belief.until_told_lost() => (moment.truth_ns, why),
                () = belief.until_deadline(), if own_deadline => (truth::now_ns(), "deadline".to_owned()),
            };
            let at_ns = at_ns.max(acquired_ns);
            out.line(&FromWorker {
                lost: Some(LostLine {
                    client,
                    lock,
                    at_ns,
                    why,
                }),
                ..FromWorker::default()
            });
        };
        self.watch = Some(tokio::spawn(watch).abort_handle());
    }

    fn stop_watching(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }
}
