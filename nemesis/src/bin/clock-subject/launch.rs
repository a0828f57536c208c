//! Launches a process under a clock where something is forbidden, and tells what came of it.
#![allow(unsafe_code)]

use std::process::{Command, ExitCode};

use nemesis::clock::HostClock;

/// Launches, says the process's number or the error, and waits.
pub(crate) fn launch() -> ExitCode {
    let clock = HostClock::new("n1");
    match clock.spawn(Command::new("sleep").arg("30")) {
        Ok(mut child) => {
            println!("{}", child.pid);
            let _ = child.wait();
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The same, where that system call fails with EPERM, as under a container's own filter.
pub(crate) fn launch_without(forbidden: libc::c_long) -> ExitCode {
    let instruction = |code: u32, yes, no, value: u32| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let mut program = [
        // The number of the call.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            forbidden as u32,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which outlives the calls.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const filter,
        )
    };
    if done != 0 {
        println!("cannot forbid anything here");
        return ExitCode::FAILURE;
    }
    launch()
}
