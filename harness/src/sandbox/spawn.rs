//! Starts a process, optionally in fresh namespaces, from a parent that may have threads.
//!
//! std's `Command` cannot create namespaces, and `unshare` in the parent would change the parent. So
//! this is clone3(2) without CLONE_VM followed by execve(2). Everything is prepared before the clone;
//! between clone and exec the child makes only async-signal-safe calls and allocates nothing, because
//! another thread of the parent may have held the allocator's lock at the moment of the clone.
//!
//! The child gets exactly the descriptors that it is given, default signal dispositions, an empty
//! signal mask and a session of its own. It must not get anything by accident.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use nemesis::clock::Tether;
use nemesis::mechanism::fsync_gate::Filter;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getgid, getuid, pipe2};

use super::error::{Failure, Step};

/// The path under which every process finds its own executable.
pub(super) const SELF: &CStr = c"/proc/self/exe";

/// The name that the re-executed stages carry as `argv[0]`.
pub(super) const SELF_NAME: &str = "fencepost";

/// The namespaces of its own that whatever is PID 1 of a sandbox or of a host gets.
pub(super) const OWN_NAMESPACES: CloneFlags = CloneFlags::CLONE_NEWPID
    .union(CloneFlags::CLONE_NEWNS)
    .union(CloneFlags::CLONE_NEWNET)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWUTS);

/// What to start.
pub(super) struct Spawn<'a> {
    /// The file to execute; no search.
    pub(super) program: CString,
    /// Arguments, from `argv[0]` on.
    pub(super) argv: Vec<CString>,
    /// The whole environment, each `NAME=value`.
    pub(super) env: Vec<CString>,
    /// Working directory; the parent's if absent.
    pub(super) cwd: Option<CString>,
    /// The child's descriptors: the first becomes 0, the second 1, and so on.
    pub(super) fds: Vec<BorrowedFd<'a>>,
    /// Namespaces to create. With CLONE_NEWUSER this user becomes user 0 in there.
    pub(super) namespaces: CloneFlags,
    /// An open `cgroup.procs`: the child moves itself there before it executes.
    pub(super) cgroup_procs: Option<BorrowedFd<'a>>,
    /// Where the child sends the listener of its fsync gate, if it is to have one.
    pub(super) gate: Option<BorrowedFd<'a>>,
    /// Where the child waits for the supervisor of its clock, if it is to have one of its own.
    pub(super) clock: Option<BorrowedFd<'a>>,
}

/// A process that has executed its program.
#[derive(Debug)]
pub(super) struct Spawned {
    /// Its PID in this process's namespace. The caller must wait for it.
    pub(super) pid: Pid,
    /// A handle on it that is never reused.
    pub(super) pidfd: OwnedFd,
}

/// Makes a C string, with a plain error for the one thing that can be wrong.
pub(super) fn c_string(text: &OsStr) -> Result<CString, Failure> {
    CString::new(text.as_bytes()).map_err(|_| {
        Failure::new(
            Step::Exec,
            format!("pass {text:?}, which contains a NUL byte"),
            Errno::EINVAL,
        )
    })
}

/// `NAME=value` as C strings.
pub(super) fn c_environment(
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<CString>, Failure> {
    env.into_iter()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            c_string(&name)
        })
        .collect()
}

/// What the child stumbled over; goes through the status pipe as two native integers.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Stage {
    Map = 1,
    Descriptors,
    Cgroup,
    Directory,
    Clock,
    Gate,
    Exec,
}

/// All that the child needs, in memory that was allocated before the clone.
struct ChildPlan<'a> {
    program: *const libc::c_char,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    cwd: *const libc::c_char,
    fds: &'a [RawFd],
    /// Room for one duplicate a descriptor.
    copies: Vec<RawFd>,
    cgroup_procs: RawFd,
    /// The socket for the gate's listener, or -1.
    gate: RawFd,
    filter: Filter,
    /// The socket to the clock's supervisor, or -1.
    clock: RawFd,
    tether: Tether,
    status: RawFd,
    /// Read end and write end of the pipe on which the child waits for its id map; -1 without one.
    go: RawFd,
    go_writer: RawFd,
}

impl Spawn<'_> {
    /// Starts it and returns when the child has executed its program (or could not).
    pub(super) fn start(&self) -> Result<Spawned, Failure> {
        let maps_ids = self.namespaces.contains(CloneFlags::CLONE_NEWUSER);
        let step = if self.namespaces.is_empty() {
            Step::Fork
        } else {
            Step::Namespaces
        };
        let pipe =
            || pipe2(OFlag::O_CLOEXEC).map_err(|e| Failure::new(Step::Other, "create a pipe", e));
        let (status_reader, status_writer) = pipe()?;
        let go = if maps_ids { Some(pipe()?) } else { None };
        let fds: Vec<RawFd> = self.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
            strings
                .iter()
                .map(|s| s.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        let mut plan = ChildPlan {
            program: self.program.as_ptr(),
            argv: pointers(&self.argv),
            env: pointers(&self.env),
            cwd: self.cwd.as_ref().map_or(ptr::null(), |cwd| cwd.as_ptr()),
            copies: vec![-1; fds.len()],
            fds: &fds,
            cgroup_procs: self.cgroup_procs.map_or(-1, |fd| fd.as_raw_fd()),
            gate: self.gate.map_or(-1, |fd| fd.as_raw_fd()),
            filter: Filter::new(),
            clock: self.clock.map_or(-1, |fd| fd.as_raw_fd()),
            tether: Tether::new(),
            status: status_writer.as_raw_fd(),
            go: go.as_ref().map_or(-1, |(reader, _)| reader.as_raw_fd()),
            go_writer: go.as_ref().map_or(-1, |(_, writer)| writer.as_raw_fd()),
        };
        let child = clone3(self.namespaces, &mut plan)
            .map_err(|errno| Failure::new(step, format!("start {}", self.describe()), errno))?;
        drop(status_writer);
        let released = match go {
            Some((reader, writer)) => {
                drop(reader);
                map_ids(child.pid).and_then(|()| {
                    File::from(writer)
                        .write_all(b"g")
                        .map_err(|e| Failure::io(Step::IdMap, "release the new process", &e))
                })
            }
            None => Ok(()),
        };
        let started = released.and_then(|()| self.await_exec(status_reader));
        if let Err(failure) = started {
            // Without its map or its program the child can only be ended; it has not run anything.
            let _ = super::syscalls::pidfd_send_signal(
                child.pidfd.as_fd(),
                nix::sys::signal::Signal::SIGKILL,
            );
            let _ = waitpid(child.pid, None);
            return Err(failure);
        }
        Ok(child)
    }

    /// Waits until the status pipe closes, which exec does, or brings the child's error.
    fn await_exec(&self, status: OwnedFd) -> Result<(), Failure> {
        let mut report = Vec::new();
        File::from(status)
            .read_to_end(&mut report)
            .map_err(|e| Failure::io(Step::Other, "hear from the new process", &e))?;
        let Ok(report) = <[u8; 8]>::try_from(report.as_slice()) else {
            return Ok(());
        };
        let [a, b, c, d, e, f, g, h] = report;
        let stage = i32::from_ne_bytes([a, b, c, d]);
        let errno = Errno::from_raw(i32::from_ne_bytes([e, f, g, h]));
        let (step, what) = if stage == Stage::Map as i32 {
            (Step::IdMap, "wait for the id map of".to_owned())
        } else if stage == Stage::Descriptors as i32 {
            (Step::Other, "place the descriptors of".to_owned())
        } else if stage == Stage::Cgroup as i32 {
            (Step::Cgroup, "enter the cgroup for".to_owned())
        } else if stage == Stage::Directory as i32 {
            (
                Step::Exec,
                format!("enter the working directory {:?} for", self.cwd),
            )
        } else if stage == Stage::Clock as i32 {
            (
                Step::Clock,
                "wait for the supervisor of its clock and install its seccomp filter in".to_owned(),
            )
        } else if stage == Stage::Gate as i32 {
            (
                Step::Gate,
                "install the seccomp filter of the fsync gate in".to_owned(),
            )
        } else {
            (Step::Exec, "execute".to_owned())
        };
        Err(Failure::new(
            step,
            format!("{what} {}", self.describe()),
            errno,
        ))
    }

    /// The program for messages; a re-executed stage by the subcommand that it runs.
    fn describe(&self) -> String {
        let text = |c: &CString| c.to_string_lossy().into_owned();
        if self.program.as_c_str() == SELF {
            format!(
                "fencepost {}",
                self.argv.get(1).map(text).unwrap_or_default()
            )
        } else {
            text(&self.program)
        }
    }
}

/// clone3(2), with every signal blocked around it so that no handler of the parent runs in the child.
fn clone3(namespaces: CloneFlags, plan: &mut ChildPlan<'_>) -> Result<Spawned, Errno> {
    let mut before = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_BLOCK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain old data, for which all zeroes is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces.bits() as u64 | libc::CLONE_PIDFD as u64;
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: no CLONE_VM, so the child works on a copy of this memory, on a copy of this stack. It runs
    // `child` only, which never returns and keeps to async-signal-safe calls.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_mut(&mut args),
            size_of::<libc::clone_args>(),
        )
    };
    if result == 0 {
        // SAFETY: this is the new process; the plan's pointers are to memory that the parent prepared.
        unsafe { child(plan) }
    }
    let errno = Errno::last();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    if result < 0 {
        return Err(errno);
    }
    // SAFETY: with CLONE_PIDFD a successful clone3 stores a descriptor that belongs to the caller.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Spawned {
        pid: Pid::from_raw(result as libc::pid_t),
        pidfd,
    })
}

/// The new process, from clone to exec.
///
/// # Safety
/// Only in a process fresh from clone3, with signals blocked; the plan's pointers must be valid.
unsafe fn child(plan: &mut ChildPlan<'_>) -> ! {
    // SAFETY: system calls on numbers and pointers from the plan, all prepared by the parent; every one is
    // async-signal-safe, and nothing here allocates, locks or panics (indices come from iteration).
    unsafe {
        if plan.go >= 0 {
            libc::close(plan.go_writer);
            let mut byte = 0u8;
            if libc::read(plan.go, ptr::from_mut(&mut byte).cast(), 1) != 1 {
                // The parent died or could not write the map.
                give_up(plan.status, Stage::Map, libc::ECANCELED);
            }
        }
        libc::setsid();
        if plan.cgroup_procs >= 0 && libc::write(plan.cgroup_procs, c"0".as_ptr().cast(), 1) != 1 {
            give_up(plan.status, Stage::Cgroup, *libc::__errno_location());
        }
        place_descriptors(plan);
        if !plan.cwd.is_null() && libc::chdir(plan.cwd) != 0 {
            give_up(plan.status, Stage::Directory, *libc::__errno_location());
        }
        // Rust ignores SIGPIPE and ignored signals stay ignored across exec; the new program starts clean.
        // The two numbers that the C library keeps for itself are refused, which does no harm.
        for signo in 1..=64 {
            libc::signal(signo, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        if plan.clock >= 0
            && let Err(errno) = plan.tether.install(plan.clock)
        {
            give_up(plan.status, Stage::Clock, errno);
        }
        // Last, so that nothing but the new program ever meets the gate.
        if plan.gate >= 0
            && let Err(errno) = plan.filter.install_and_send(plan.gate)
        {
            give_up(plan.status, Stage::Gate, errno);
        }
        libc::execve(plan.program, plan.argv.as_ptr(), plan.env.as_ptr());
        give_up(plan.status, Stage::Exec, *libc::__errno_location());
    }
}

/// Puts the given descriptors in their places and marks every other one close-on-exec.
///
/// # Safety
/// As [`child`].
unsafe fn place_descriptors(plan: &mut ChildPlan<'_>) {
    let count = plan.fds.len() as RawFd;
    // SAFETY: system calls on descriptor numbers only.
    unsafe {
        // The status pipe and the other sockets must not sit where a descriptor is to be placed.
        let status = libc::fcntl(plan.status, libc::F_DUPFD_CLOEXEC, count);
        if status < 0 {
            give_up(plan.status, Stage::Descriptors, *libc::__errno_location());
        }
        plan.status = status;
        if plan.gate >= 0 {
            plan.gate = libc::fcntl(plan.gate, libc::F_DUPFD_CLOEXEC, count);
            if plan.gate < 0 {
                give_up(status, Stage::Descriptors, *libc::__errno_location());
            }
        }
        if plan.clock >= 0 {
            plan.clock = libc::fcntl(plan.clock, libc::F_DUPFD_CLOEXEC, count);
            if plan.clock < 0 {
                give_up(status, Stage::Descriptors, *libc::__errno_location());
            }
        }
        // Two passes, since a source may sit on another one's place.
        for (copy, source) in plan.copies.iter_mut().zip(plan.fds) {
            *copy = libc::fcntl(*source, libc::F_DUPFD_CLOEXEC, count);
            if *copy < 0 {
                give_up(status, Stage::Descriptors, *libc::__errno_location());
            }
        }
        for (place, copy) in (0..count).zip(&plan.copies) {
            if libc::dup2(*copy, place) < 0 {
                give_up(status, Stage::Descriptors, *libc::__errno_location());
            }
        }
        // What the user's shell left open in fencepost is nobody's business in a sandbox.
        let rest = count as libc::c_uint;
        libc::syscall(
            libc::SYS_close_range,
            rest,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

/// Reports why the child cannot go on, and ends it.
///
/// # Safety
/// As [`child`].
unsafe fn give_up(status: RawFd, stage: Stage, errno: i32) -> ! {
    let report = [stage as i32, errno];
    // SAFETY: the buffer is as long as stated; _exit runs no handlers of the parent.
    unsafe {
        libc::write(status, report.as_ptr().cast(), size_of_val(&report));
        libc::_exit(127)
    }
}

/// Makes this user user 0 in the child's fresh user namespace. The single-line map of one's own id needs
/// no privilege once setgroups is denied (user_namespaces(7)).
fn map_ids(pid: Pid) -> Result<(), Failure> {
    let write = |file: &str, text: String| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::write(Path::new(&path), text).map_err(|e| {
            Failure::io(
                Step::IdMap,
                format!("write {file} of the new user namespace"),
                &e,
            )
        })
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("0 {} 1", getuid()))?;
    write("gid_map", format!("0 {} 1", getgid()))
}
