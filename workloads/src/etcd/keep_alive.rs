//! Keeps leases alive as the official Go client does (`client/v3/lease.go`, `lessor`).
//!
//! Each logical client has a lessor of its own, as each process that uses the library has: etcd answers the
//! renewals of one stream one after the other, so that a stream shared by a thousand clients would lose
//! leases that a thousand processes keep. Every 500 ms each lease whose time has come is renewed; the time
//! comes TTL/3 after the latest answer, so that renewals are up to TTL/3 + 500 ms apart, and an unanswered one is
//! sent again at the next tick. An answer with TTL 0 ends a lease, and so does TTL without an answer. A broken
//! stream is opened again after 500 ms. All of it runs in plain tasks by the process's own clock: in a
//! paused process nothing is renewed and nothing is noticed. What must not be in here: requests of its own
//! to find out more about a lease.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::unfold;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::client::{EtcdClient, Rpc};
use super::errors::EtcdError;
use super::wire::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use crate::belief::{Belief, Moment};

const PATH: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// Go: `retryConnWait`, also the period of its send loop and of its deadline loop.
const TICK: Duration = Duration::from_millis(500);

/// Renews the leases of one logical client over one stream, which is opened with the first of them.
pub(crate) struct Lessor {
    rpc: Rpc,
    leases: Arc<Leases>,
    first_answer: Duration,
    task: OnceLock<tokio::task::AbortHandle>,
}

#[derive(Default)]
struct Leases(Mutex<HashMap<i64, Lease>>);

struct Lease {
    belief: Arc<Belief>,
    next_send: Instant,
    deadline: Instant,
    /// When each renewal without an answer was sent on the present stream; the server answers in order.
    unanswered: VecDeque<Moment>,
}

/// Keeps one lease alive until it is dropped.
pub(super) struct KeepAlive {
    leases: Arc<Leases>,
    lease: i64,
}

impl Lessor {
    /// A lessor on this connection.
    pub(crate) fn new(client: &EtcdClient) -> Self {
        Self {
            rpc: client.rpc().clone(),
            leases: Arc::default(),
            // Go: NewLease gives the first answer the dial timeout and one second more.
            first_answer: client.connect_timeout() + Duration::from_secs(1),
            task: OnceLock::new(),
        }
    }

    /// Renews `lease` from now on and tells `belief` what comes of it.
    pub(super) fn keep_alive(&self, lease: i64, belief: Arc<Belief>) -> KeepAlive {
        let now = Instant::now();
        let entry = Lease {
            belief,
            next_send: now,
            deadline: now + self.first_answer,
            unanswered: VecDeque::new(),
        };
        self.leases.lock().insert(lease, entry);
        self.task.get_or_init(|| {
            let (rpc, leases) = (self.rpc.clone(), Arc::clone(&self.leases));
            tokio::spawn(async move {
                tokio::join!(run_streams(&rpc, &leases), watch_deadlines(&leases));
            })
            .abort_handle()
        });
        KeepAlive {
            leases: Arc::clone(&self.leases),
            lease,
        }
    }
}

impl Drop for Lessor {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.lease);
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new stream answers nothing that was sent on an earlier one.
    fn forget_unanswered(&self) {
        self.lock()
            .values_mut()
            .for_each(|lease| lease.unanswered.clear());
    }

    /// Sends what is due; false when the stream takes no more.
    fn send_due(&self, stream: &UnboundedSender<LeaseKeepAliveRequest>) -> bool {
        let now = Instant::now();
        for (&id, lease) in self
            .lock()
            .iter_mut()
            .filter(|(_, lease)| lease.next_send <= now)
        {
            // Stamped before it is sent: the lease lives at least TTL from here.
            lease.unanswered.push_back(Moment::now());
            if stream.send(LeaseKeepAliveRequest { id }).is_err() {
                return false;
            }
        }
        true
    }

    fn answered(&self, answer: &LeaseKeepAliveResponse) {
        let mut leases = self.lock();
        let Some(lease) = leases.get_mut(&answer.id) else {
            return;
        };
        let Some(ttl) = u64::try_from(answer.ttl)
            .ok()
            .filter(|ttl| *ttl > 0)
            .map(Duration::from_secs)
        else {
            lease.belief.lost("lease not found");
            leases.remove(&answer.id);
            return;
        };
        if let Some(sent) = lease.unanswered.pop_front() {
            lease.belief.renewed(sent, ttl);
        }
        let now = Instant::now();
        lease.next_send = now + ttl / 3;
        lease.deadline = now + ttl;
    }

    fn drop_overdue(&self) {
        let now = Instant::now();
        self.lock().retain(|_, lease| {
            let alive = lease.deadline >= now;
            if !alive {
                lease.belief.lost("keep-alive deadline passed");
            }
            alive
        });
    }
}

/// Go: `recvKeepAliveLoop`.
async fn run_streams(rpc: &Rpc, leases: &Leases) {
    loop {
        // Why a stream ended does not matter to a lease: its deadline decides.
        let _ended: Result<(), EtcdError> = run_stream(rpc, leases).await;
        tokio::time::sleep(TICK).await;
    }
}

/// One stream, from its opening until it breaks.
async fn run_stream(rpc: &Rpc, leases: &Leases) -> Result<(), EtcdError> {
    leases.forget_unanswered();
    let (sender, receiver) = unbounded_channel();
    let requests = unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|next| (next, receiver))
    });
    let receive = async {
        let mut answers = rpc
            .stream::<_, LeaseKeepAliveResponse>(PATH, true, requests)
            .await?;
        while let Some(answer) = answers
            .message()
            .await
            .map_err(|status| rpc.stream_error(PATH, &status))?
        {
            leases.answered(&answer);
        }
        Ok(())
    };
    // Go: `sendKeepAliveLoop`.
    let send = async {
        while leases.send_due(&sender) {
            tokio::time::sleep(TICK).await;
        }
        std::future::pending::<()>().await; // the receiver knows why
    };
    tokio::select! {
        ended = receive => ended,
        () = send => Ok(()),
    }
}

/// Go: `deadlineLoop`.
async fn watch_deadlines(leases: &Leases) {
    loop {
        tokio::time::sleep(TICK).await;
        leases.drop_overdue();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases_with(belief: &Arc<Belief>, first_answer: Duration) -> Leases {
        let leases = Leases::default();
        let now = Instant::now();
        let (belief, unanswered) = (Arc::clone(belief), VecDeque::new());
        leases.lock().insert(
            7,
            Lease {
                belief,
                next_send: now,
                deadline: now + first_answer,
                unanswered,
            },
        );
        leases
    }

    #[test]
    fn an_answer_renews_from_the_moment_its_request_was_sent() {
        let belief = Arc::new(Belief::new());
        let leases = leases_with(&belief, Duration::from_secs(9));
        let (sender, mut receiver) = unbounded_channel();
        let before = Moment::now();
        // Unanswered, it is due again at once; the first answer belongs to the first request.
        assert!(leases.send_due(&sender) && leases.send_due(&sender));
        let between = Moment::now();
        std::thread::sleep(Duration::from_millis(20));
        leases.answered(&LeaseKeepAliveResponse { id: 7, ttl: 3 });
        let renewed = belief.renewed_ns().expect("renewed");
        assert!((before.truth_ns..=between.truth_ns).contains(&renewed));
        assert_eq!(receiver.try_recv().map(|request| request.id), Ok(7));
        // Answered, it is due only after TTL/3.
        assert!(receiver.try_recv().is_ok() && leases.send_due(&sender));
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn an_answer_without_ttl_ends_the_lease() {
        let belief = Arc::new(Belief::new());
        let leases = leases_with(&belief, Duration::from_secs(9));
        leases.answered(&LeaseKeepAliveResponse { id: 7, ttl: 0 });
        assert_eq!(
            belief.told_lost().map(|(_, why)| why).as_deref(),
            Some("lease not found")
        );
        assert!(leases.lock().is_empty());
    }

    #[test]
    fn a_lease_without_an_answer_is_lost_at_its_deadline() {
        let belief = Arc::new(Belief::new());
        let leases = leases_with(&belief, Duration::from_millis(30));
        leases.drop_overdue();
        assert!(belief.told_lost().is_none());
        std::thread::sleep(Duration::from_millis(40));
        leases.drop_overdue();
        assert_eq!(
            belief.told_lost().map(|(_, why)| why).as_deref(),
            Some("keep-alive deadline passed")
        );
    }
}
