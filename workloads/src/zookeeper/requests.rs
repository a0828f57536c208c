//! One call each for what fencepost asks of a ZooKeeper server. Every call has an explicit limit and is made
//! once.

use std::time::Duration;

use super::errors::{Cause, Effect, ZkError};
use super::jute::{Malformed, Reader, Writer};
use super::session::{Call, Session, WatchKind};
use super::wire::{self, CreateMode, Op, OpCode, Stat};

/// How a [`multi`](Session::multi) ended.
#[derive(Debug)]
pub enum Multi {
    /// All of it was done; what the last node that was written is like now.
    Done(Option<Stat>),
    /// None of it was done, because one operation could not be.
    Refused {
        /// Which one, from 0.
        index: usize,
        /// Why.
        why: ZkError,
    },
}

impl Session {
    /// Creates a node and returns its path, which ends with a number if it is sequential.
    ///
    /// # Errors
    /// The request's; `no-node` when the parent is not there.
    pub async fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        limit: Duration,
    ) -> Result<String, ZkError> {
        let call = write("create", OpCode::Create);
        let body = wire::create(path, data, mode);
        let answer = self.call(call, body, limit).await?;
        self.read("create", Effect::One, Reader::new(&answer).text())
    }

    /// Creates a node that stays, and every one above it, unless they are there.
    ///
    /// # Errors
    /// The requests'; definite, for a node without a meaning of its own does no harm.
    pub async fn make_path(&self, path: &str, limit: Duration) -> Result<(), ZkError> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        for end in ends.chain([path.len()]) {
            let made = self.create(&path[..end], b"", CreateMode::Persistent, limit);
            match made.await {
                Ok(_) => {}
                Err(error) if error.is_node_exists() => {}
                Err(error) => {
                    return Err(ZkError {
                        effect: Effect::None,
                        ..error
                    });
                }
            }
        }
        Ok(())
    }

    /// Deletes a node; false when it was not there.
    ///
    /// # Errors
    /// The request's.
    pub async fn delete(&self, path: &str, limit: Duration) -> Result<bool, ZkError> {
        let call = write("delete", OpCode::Delete);
        let body = wire::path_and_version(path, -1);
        match self.call(call, body, limit).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_no_node() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What the server keeps about a node, if it is there.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn exists(&self, path: &str, limit: Duration) -> Result<Option<Stat>, ZkError> {
        let call = read("exists", OpCode::Exists, None);
        let body = wire::path_and_watch(path, false);
        let answer = match self.call(call, body, limit).await {
            Err(error) if error.is_no_node() => return Ok(None),
            answer => answer?,
        };
        let stat = wire::read_stat(&mut Reader::new(&answer));
        self.read("exists", Effect::None, stat).map(Some)
    }

    /// A node's data, if it is there. With `watch`, an event tells when it changes or goes; unlike one that
    /// `exists` sets, this watch is set only if the node is there.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn get_data(
        &self,
        path: &str,
        watch: bool,
        limit: Duration,
    ) -> Result<Option<(Vec<u8>, Stat)>, ZkError> {
        let wanted = watch.then(|| (WatchKind::Data, path.to_owned()));
        let call = read("getData", OpCode::GetData, wanted);
        let body = wire::path_and_watch(path, watch);
        let answer = match self.call(call, body, limit).await {
            Err(error) if error.is_no_node() => return Ok(None),
            answer => answer?,
        };
        let mut reader = Reader::new(&answer);
        let found = reader
            .buffer()
            .map(<[u8]>::to_vec)
            .and_then(|data| Ok((data, wire::read_stat(&mut reader)?)));
        self.read("getData", Effect::None, found).map(Some)
    }

    /// The names of a node's children, in no order. With `watch`, an event tells when one comes or goes.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn children(
        &self,
        path: &str,
        watch: bool,
        limit: Duration,
    ) -> Result<Vec<String>, ZkError> {
        let wanted = watch.then(|| (WatchKind::Children, path.to_owned()));
        let call = read("getChildren", OpCode::GetChildren, wanted);
        let body = wire::path_and_watch(path, watch);
        let answer = self.call(call, body, limit).await?;
        self.read("getChildren", Effect::None, Reader::new(&answer).texts())
    }

    /// Replaces a node's data.
    ///
    /// # Errors
    /// The request's; `bad-version` when `version` is not -1 and not the node's.
    pub async fn set_data(
        &self,
        path: &str,
        data: &[u8],
        version: i32,
        limit: Duration,
    ) -> Result<Stat, ZkError> {
        let call = write("setData", OpCode::SetData);
        let body = wire::set_data(path, data, version);
        let answer = self.call(call, body, limit).await?;
        let stat = wire::read_stat(&mut Reader::new(&answer));
        self.read("setData", Effect::One, stat)
    }

    /// Does several things at once, or none of them.
    ///
    /// # Errors
    /// The request's. What an operation says is no error of the request.
    pub async fn multi(&self, ops: &[Op<'_>], limit: Duration) -> Result<Multi, ZkError> {
        let call = write("multi", OpCode::Multi);
        let answer = self.call(call, wire::multi(ops), limit).await?;
        match self.read("multi", Effect::One, wire::read_multi(&answer))? {
            Ok(stat) => Ok(Multi::Done(stat)),
            Err((index, code)) => {
                let text = format!("operation {index} was answered with error {code}");
                let why = self.error("multi", Effect::One, Cause::Server(code), text);
                Ok(Multi::Refused { index, why })
            }
        }
    }

    /// Waits until this server has caught up with the leader: a server's own reads may be old.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn sync(&self, path: &str, limit: Duration) -> Result<(), ZkError> {
        let call = read("sync", OpCode::Sync, None);
        let body = Writer::new().text(path);
        self.call(call, body, limit).await.map(drop)
    }

    /// An answer that was read, or an error of a connection that talks nonsense.
    fn read<T>(
        &self,
        request: &'static str,
        effect: Effect,
        found: Result<T, Malformed>,
    ) -> Result<T, ZkError> {
        found.map_err(|malformed| {
            let text = format!("an answer that makes no sense: {malformed}");
            self.error(request, effect, Cause::ConnectionLost, text)
        })
    }

    fn error(&self, request: &'static str, effect: Effect, cause: Cause, text: String) -> ZkError {
        ZkError {
            endpoint: self.shared.endpoint,
            request,
            effect,
            cause,
            text,
        }
    }
}

fn write(name: &'static str, op: OpCode) -> Call {
    Call {
        name,
        op,
        effect: Effect::One,
        watch: None,
    }
}

fn read(name: &'static str, op: OpCode, watch: Option<(WatchKind, String)>) -> Call {
    Call {
        name,
        op,
        effect: Effect::None,
        watch,
    }
}
