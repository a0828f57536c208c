//! What the sandbox promises to the nemesis: power that goes without a goodbye, syncs that pass a gate.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use nemesis::mechanism::fsync_gate::{Answer, FsyncGate};
use workloads::truth::now_ns;

use super::super::{CONTROLLER_ADDRESS, End};
use super::ask;
use super::checks::{Bench, Checked, drain, ensure, expect_end, listener, populate, spec, start};

/// How long a peer listens for a goodbye that must not come.
const SILENCE: Duration = Duration::from_millis(300);

/// A peer of a host that loses its power hears nothing until it is back, and then that nobody knows it.
pub(super) fn power(bench: &Bench) -> Checked {
    for host in &bench.hosts {
        drain(host)?;
        let server = TcpListener::bind((CONTROLLER_ADDRESS, 0))?;
        start(host, &["connect", &server.local_addr()?.to_string()])?;
        let (mut peer, _) = server.accept()?;
        let began = Instant::now();
        let connections = host.power_off()?;
        println!(
            "  {} off in {:.2} ms, {connections} connections destroyed",
            host.name(),
            began.elapsed().as_secs_f64() * 1e3
        );
        ensure(connections > 0 && host.tree().is_empty(), || {
            format!("{connections} connections, left: {:?}", host.tree())
        })?;
        peer.write_all(b"are you there?")?;
        let mut byte = [0];
        peer.set_read_timeout(Some(SILENCE))?;
        let heard = peer.read(&mut byte);
        ensure(
            matches!(&heard, Err(error) if error.kind() == ErrorKind::WouldBlock),
            || format!("without power a peer heard {heard:?}"),
        )?;
        host.power_on()?;
        // Its question is sent again and again; now a kernel answers that does not know the connection.
        peer.set_read_timeout(Some(Duration::from_secs(10)))?;
        let heard = peer.read(&mut byte);
        ensure(
            matches!(&heard, Err(error) if error.kind() == ErrorKind::ConnectionReset),
            || format!("with its power back a peer heard {heard:?}"),
        )?;
        populate(host)?;
        let answer = ask(listener(host))?;
        ensure(answer.starts_with(host.name()), || {
            format!("with its power back {} says {answer:?}", host.name())
        })?;
    }
    Ok(())
}

/// A process behind the gate syncs as the gate says.
pub(super) fn gate(bench: &Bench) -> Checked {
    for host in &bench.hosts {
        drain(host)?;
        let gate = FsyncGate::new(host.name(), now_ns);
        for (answer, code) in [
            (Answer::Pass, 0),
            (Answer::Fail { errno: libc::EIO }, 1),
            (Answer::Lie, 0),
        ] {
            gate.set(answer)?;
            let (spec, _output) = spec(&["sync", "/proc/self/exe"])?;
            let (process, descriptor) = host.spawn_gated(spec)?;
            gate.attach(descriptor, process.pid)?;
            expect_end(host, process, End::Exited(code))?;
            let tally = gate.tally();
            ensure(tally.reached.len() == 1, || format!("{answer}: {tally}"))?;
        }
    }
    Ok(())
}
