//! Wakes a supervisor out of waitpid(2), which nothing but a signal ends.
//!
//! A real-time signal with a handler that does nothing, sent to one thread. Nothing else in this program
//! may use that signal.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;
use std::sync::Once;

/// Its number, counted from the first that the C library leaves to programs.
fn signal() -> i32 {
    libc::SIGRTMIN() + 9
}

/// Installs the handler, once, and lets the signal through to the calling thread.
pub(super) fn listen() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: all zeroes is a valid value of these plain structures; the handler touches nothing. No
        // SA_RESTART: the wait is to end.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(signal(), &raw const action, ptr::null_mut());
        }
    });
    // SAFETY: as above; the set is filled in before it is used.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

/// The calling thread's number.
pub(super) fn this_thread() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Wakes that thread of ours. One that is gone, or is another one by now, is not harmed.
pub(super) fn ring(thread: i32) {
    if thread > 0 {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) };
    }
}
