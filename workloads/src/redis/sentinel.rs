//! What Sentinels are asked. They are servers that speak RESP2 too (redis.io, "High availability with Redis
//! Sentinel"). Nothing in here changes what they watch, or starts a failover.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::command::Command;
use super::connection::Connection;
use super::errors::{Effect, RedisError};

/// The name under which Sentinels watch the one primary that there is.
pub const PRIMARY_NAME: &str = "fencepost";

/// What a Sentinel knows about the primary and its helpers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelView {
    /// The primary.
    pub primary: SocketAddr,
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
pub async fn primary(
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

/// What one Sentinel knows, over a connection of its own.
///
/// # Errors
/// When it does not answer within `limit`, or watches nothing of that name.
pub async fn view(sentinel: SocketAddr, limit: Duration) -> Result<SentinelView, RedisError> {
    let connection = Connection::open(sentinel, limit).await?;
    let command = Command::read("SENTINEL MASTER", &["SENTINEL", "MASTER", PRIMARY_NAME]);
    let answer = connection.call(&command, limit).await?;
    let number = |name| answer.field(name).and_then(|text| text.parse().ok());
    let view = || {
        Some(SentinelView {
            primary: address(answer.field("ip"), answer.field("port"))?,
            replicas: number("num-slaves")?,
            other_sentinels: number("num-other-sentinels")?,
            flags: answer.field("flags")?.to_owned(),
        })
    };
    view().ok_or_else(|| RedisError::malformed(sentinel, command.name, Effect::None, &answer))
}

/// Makes a Sentinel from 7.0 on look and tell more often than once in 10 and 2 seconds.
///
/// # Errors
/// When it does not answer within `limit`, or does not know the command (before 7.0).
pub async fn hasten(
    sentinel: SocketAddr,
    periods: &[(&str, Duration)],
    limit: Duration,
) -> Result<(), RedisError> {
    let connection = Connection::open(sentinel, limit).await?;
    let values: Vec<String> = periods
        .iter()
        .map(|(_, period)| period.as_millis().to_string())
        .collect();
    let mut words = vec!["SENTINEL", "DEBUG"];
    for ((name, _), value) in periods.iter().zip(&values) {
        words.extend([*name, value.as_str()]);
    }
    // It changes how the Sentinel works, not what it keeps.
    connection
        .call(&Command::read("SENTINEL DEBUG", &words), limit)
        .await
        .map(drop)
}

fn address(ip: Option<&str>, port: Option<&str>) -> Option<SocketAddr> {
    let ip: IpAddr = ip?.parse().ok()?;
    Some(SocketAddr::new(ip, port?.parse().ok()?))
}
