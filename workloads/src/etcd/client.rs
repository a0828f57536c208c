//! One bare channel to one etcd node, and one call each for what fencepost asks of it.
//!
//! tonic's channel connects again by itself once its connection broke, as any client library does; a
//! request that was under way when it broke ends with an error, never with a second attempt. Every call has
//! an explicit deadline, which the server is told too (`grpc-timeout`), as Go's contexts do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::errors::{Effect, EtcdError};
use super::wire;

/// The largest window that HTTP/2 allows. The h2 crate (seen in 0.4.20) counts small DATA frames against half
/// of it, as a guard against hostile servers, and does not discount all of them for streams that we end, as
/// each wait for a lock does: with its default of 5 MB it broke the connection after some 7,000 waits.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// A connection to one etcd node. Clones share it.
#[derive(Clone)]
pub struct EtcdClient {
    inner: Arc<Inner>,
}

struct Inner {
    rpc: Rpc,
    connect_timeout: Duration,
}

/// The channel and what every call needs besides.
#[derive(Clone)]
pub(super) struct Rpc {
    pub(super) endpoint: SocketAddr,
    channel: Channel,
}

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision at which it was created.
    pub create_revision: i64,
    /// Revision of its latest change.
    pub mod_revision: i64,
    /// The lease it is attached to; 0 for none.
    pub lease: i64,
}

impl From<wire::KeyValue> for KeyValue {
    fn from(from: wire::KeyValue) -> Self {
        let wire::KeyValue {
            key,
            create_revision,
            mod_revision,
            value,
            lease,
        } = from;
        Self {
            key,
            value,
            create_revision,
            mod_revision,
            lease,
        }
    }
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Its number.
    pub id: i64,
    /// The time-to-live that the server chose: it raises short ones to 1.5 election timeouts.
    pub ttl: Duration,
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node's own member number.
    pub member_id: u64,
    /// Member number of the leader it follows; 0 for none.
    pub leader_id: u64,
    /// Version of the server, for instance `3.5.16`.
    pub version: String,
    /// Its raft term.
    pub raft_term: u64,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Where it serves clients.
    pub client_urls: Vec<String>,
}

impl EtcdClient {
    /// Connects to one node.
    ///
    /// # Errors
    /// When no TCP connection comes about within `timeout`.
    pub async fn connect(endpoint: SocketAddr, timeout: Duration) -> Result<Self, EtcdError> {
        let channel = Endpoint::from_shared(format!("http://{endpoint}"))
            .map_err(|error| EtcdError::not_connected(endpoint, &error))?
            .connect_timeout(timeout)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect()
            .await
            .map_err(|error| EtcdError::not_connected(endpoint, &error))?;
        let rpc = Rpc { endpoint, channel };
        Ok(Self {
            inner: Arc::new(Inner {
                rpc,
                connect_timeout: timeout,
            }),
        })
    }

    /// The node.
    #[must_use]
    pub fn endpoint(&self) -> SocketAddr {
        self.inner.rpc.endpoint
    }

    pub(super) fn rpc(&self) -> &Rpc {
        &self.inner.rpc
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.inner.connect_timeout
    }

    /// Reads keys, linearizably.
    pub(crate) async fn range(
        &self,
        request: wire::RangeRequest,
        limit: Duration,
    ) -> Result<wire::RangeResponse, EtcdError> {
        self.inner
            .rpc
            .unary("/etcdserverpb.KV/Range", Effect::None, request, limit)
            .await
    }

    /// Reads one key, linearizably.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn get(&self, key: &[u8], limit: Duration) -> Result<Option<KeyValue>, EtcdError> {
        let found = self.range(wire::RangeRequest::key(key), limit).await?;
        Ok(found.kvs.into_iter().next().map(KeyValue::from))
    }

    /// Writes one key and returns the revision of the write.
    ///
    /// # Errors
    /// The request's.
    pub async fn put(&self, key: &[u8], value: Vec<u8>, limit: Duration) -> Result<i64, EtcdError> {
        const PATH: &str = "/etcdserverpb.KV/Put";
        let request = wire::PutRequest {
            key: key.to_vec(),
            value,
            lease: 0,
        };
        let answer: wire::PutResponse = self
            .inner
            .rpc
            .unary(PATH, Effect::One, request, limit)
            .await?;
        self.revision(PATH, answer.header)
    }

    /// Deletes one key; false when it was not there.
    ///
    /// # Errors
    /// The request's.
    pub async fn delete(&self, key: &[u8], limit: Duration) -> Result<bool, EtcdError> {
        let request = wire::DeleteRangeRequest { key: key.to_vec() };
        let answer: wire::DeleteRangeResponse = self
            .inner
            .rpc
            .unary("/etcdserverpb.KV/DeleteRange", Effect::One, request, limit)
            .await?;
        Ok(answer.deleted > 0)
    }

    /// Runs a transaction; returns the answer and its revision.
    pub(crate) async fn txn(
        &self,
        request: wire::TxnRequest,
        limit: Duration,
    ) -> Result<(wire::TxnResponse, i64), EtcdError> {
        const PATH: &str = "/etcdserverpb.KV/Txn";
        let answer: wire::TxnResponse = self
            .inner
            .rpc
            .unary(PATH, Effect::One, request, limit)
            .await?;
        let revision = self.revision(PATH, answer.header.clone())?;
        Ok((answer, revision))
    }

    /// Asks for a lease of `ttl`, rounded up to whole seconds.
    ///
    /// # Errors
    /// The request's.
    pub async fn lease_grant(
        &self,
        ttl: Duration,
        limit: Duration,
    ) -> Result<LeaseGrant, EtcdError> {
        const PATH: &str = "/etcdserverpb.Lease/LeaseGrant";
        let seconds = i64::try_from(ttl.as_millis().div_ceil(1000))
            .unwrap_or(i64::MAX)
            .max(1);
        let request = wire::LeaseGrantRequest { ttl: seconds };
        let answer: wire::LeaseGrantResponse = self
            .inner
            .rpc
            .unary(PATH, Effect::One, request, limit)
            .await?;
        let ttl = u64::try_from(answer.ttl)
            .ok()
            .filter(|ttl| *ttl > 0 && answer.error.is_empty());
        let ttl = ttl.ok_or_else(|| {
            self.malformed(PATH, &format!("a lease without a time-to-live: {answer:?}"))
        })?;
        Ok(LeaseGrant {
            id: answer.id,
            ttl: Duration::from_secs(ttl),
        })
    }

    /// Ends a lease, and with it every key attached to it.
    ///
    /// # Errors
    /// The request's.
    pub async fn lease_revoke(&self, lease: i64, limit: Duration) -> Result<(), EtcdError> {
        let request = wire::LeaseRevokeRequest { id: lease };
        let _: wire::LeaseRevokeResponse = self
            .inner
            .rpc
            .unary(
                "/etcdserverpb.Lease/LeaseRevoke",
                Effect::One,
                request,
                limit,
            )
            .await?;
        Ok(())
    }

    /// What is left of a lease, in whole seconds; absent when there is no such lease.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn lease_time_to_live(
        &self,
        lease: i64,
        limit: Duration,
    ) -> Result<Option<Duration>, EtcdError> {
        let request = wire::LeaseTimeToLiveRequest { id: lease };
        let answer: wire::LeaseTimeToLiveResponse = self
            .inner
            .rpc
            .unary(
                "/etcdserverpb.Lease/LeaseTimeToLive",
                Effect::None,
                request,
                limit,
            )
            .await?;
        Ok(u64::try_from(answer.ttl).ok().map(Duration::from_secs))
    }

    /// The lock service's `Lock`: waits for the lock and returns its key.
    ///
    /// # Errors
    /// The request's.
    pub async fn lock(
        &self,
        name: &str,
        lease: i64,
        limit: Duration,
    ) -> Result<Vec<u8>, EtcdError> {
        let request = wire::LockRequest {
            name: name.as_bytes().to_vec(),
            lease,
        };
        let answer: wire::LockResponse = self
            .inner
            .rpc
            .unary("/v3lockpb.Lock/Lock", Effect::Several, request, limit)
            .await?;
        Ok(answer.key)
    }

    /// The lock service's `Unlock`: deletes the lock's key, whoever owns it.
    ///
    /// # Errors
    /// The request's.
    pub async fn unlock(&self, key: &[u8], limit: Duration) -> Result<(), EtcdError> {
        let request = wire::UnlockRequest { key: key.to_vec() };
        let _: wire::UnlockResponse = self
            .inner
            .rpc
            .unary("/v3lockpb.Lock/Unlock", Effect::One, request, limit)
            .await?;
        Ok(())
    }

    /// What the node says about itself; it needs no quorum to answer.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn status(&self, limit: Duration) -> Result<Status, EtcdError> {
        let answer: wire::StatusResponse = self
            .inner
            .rpc
            .unary(
                "/etcdserverpb.Maintenance/Status",
                Effect::None,
                wire::StatusRequest {},
                limit,
            )
            .await?;
        Ok(Status {
            member_id: answer.header.unwrap_or_default().member_id,
            leader_id: answer.leader,
            version: answer.version,
            raft_term: answer.raft_term,
        })
    }

    /// The cluster's members.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn members(&self, limit: Duration) -> Result<Vec<Member>, EtcdError> {
        let answer: wire::MemberListResponse = self
            .inner
            .rpc
            .unary(
                "/etcdserverpb.Cluster/MemberList",
                Effect::None,
                wire::MemberListRequest {},
                limit,
            )
            .await?;
        let member = |from: wire::Member| Member {
            id: from.id,
            name: from.name,
            client_urls: from.client_urls,
        };
        Ok(answer.members.into_iter().map(member).collect())
    }

    fn revision(
        &self,
        path: &'static str,
        header: Option<wire::ResponseHeader>,
    ) -> Result<i64, EtcdError> {
        header
            .map(|header| header.revision)
            .ok_or_else(|| self.malformed(path, "an answer without a header"))
    }

    fn malformed(&self, path: &'static str, what: &str) -> EtcdError {
        EtcdError::malformed(self.endpoint(), path, Effect::One, what)
    }
}

impl Rpc {
    /// Sends one request and waits for its one answer.
    async fn unary<Q, A>(
        &self,
        path: &'static str,
        effect: Effect,
        request: Q,
        limit: Duration,
    ) -> Result<A, EtcdError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut request = tonic::Request::new(request);
        request.set_timeout(limit);
        let mut grpc = self.grpc();
        let call = async {
            grpc.ready()
                .await
                .map_err(|error| tonic::Status::from_error(Box::new(error)))?;
            grpc.unary(
                request,
                PathAndQuery::from_static(path),
                ProstCodec::<Q, A>::default(),
            )
            .await
        };
        let start = Instant::now();
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                let error = EtcdError::from_status(self.endpoint, path, effect, &status);
                let late = start.elapsed() >= limit;
                Err(if late {
                    error.at_deadline(limit.as_millis())
                } else {
                    error
                })
            }
            Err(_) => Err(EtcdError::deadline(
                self.endpoint,
                path,
                effect,
                limit.as_millis(),
            )),
        }
    }

    /// Opens a stream in both directions. etcd sends its headers with its first message, so this returns
    /// no earlier.
    pub(super) async fn stream<Q, A>(
        &self,
        path: &'static str,
        require_leader: bool,
        requests: impl futures_util::Stream<Item = Q> + Send + 'static,
    ) -> Result<tonic::Streaming<A>, EtcdError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut request = tonic::Request::new(requests);
        if require_leader {
            // Go: WithRequireLeader. The server then ends the stream when it has lost its leader.
            request.metadata_mut().insert(
                "hasleader",
                tonic::metadata::MetadataValue::from_static("true"),
            );
        }
        let mut grpc = self.grpc();
        let call = async {
            grpc.ready()
                .await
                .map_err(|error| tonic::Status::from_error(Box::new(error)))?;
            grpc.streaming(
                request,
                PathAndQuery::from_static(path),
                ProstCodec::<Q, A>::default(),
            )
            .await
        };
        let answer = call
            .await
            .map_err(|status| self.stream_error(path, &status))?;
        Ok(answer.into_inner())
    }

    /// The error of a stream: streams only read, or renew, so that it is always definite.
    pub(super) fn stream_error(&self, path: &'static str, status: &tonic::Status) -> EtcdError {
        EtcdError::from_status(self.endpoint, path, Effect::None, status)
    }

    /// Go's client takes answers of any size too.
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }
}
