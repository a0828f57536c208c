//! A watch that is opened again where it broke off, as the official Go client's is (`client/v3/watch.go`).
//!
//! What must not be in here: what the events mean.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{once, pending};

use super::client::EtcdClient;
use super::errors::EtcdError;
use super::wire::{
    Event, WatchCreateRequest, WatchRequest, WatchRequestKind, WatchResponse, prefix_end,
};

const PATH: &str = "/etcdserverpb.Watch/Watch";

/// Wait before a broken watch is opened again. Go backs off from 1 to 100 ms; one step is enough here.
const BACKOFF: Duration = Duration::from_millis(50);

/// The changes of one key or of all keys below a prefix.
pub(crate) struct Watch {
    client: EtcdClient,
    key: Vec<u8>,
    range_end: Vec<u8>,
    prev_kv: bool,
    next_revision: i64,
    stream: Option<tonic::Streaming<WatchResponse>>,
}

/// Why a watch cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum WatchEnd {
    /// History was thrown away before it was read.
    #[error("revisions before {oldest} were compacted while the watch was at {at}")]
    Compacted { at: i64, oldest: i64 },
    /// The server ended it for good.
    #[error("the server cancelled the watch: {0}")]
    Cancelled(String),
    /// A word of the server that opening again cannot mend.
    #[error(transparent)]
    Refused(#[from] EtcdError),
}

impl Watch {
    /// The changes of one key from a revision on.
    pub(crate) fn key(client: &EtcdClient, key: &[u8], from_revision: i64) -> Self {
        let (client, key) = (client.clone(), key.to_vec());
        Self {
            client,
            key,
            range_end: Vec::new(),
            prev_kv: false,
            next_revision: from_revision,
            stream: None,
        }
    }

    /// The changes below a prefix from a revision on, with the value before each.
    pub(crate) fn prefix(client: &EtcdClient, prefix: &[u8], from_revision: i64) -> Self {
        Self {
            range_end: prefix_end(prefix),
            prev_kv: true,
            ..Self::key(client, prefix, from_revision)
        }
    }

    /// Goes on at another revision.
    pub(crate) fn restart_at(&mut self, revision: i64) {
        self.next_revision = revision;
        self.stream = None;
    }

    /// Opens the stream anew at the revision where it stands.
    pub(crate) fn resume(&mut self) {
        self.stream = None;
    }

    /// Waits for the next changes, for as long as it takes. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Vec<Event>, WatchEnd> {
        loop {
            let answer = match self.receive().await {
                Ok(Some(answer)) => answer,
                Err(error) if !error.reopens_stream() => return Err(error.into()),
                Ok(None) | Err(_) => {
                    self.stream = None;
                    tokio::time::sleep(BACKOFF).await;
                    continue;
                }
            };
            if answer.compact_revision != 0 {
                return Err(WatchEnd::Compacted {
                    at: self.next_revision,
                    oldest: answer.compact_revision,
                });
            }
            if answer.canceled {
                return Err(WatchEnd::Cancelled(answer.cancel_reason));
            }
            if let Some(last) = answer
                .events
                .iter()
                .filter_map(|event| event.kv.as_ref())
                .next_back()
            {
                self.next_revision = last.mod_revision + 1;
                return Ok(answer.events);
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<WatchResponse>, EtcdError> {
        let rpc = self.client.rpc();
        if self.stream.is_none() {
            let create = WatchCreateRequest {
                key: self.key.clone(),
                range_end: self.range_end.clone(),
                start_revision: self.next_revision,
                prev_kv: self.prev_kv,
            };
            let create = WatchRequest {
                request: Some(WatchRequestKind::Create(create)),
            };
            // The stream of requests stays open: its end would be our farewell.
            let requests = once(std::future::ready(create)).chain(pending());
            self.stream = Some(rpc.stream(PATH, false, requests).await?);
        }
        let stream = self.stream.as_mut().expect("opened above");
        stream
            .message()
            .await
            .map_err(|status| rpc.stream_error(PATH, &status))
    }
}
