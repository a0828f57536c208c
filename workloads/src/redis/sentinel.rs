//! What Sentinels are asked. They are servers that speak RESP2 too (redis.io, "High availability with Redis
//! Sentinel"). Nothing in here changes what they watch, or starts a failover.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::command::Command;
use super::connection::Connection;
use super::errors::{Effect, RedisError};
use super::resp::Value;

/// The name under which Sentinels watch the one primary that there is.
pub const PRIMARY_NAME: &str = "fencepost";

/// What a Sentinel knows about the primary and its helpers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelView {
    /// The primary.
    pub primary: SocketAddr,
    /// Grows with each failover: of two Sentinels the one with the greater number is up to date.
    pub epoch: u64,
    /// Replicas that it knows.
    pub replicas: u64,
    /// Other Sentinels that it knows.
    pub other_sentinels: u64,
    /// What it says of the primary: `master`, or `master,s_down,o_down` and the like.
    pub flags: String,
}

/// The primary by the word of one Sentinel, over a connection of its own; absent when it knows none.
///
/// # Errors
/// When it does not answer within `limit`.
pub(super) async fn primary(
    sentinel: SocketAddr,
    limit: Duration,
) -> Result<Option<SocketAddr>, RedisError> {
    let connection = Connection::open(sentinel, limit).await?;
    let command = Command::read(
        "SENTINEL GET-MASTER-ADDR-BY-NAME",
        &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME],
    );
    let answer = connection.call(&command, limit).await?;
    match answer.elements() {
        [] => Ok(None),
        [ip, port] => match address(ip.text(), port.text()) {
            Some(address) => Ok(Some(address)),
            None => Err(RedisError::malformed(
                sentinel,
                command.name,
                Effect::None,
                &answer,
            )),
        },
        _ => Err(RedisError::malformed(
            sentinel,
            command.name,
            Effect::None,
            &answer,
        )),
    }
}

/// Reads a Sentinel's answer to `SENTINEL MASTER`.
pub(super) fn read_view(answer: &Value) -> Option<SentinelView> {
    let number = |name| answer.field(name).and_then(|text| text.parse().ok());
    Some(SentinelView {
        primary: address(answer.field("ip"), answer.field("port"))?,
        epoch: number("config-epoch")?,
        replicas: number("num-slaves")?,
        other_sentinels: number("num-other-sentinels")?,
        flags: answer.field("flags")?.to_owned(),
    })
}

fn address(ip: Option<&str>, port: Option<&str>) -> Option<SocketAddr> {
    let ip: IpAddr = ip?.parse().ok()?;
    Some(SocketAddr::new(ip, port?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_read_by_its_names() {
        let words = [
            "name",
            "fencepost",
            "ip",
            "198.18.0.2",
            "port",
            "6379",
            "flags",
            "master",
            "num-slaves",
            "2",
            "num-other-sentinels",
            "1",
            "config-epoch",
            "3",
        ];
        let answer = words.map(|word| Value::Bulk(word.into())).to_vec();
        let expected = SentinelView {
            primary: SocketAddr::from(([198, 18, 0, 2], 6379)),
            epoch: 3,
            replicas: 2,
            other_sentinels: 1,
            flags: "master".to_owned(),
        };
        assert_eq!(read_view(&Value::Array(answer)), Some(expected));
        assert_eq!(read_view(&Value::Nil), None);
    }
}
