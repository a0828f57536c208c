//! A real redis-server as a program that ticks: what time it says, and how long it waits.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nemesis::clock::HostClock;
use nemesis::clock::launch::Clocked;
use nemesis::ticking::Tick;
use workloads::truth::now_ns;

use crate::provision::Launch;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A redis-server under a clock, and a connection to it.
pub(super) struct Redis {
    stream: BufReader<TcpStream>,
    turn: u64,
    _process: Clocked,
}

impl Redis {
    /// Starts it.
    pub(super) fn start(clock: &HostClock, server: &Launch, address: SocketAddr) -> Result<Self> {
        let mut command = Command::new(server.program());
        command
            .args(server.words().iter().skip(1))
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no"])
            // It looks for timeouts this often a second: they are not exact to more than that.
            .args(["--hz", "500", "--dynamic-hz", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = clock.spawn(&mut command)?;
        let began = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(error).context("redis-server does not listen");
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
            turn: 0,
            _process: process,
        })
    }

    /// Lets it wait for a second of its own, except the first time, and asks it for its time. It waits in
    /// turn for an element that never comes, and for a key's expiry.
    pub(super) fn next_tick(&mut self) -> io::Result<Tick> {
        match self.turn {
            0 => {}
            turn if turn % 2 == 1 => drop(self.ask("BLPOP nothing 1")?),
            _ => {
                self.ask("SET key value PX 1000")?;
                while self.ask("EXISTS key")? == [":1"] {
                    thread::sleep(Duration::from_micros(500));
                }
            }
        }
        self.turn += 1;
        let time = self.ask("TIME")?;
        let true_ns = now_ns();
        let number = |index: usize| time.get(index).and_then(|text| text.parse::<u64>().ok());
        let (Some(seconds), Some(microseconds)) = (number(2), number(4)) else {
            return Err(io::Error::other(format!("TIME said {time:?}")));
        };
        let own_ns = (seconds * 1_000_000 + microseconds) * 1_000;
        Ok(Tick { true_ns, own_ns })
    }

    /// Asks something and returns the lines of the reply (RESP 2, redis.io/docs/reference/protocol-spec).
    fn ask(&mut self, command: &str) -> io::Result<Vec<String>> {
        write!(self.stream.get_mut(), "{command}\r\n")?;
        let mut lines = vec![self.line()?];
        let elements = lines[0].strip_prefix('*').and_then(|n| n.parse().ok());
        // An array of strings: each has a line for its length and one for itself.
        for _ in 0..elements.unwrap_or(0_u32) * 2 {
            lines.push(self.line()?);
        }
        if lines[0].starts_with('-') {
            return Err(io::Error::other(lines.remove(0)));
        }
        Ok(lines)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
