//! What runs behind a [`Session`](super::Session): sends its requests, pings, hears the answers and watch
//! events, and takes the session up again when the connection broke. Rules and their source: see there.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::{self, Connection, Opened, Ticket};
use super::errors::{Cause, SESSION_EXPIRED, SESSION_MOVED};
use super::jute::{Malformed, Reader, Writer};
use super::session::{Failure, Request, SessionConfig, SessionEvent, Shared, Told, WatchKind};
use super::wire::{
    EventKind, OpCode, ReplyHeader, WatchEvent, XID_EVENT, XID_PING, XID_SET_WATCHES, read_event,
    request, set_watches,
};
use crate::belief::Moment;

/// Before the server is tried again. Java waits for a random part of a second; this is its mean.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// A session's task.
pub(super) struct Driver {
    shared: Arc<Shared>,
    config: SessionConfig,
    ticket: Ticket,
    requests: UnboundedReceiver<Request>,
    events: UnboundedSender<SessionEvent>,
    /// Sent on the present connection and not answered; the server answers in order.
    unanswered: VecDeque<InFlight>,
    /// Pings among them have a number of their own.
    pings: VecDeque<Moment>,
    watches: BTreeSet<(WatchKind, String)>,
    last_xid: i32,
    last_zxid: i64,
    last_sent: Instant,
    last_heard: Instant,
}

struct InFlight {
    xid: i32,
    sent: Moment,
    watch: Option<(WatchKind, String)>,
    answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
}

/// Why a connection is not served any longer.
enum Ended {
    /// It broke: the session may live on.
    Broken(String),
    /// The session was closed, or nobody holds its handle.
    Closed,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Ended::Broken(error.to_string())
    }
}

impl From<Malformed> for Ended {
    fn from(error: Malformed) -> Self {
        Ended::Broken(format!("an answer that makes no sense: {error}"))
    }
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        config: SessionConfig,
        ticket: Ticket,
        requests: UnboundedReceiver<Request>,
        events: UnboundedSender<SessionEvent>,
    ) -> Self {
        let now = Instant::now();
        Self {
            shared,
            config,
            ticket,
            requests,
            events,
            unanswered: VecDeque::new(),
            pings: VecDeque::new(),
            watches: BTreeSet::new(),
            last_xid: 0,
            last_zxid: 0,
            last_sent: now,
            last_heard: now,
        }
    }

    /// Serves the session until it is over.
    pub(super) async fn run(mut self, mut connection: Connection) {
        let why = loop {
            let ended = self.serve(&mut connection).await;
            drop(connection);
            let why = match ended {
                Ended::Closed => break "it was closed".to_owned(),
                Ended::Broken(why) => why,
            };
            self.suspend(&why);
            match self.reconnect().await {
                Ok(again) => connection = again,
                Err(over) => break over,
            }
        };
        // Whoever still waits for a connection learns the reason when the queue goes.
        let _ = self.shared.over.set(why.clone());
        self.shared.tell(|belief| belief.lost(why.clone()));
        let _ = self.events.send(SessionEvent::Over(why));
    }

    /// Works on one connection until it ends.
    async fn serve(&mut self, connection: &mut Connection) -> Ended {
        let timeout = self.shared.timeout;
        loop {
            let (ping_at, silent_at) = (
                self.last_sent + timeout / 3,
                self.last_heard + timeout * 2 / 3,
            );
            let done = tokio::select! {
                // After a pause, what the server said meanwhile comes before what the clock says.
                biased;
                frame = connection.frame() => match frame {
                    Ok(frame) => self.hear(&frame),
                    Err(error) => Err(error.into()),
                },
                request = self.requests.recv() => match request {
                    Some(request) => self.send(connection, request).await,
                    None => Err(Ended::Closed),
                },
                () = sleep_until(silent_at), if self.config.keep_alive => {
                    let silent_ms = timeout.as_millis() * 2 / 3;
                    Err(Ended::Broken(format!("the server was silent for {silent_ms} ms")))
                }
                () = sleep_until(ping_at), if self.config.keep_alive => self.ping(connection).await,
            };
            if let Err(ended) = done {
                return ended;
            }
        }
    }

    async fn send(&mut self, connection: &mut Connection, next: Request) -> Result<(), Ended> {
        if !next.fate.send() {
            return Ok(()); // its caller has gone
        }
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        // Stamped before it is sent: the session lives at least its timeout from here.
        self.unanswered.push_back(InFlight {
            xid: self.last_xid,
            sent: Moment::now(),
            watch: next.watch,
            answer: next.answer,
        });
        let frame = request(self.last_xid, next.op, next.body);
        self.write(connection, &frame).await
    }

    async fn ping(&mut self, connection: &mut Connection) -> Result<(), Ended> {
        self.pings.push_back(Moment::now());
        let frame = request(XID_PING, OpCode::Ping, Writer::new());
        self.write(connection, &frame).await
    }

    async fn write(&mut self, connection: &mut Connection, frame: &[u8]) -> Result<(), Ended> {
        self.last_sent = Instant::now();
        let limit = self.shared.timeout * 2 / 3;
        Ok(connection.send(frame, limit).await?)
    }

    /// Takes one frame of the server.
    fn hear(&mut self, frame: &[u8]) -> Result<(), Ended> {
        self.last_heard = Instant::now();
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::read(&mut reader)?;
        match header.xid {
            XID_EVENT => {
                let event = read_event(&mut reader)?;
                self.went_off(&event);
                let _ = self.events.send(SessionEvent::Watch(event));
                return Ok(());
            }
            XID_PING => {
                if let Some(sent) = self.pings.pop_front() {
                    self.renewed(sent);
                }
                return Ok(());
            }
            XID_SET_WATCHES => return Ok(()),
            _ => {}
        }
        let Some(done) = self.unanswered.pop_front() else {
            return Err(Ended::Broken("an answer that nobody asked for".to_owned()));
        };
        if done.xid != header.xid {
            let what = format!("expected answer {}, found {}", done.xid, header.xid);
            self.unanswered.push_front(done);
            return Err(Ended::Broken(what));
        }
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        if !matches!(header.error, SESSION_EXPIRED | SESSION_MOVED) {
            self.renewed(done.sent);
        }
        if header.error == 0 {
            self.watches.extend(done.watch);
            let _ = done.answer.send(Ok(reader.rest().to_vec()));
        } else {
            let _ = done.answer.send(Err(said(header.error)));
        }
        Ok(())
    }

    fn renewed(&self, sent: Moment) {
        *self.shared.renewed() = sent;
        self.shared
            .tell(|belief| belief.renewed(sent, self.shared.timeout));
    }

    /// A watch goes off once.
    fn went_off(&mut self, event: &WatchEvent) {
        let kinds: &[WatchKind] = match event.kind {
            EventKind::Created | EventKind::DataChanged => &[WatchKind::Data],
            EventKind::ChildrenChanged => &[WatchKind::Children],
            EventKind::Deleted => &[WatchKind::Data, WatchKind::Children],
            EventKind::Other(_) => &[],
        };
        for kind in kinds {
            self.watches.remove(&(*kind, event.path.clone()));
        }
    }

    /// The connection is gone: nobody will answer what was sent on it.
    fn suspend(&mut self, why: &str) {
        self.pings.clear();
        for lost in self.unanswered.drain(..) {
            let _ = lost.answer.send(Err(Failure {
                cause: Cause::ConnectionLost,
                text: why.to_owned(),
            }));
        }
        let _ = self.events.send(SessionEvent::Suspended(why.to_owned()));
        if self.config.told == Told::Suspended {
            self.shared
                .tell(|belief| belief.lost(format!("SUSPENDED: {why}")));
        }
    }

    /// Takes the session up on a new connection, or says why it is over. A try may last a third of the session's
    /// timeout: so long the Java client gives each of three servers (`ClientCnxn.onConnected`: the timeout
    /// divided by the number of hosts). A server that is starting may accept a connection and never read from
    /// it (ZOOKEEPER-3916), so that a single long try would cost the session.
    async fn reconnect(&mut self) -> Result<Connection, String> {
        let timeout = self.shared.timeout;
        let lost_at = Instant::now() + timeout;
        let tries = async {
            loop {
                sleep(RECONNECT_AFTER).await;
                let sent = Moment::now();
                let opened = connection::open(
                    self.config.endpoint,
                    &self.ticket,
                    timeout,
                    self.last_zxid,
                    timeout / 3,
                )
                .await;
                match opened {
                    Ok(Opened::Session(connection, ..)) => return Ok((connection, sent)),
                    Ok(Opened::Expired) => return Err("session expired".to_owned()),
                    Err(_) => {} // the next try may do better
                }
            }
        };
        let tried = tokio::select! {
            tried = tries => tried,
            () = sleep_until(lost_at), if self.config.told == Told::Lost => {
                Err(format!("LOST: no connection for {} ms", timeout.as_millis()))
            }
        };
        let (mut connection, sent) = tried?;
        (self.last_sent, self.last_heard) = (Instant::now(), Instant::now());
        self.renewed(sent);
        // If that breaks the connection too, the next one tries again.
        let _ = self.watch_again(&mut connection).await;
        let _ = self.events.send(SessionEvent::Connected);
        Ok(connection)
    }

    async fn watch_again(&mut self, connection: &mut Connection) -> Result<(), Ended> {
        if self.watches.is_empty() {
            return Ok(());
        }
        let of = |kind| {
            let paths = self.watches.iter().filter(move |watch| watch.0 == kind);
            paths.map(|watch| watch.1.as_str()).collect::<Vec<_>>()
        };
        let body = set_watches(
            self.last_zxid,
            &of(WatchKind::Data),
            &of(WatchKind::Children),
        );
        let frame = request(XID_SET_WATCHES, OpCode::SetWatches, body);
        self.write(connection, &frame).await
    }
}

fn said(code: i32) -> Failure {
    Failure {
        cause: Cause::Server(code),
        text: format!("the server answered with error {code}"),
    }
}
