//! Single system calls, made as programs in other languages make them.
#![allow(unsafe_code)]

use std::mem;
use std::process::ExitCode;
use std::ptr;

use nemesis::clock::TRUTH_MARKER;

fn ns(time: libc::timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn zero() -> libc::timespec {
    libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    }
}

/// Reads time in every way there is.
pub(crate) fn readings() -> ExitCode {
    let (mut vdso, mut raw, mut truth, mut cpu) = (zero(), zero(), zero(), zero());
    let monotonic = libc::CLOCK_MONOTONIC;
    // SAFETY: the kernel and the C library write one timespec or timeval each.
    unsafe {
        libc::clock_gettime(monotonic, &raw mut vdso);
        libc::syscall(libc::SYS_clock_gettime, monotonic, &raw mut raw, 0);
        libc::syscall(
            libc::SYS_clock_gettime,
            monotonic,
            &raw mut truth,
            TRUTH_MARKER,
        );
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut cpu);
        let mut wall: libc::timeval = mem::zeroed();
        let mut raw_wall: libc::timeval = mem::zeroed();
        libc::gettimeofday(&raw mut wall, ptr::null_mut());
        libc::syscall(libc::SYS_gettimeofday, &raw mut raw_wall, 0);
        let raw_time = libc::syscall(libc::SYS_time, 0);
        for number in [ns(vdso), ns(raw), ns(truth), ns(cpu)] {
            println!("{number}");
        }
        for number in [wall.tv_sec, raw_wall.tv_sec, raw_time] {
            println!("{number}");
        }
    }
    ExitCode::SUCCESS
}

/// Says a line at its start and whenever a timer expires: relative, absolute, then each second.
pub(crate) fn timers() -> ExitCode {
    let set = |timer, flags, seconds, period| {
        // SAFETY: plain structures; the kernel reads one itimerspec and writes one timespec.
        unsafe {
            let mut spec: libc::itimerspec = mem::zeroed();
            spec.it_value.tv_sec = seconds;
            spec.it_interval.tv_sec = period;
            if flags != 0 {
                let mut now = zero();
                libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
                spec.it_value.tv_sec += now.tv_sec;
                spec.it_value.tv_nsec = now.tv_nsec;
            }
            libc::timerfd_settime(timer, flags, &raw const spec, ptr::null_mut())
        }
    };
    let wait = |timer| {
        let mut count = 0_u64;
        // SAFETY: the kernel writes eight bytes.
        unsafe { libc::read(timer, (&raw mut count).cast(), 8) };
        println!("{count}");
    };
    // SAFETY: numbers only.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) };
    println!("0");
    set(timer, 0, 1, 0);
    wait(timer);
    set(timer, libc::TFD_TIMER_ABSTIME, 1, 0);
    wait(timer);
    set(timer, 0, 1, 1);
    for _ in 0..6 {
        wait(timer);
    }
    ExitCode::SUCCESS
}

/// Whether the kernel's promise to leave argument registers alone is kept, and what is left of waits that end
/// early. Also asks for something that is known not to be skewed.
pub(crate) fn left() -> ExitCode {
    println!("{}", i64::from(!registers_are_kept()));
    // SAFETY: plain structures and numbers; what the kernel writes to outlives each call.
    unsafe {
        let mut pipe = [0; 2];
        libc::pipe(pipe.as_mut_ptr());
        let writer = pipe[1];
        // 100 ms of real time are 200 of its own at 2x.
        std::thread::spawn(move || {
            let nap = libc::timespec {
                tv_sec: 0,
                tv_nsec: 200_000_000,
            };
            libc::nanosleep(&raw const nap, ptr::null_mut());
            libc::write(writer, b"x".as_ptr().cast(), 1);
        });
        let mut set: libc::fd_set = mem::zeroed();
        libc::FD_SET(pipe[0], &raw mut set);
        let mut second = libc::timeval {
            tv_sec: 1,
            tv_usec: 0,
        };
        // The system call itself: the C library's own keeps what is left to itself.
        libc::syscall(
            libc::SYS_select,
            pipe[0] + 1,
            &raw mut set,
            0,
            0,
            &raw mut second,
        );
        println!("{}", second.tv_sec * 1_000_000 + second.tv_usec);

        extern "C" fn nothing(_: i32) {}
        libc::signal(libc::SIGALRM, nothing as *const () as usize);
        let mut timer: libc::itimerval = mem::zeroed();
        // Not skewed: 100 ms of real time.
        timer.it_value.tv_usec = 100_000;
        libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const timer, 0);
        let (mut nap, mut rest) = (zero(), zero());
        nap.tv_sec = 1;
        libc::syscall(libc::SYS_nanosleep, &raw mut nap, &raw mut rest);
        println!("{}", ns(rest) / 1_000_000);
    }
    println!("0");
    ExitCode::SUCCESS
}

/// Makes a poll that times out and looks whether each register is as it was.
fn registers_are_kept() -> bool {
    let (mut a, mut b, mut c, mut d, mut e): (u64, u64, u64, u64, u64) = (0, 0, 10, 44, 55);
    // SAFETY: poll(2) with no descriptors and 10 ms; the kernel clobbers rcx and r11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_poll => _,
            inlateout("rdi") a,
            inlateout("rsi") b,
            inlateout("rdx") c,
            inlateout("r10") d,
            inlateout("r8") e,
            out("rcx") _,
            out("r11") _,
        );
    }
    (a, b, c, d, e) == (0, 0, 10, 44, 55)
}

/// Waits that are made from one place with one set of arguments: one with a timeout that is cut short, one
/// without, and the first again, whose length it says in milliseconds of its own time.
pub(crate) fn stale() -> ExitCode {
    let mut pipe = [0; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe { libc::pipe(pipe.as_mut_ptr()) };
    let wake_after = |milliseconds| {
        let writer = pipe[1];
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
            // SAFETY: one byte that outlives the call.
            unsafe { libc::write(writer, b"x".as_ptr().cast(), 1) };
        })
    };
    let mut descriptor = libc::pollfd {
        fd: pipe[0],
        events: libc::POLLIN,
        revents: 0,
    };
    for (round, timeout) in [1000, -1, 1000].into_iter().enumerate() {
        if round == 1 {
            println!("waiting");
        }
        let waker = (round < 2).then(|| wake_after([100, 900][round]));
        let began = std::time::Instant::now();
        // SAFETY: one descriptor that outlives the call; a byte read.
        unsafe {
            libc::poll(&raw mut descriptor, 1, timeout);
            if round < 2 {
                libc::read(pipe[0], [0_u8].as_mut_ptr().cast(), 1);
            }
        }
        drop(waker.map(std::thread::JoinHandle::join));
        if round == 2 {
            println!("{}", began.elapsed().as_millis());
        }
    }
    ExitCode::SUCCESS
}
