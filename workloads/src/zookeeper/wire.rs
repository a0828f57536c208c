//! The few requests of ZooKeeper's protocol that fencepost makes, and their answers, from 3.4 on
//! (`zookeeper-jute/src/main/resources/zookeeper.jute`, `ZooDefs.java`). It sends nothing.

use super::jute::{Malformed, Reader, Writer};

/// `ZooDefs.OpCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum OpCode {
    Create = 1,
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    Check = 13,
    Multi = 14,
    SetWatches = 101,
    CloseSession = -11,
}

/// Transaction numbers that the protocol keeps for itself.
pub(super) const XID_EVENT: i32 = -1;
pub(super) const XID_PING: i32 = -2;
pub(super) const XID_SET_WATCHES: i32 = -8;

/// How a node is created (`CreateMode.java`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Goes with its session.
    Ephemeral,
    /// Goes with its session; the server appends a number that grows with each child of the parent.
    EphemeralSequential,
}

/// What the server keeps about a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Transaction that created it.
    pub czxid: i64,
    /// Transaction that changed its data last.
    pub mzxid: i64,
    /// Changes of its data.
    pub version: i32,
    /// The session that it goes with; 0 for none.
    pub ephemeral_owner: i64,
}

/// An operation of a [`multi`](super::Session::multi).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// The node is there, and its data has this version (-1: any).
    Check {
        /// The node.
        path: &'a str,
        /// Expected version.
        version: i32,
    },
    /// Replaces a node's data.
    SetData {
        /// The node.
        path: &'a str,
        /// The new data.
        data: &'a [u8],
    },
}

/// A watch that went off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which node.
    pub path: String,
}

/// `Watcher.Event.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The node was created.
    Created,
    /// The node was deleted.
    Deleted,
    /// The node's data was changed.
    DataChanged,
    /// A child of the node was created or deleted.
    ChildrenChanged,
    /// Something else, which no watch of ours asks for.
    Other(i32),
}

/// First frame of a connection.
pub(super) struct ConnectRequest<'a> {
    pub(super) last_zxid: i64,
    pub(super) timeout_ms: i32,
    /// 0 asks for a new session.
    pub(super) session: i64,
    pub(super) password: &'a [u8],
}

impl ConnectRequest<'_> {
    pub(super) fn frame(&self) -> Vec<u8> {
        Writer::new()
            .int(0) // protocol version
            .long(self.last_zxid)
            .int(self.timeout_ms)
            .long(self.session)
            .buffer(self.password)
            .boolean(false) // no read-only server
            .frame()
    }
}

/// Answer to it. A timeout of 0 says that there is no such session (any more).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectResponse {
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

impl ConnectResponse {
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let _protocol = reader.int()?;
        Ok(Self {
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.buffer()?.to_vec(),
        })
    }
}

/// What every later frame of the server begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    /// 0, or a code of `KeeperException`.
    pub(super) error: i32,
}

impl ReplyHeader {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: reader.int()?,
            zxid: reader.long()?,
            error: reader.int()?,
        })
    }
}

/// A request's frame.
pub(super) fn request(xid: i32, op: OpCode, body: Writer) -> Vec<u8> {
    Writer::new().int(xid).int(op as i32).append(body).frame()
}

pub(super) fn create(path: &str, data: &[u8], mode: CreateMode) -> Writer {
    let flags = match mode {
        CreateMode::Persistent => 0,
        CreateMode::Ephemeral => 1,
        CreateMode::EphemeralSequential => 3,
    };
    // One entry: everybody may do everything (`ZooDefs.Ids.OPEN_ACL_UNSAFE`).
    let open = Writer::new().int(1).int(31).text("world").text("anyone");
    Writer::new()
        .text(path)
        .buffer(data)
        .append(open)
        .int(flags)
}

/// `Delete`, `Check`: a path and the version that the node must have (-1: any).
pub(super) fn path_and_version(path: &str, version: i32) -> Writer {
    Writer::new().text(path).int(version)
}

/// `Exists`, `GetData`, `GetChildren`: a path and whether to watch it.
pub(super) fn path_and_watch(path: &str, watch: bool) -> Writer {
    Writer::new().text(path).boolean(watch)
}

pub(super) fn set_data(path: &str, data: &[u8], version: i32) -> Writer {
    Writer::new().text(path).buffer(data).int(version)
}

/// Sets watches again on a new connection; the server tells at once of what happened after `last_zxid`.
pub(super) fn set_watches(last_zxid: i64, data: &[&str], children: &[&str]) -> Writer {
    Writer::new()
        .long(last_zxid)
        .texts(data)
        .texts(&[]) // on nodes that are not there: we set none
        .texts(children)
}

pub(super) fn multi(ops: &[Op<'_>]) -> Writer {
    let header = |op: OpCode| Writer::new().int(op as i32).boolean(false).int(-1);
    let body = ops.iter().fold(Writer::new(), |out, op| match *op {
        Op::Check { path, version } => out
            .append(header(OpCode::Check))
            .append(path_and_version(path, version)),
        Op::SetData { path, data } => out
            .append(header(OpCode::SetData))
            .append(set_data(path, data, -1)),
    });
    body.int(-1).boolean(true).int(-1)
}

/// Reads the answer to a [`multi`]: what the last node written is like now, or which operation failed and how.
/// All of it was done, or none.
pub(super) fn read_multi(body: &[u8]) -> Result<Result<Option<Stat>, (usize, i32)>, Malformed> {
    /// For operations that were not tried, or were undone, because another failed.
    const RUNTIME_INCONSISTENCY: i32 = -2;
    let mut reader = Reader::new(body);
    let (mut failed, mut stat) = (None, None);
    for index in 0.. {
        let (kind, done, _error) = (reader.int()?, reader.boolean()?, reader.int()?);
        if done {
            break;
        }
        match kind {
            -1 => {
                let error = reader.int()?;
                if error != 0 && error != RUNTIME_INCONSISTENCY {
                    failed.get_or_insert((index, error));
                }
            }
            kind if kind == OpCode::SetData as i32 => stat = Some(read_stat(&mut reader)?),
            _ => {} // a check has nothing to say
        }
    }
    Ok(failed.map_or(Ok(stat), Err))
}

pub(super) fn read_stat(reader: &mut Reader<'_>) -> Result<Stat, Malformed> {
    let (czxid, mzxid) = (reader.long()?, reader.long()?);
    let (_ctime, _mtime) = (reader.long()?, reader.long()?);
    let (version, _cversion, _aversion) = (reader.int()?, reader.int()?, reader.int()?);
    let ephemeral_owner = reader.long()?;
    let (_data_length, _children, _pzxid) = (reader.int()?, reader.int()?, reader.long()?);
    Ok(Stat {
        czxid,
        mzxid,
        version,
        ephemeral_owner,
    })
}

pub(super) fn read_event(reader: &mut Reader<'_>) -> Result<WatchEvent, Malformed> {
    let (kind, _state) = (reader.int()?, reader.int()?);
    let kind = match kind {
        1 => EventKind::Created,
        2 => EventKind::Deleted,
        3 => EventKind::DataChanged,
        4 => EventKind::ChildrenChanged,
        other => EventKind::Other(other),
    };
    Ok(WatchEvent {
        kind,
        path: reader.text()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(kind: i32, done: bool) -> Writer {
        Writer::new().int(kind).boolean(done).int(0)
    }

    #[test]
    fn a_multi_names_the_operation_that_failed() {
        let answer = |errors: &[i32]| {
            let body = errors
                .iter()
                .fold(Writer::new(), |out, error| {
                    out.append(result(-1, false)).int(*error)
                })
                .append(result(-1, true));
            read_multi(&body.frame()[4..])
        };
        assert_eq!(answer(&[-101, -2]), Ok(Err((0, -101))));
        assert_eq!(answer(&[0, -103]), Ok(Err((1, -103))));
    }

    #[test]
    fn a_multi_that_worked_is_read_to_its_end() {
        let stat = || (0..4).fold(Writer::new(), |out, _| out.long(1));
        let stat = stat().int(1).int(0).int(0).long(0).int(0).int(0).long(0);
        let body = result(OpCode::Check as i32, false)
            .append(result(OpCode::SetData as i32, false))
            .append(stat)
            .append(result(-1, true));
        let frame = body.frame();
        let written = Stat {
            czxid: 1,
            mzxid: 1,
            version: 1,
            ephemeral_owner: 0,
        };
        assert_eq!(read_multi(&frame[4..]), Ok(Ok(Some(written))));
        assert!(read_multi(&frame[4..frame.len() - 2]).is_err());
    }
}
