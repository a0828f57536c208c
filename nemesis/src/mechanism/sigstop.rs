//! SIGSTOP and SIGCONT to a whole process tree, for machines where no cgroup can be made.
//!
//! The signal is sent by the host's init to all its processes at one moment; here we watch until every
//! thread has really stopped: one that spins must first be scheduled to notice (up to 66 ms were seen).
//! It has side effects that the freezer has not: parents get SIGCHLD, and `epoll_wait` returns EINTR
//! afterwards. This file sleeps between two looks and never spins.

use std::io;
use std::thread;
use std::time::Duration;

use crate::mechanism::proof::Census;
use crate::{HostControl, Now};

/// Name of this mechanism in receipts.
pub const NAME: &str = "SIGSTOP";

/// Sleep before the second look; it doubles from look to look.
const FIRST_SLEEP: Duration = Duration::from_micros(50);
/// The longest sleep between two looks.
const LONGEST_SLEEP: Duration = Duration::from_millis(2);

/// Asks every process to stop.
///
/// # Errors
/// What the host answered.
pub fn stop(host: &dyn HostControl) -> io::Result<()> {
    host.signal_all(libc::SIGSTOP)
}

/// Asks every process to go on.
///
/// # Errors
/// What the host answered.
pub fn resume(host: &dyn HostControl) -> io::Result<()> {
    host.signal_all(libc::SIGCONT)
}

/// Waits until every thread of the host's application is stopped, and returns when that was seen.
///
/// # Errors
/// Which thread had not stopped when the deadline passed.
pub fn wait_stopped(host: &dyn HostControl, deadline_ns: u64, now: Now) -> Result<u64, String> {
    look_until(deadline_ns, now, || {
        let census = Census::take(&host.tree());
        if census.threads() == 0 {
            return Err("no process is left".to_owned());
        }
        census
            .first_unstopped()
            .map_or(Ok(()), |(pid, tid, state)| {
                Err(format!(
                    "thread {tid} of process {pid} is in state {state}, not stopped"
                ))
            })
    })
}

/// Waits until no thread of the host's application is stopped any more, and returns when that was seen.
///
/// # Errors
/// Which thread was still stopped when the deadline passed.
pub fn wait_running(host: &dyn HostControl, deadline_ns: u64, now: Now) -> Result<u64, String> {
    look_until(deadline_ns, now, || {
        let census = Census::take(&host.tree());
        census.first_stopped().map_or(Ok(()), |(pid, tid)| {
            Err(format!("thread {tid} of process {pid} is still stopped"))
        })
    })
}

/// Looks again and again, with growing sleeps, until `look` is content; the time of that look is
/// returned. At the deadline, what the last look found is the error.
pub(crate) fn look_until(
    deadline_ns: u64,
    now: Now,
    mut look: impl FnMut() -> Result<(), String>,
) -> Result<u64, String> {
    let mut sleep = FIRST_SLEEP;
    loop {
        match look() {
            Ok(()) => return Ok(now()),
            Err(found) if now() >= deadline_ns => return Err(found),
            Err(_) => {}
        }
        thread::sleep(sleep);
        sleep = (sleep * 2).min(LONGEST_SLEEP);
    }
}
