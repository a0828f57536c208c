//! Runs a few netlink requests to completion, from any thread, in this process's network namespace.
//!
//! rtnetlink is asynchronous; the callers here are not, or live in a runtime that must not be blocked.
//! So each batch gets a short-lived thread with a runtime of its own (about 0.1 ms).

use std::future::Future;

use nix::errno::Errno;
use rtnetlink::{Error, Handle, new_connection};

use super::error::{Failure, Step};

/// Runs `task` with a connection to the kernel.
pub(super) fn run<T, F, Fut>(task: F) -> Result<T, Failure>
where
    T: Send,
    F: FnOnce(Handle) -> Fut + Send,
    Fut: Future<Output = Result<T, Failure>>,
{
    let connect = |e: &std::io::Error| Failure::io(Step::Network, "open a netlink socket", e);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| connect(&e))?;
            runtime.block_on(async {
                let (connection, handle, _) = new_connection().map_err(|e| connect(&e))?;
                let pump = tokio::spawn(connection);
                let result = task(handle).await;
                pump.abort();
                result
            })
        });
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Describes a failed request. The kernel's code is a negated errno.
pub(super) fn failure(what: impl Into<String>, error: &Error) -> Failure {
    let errno = match error {
        Error::NetlinkError(message) => Errno::from_raw(-message.raw_code()),
        _ => Errno::EIO,
    };
    Failure::new(Step::Network, what, errno)
}
