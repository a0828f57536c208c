//! The processes in the hosts: they send, answer, listen, sync or burn CPU time, and print what they saw.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use workloads::truth::now_ns;

/// Bytes of a request, and of its answer.
const REQUEST_BYTES: usize = 64;

/// Plays a role: its name and its arguments.
pub(super) fn play(role: &[String]) -> Result<()> {
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["echo", port] => echo(port.parse()?),
        ["ask", address, ms] => ask(address.parse()?, ms.parse()?),
        ["hear", port, count, ms] => hear(port.parse()?, count.parse()?, ms.parse()?),
        ["tell", address, count, gap_us] => tell(address.parse()?, count.parse()?, gap_us.parse()?),
        ["sync", path, count] => super::disk::sync(path.as_ref(), count.parse()?),
        ["hog"] => loop {
            std::hint::spin_loop();
        },
        _ => bail!("no role is written {words:?}"),
    }
}

/// Sends every request back.
fn echo(port: u16) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    println!("ready");
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; REQUEST_BYTES];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// Sends requests one after the other, and prints how many were answered a second.
fn ask(address: SocketAddr, ms: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address).context("cannot connect")?;
    stream.set_nodelay(true)?;
    let mut bytes = [7; REQUEST_BYTES];
    let (started, length) = (Instant::now(), Duration::from_millis(ms));
    let mut answered = 0_u64;
    while started.elapsed() < length {
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        answered += 1;
    }
    println!("{:.0}", answered as f64 / started.elapsed().as_secs_f64());
    Ok(())
}

/// Prints the number of each datagram that comes, and how long it was under way, in nanoseconds. Ends after
/// so many, or when none has come for so long.
fn hear(port: u16, count: usize, ms: u64) -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    socket.set_read_timeout(Some(Duration::from_millis(ms)))?;
    println!("ready");
    let mut heard = Vec::with_capacity(count);
    let mut bytes = [0; 16];
    while heard.len() < count && socket.recv(&mut bytes).is_ok() {
        let now_ns = now_ns();
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        heard.push((word(0), now_ns.saturating_sub(word(8))));
    }
    for (number, took_ns) in heard {
        println!("{number} {took_ns}");
    }
    Ok(())
}

/// Sends numbered datagrams, each with the time at which it was sent.
fn tell(address: SocketAddr, count: u64, gap_us: u64) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    for number in 0..count {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..].copy_from_slice(&now_ns().to_le_bytes());
        // Nobody may be listening yet or any more.
        let _ = socket.send(&bytes);
        std::thread::sleep(Duration::from_micros(gap_us));
    }
    Ok(())
}
