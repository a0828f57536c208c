//! The thread that traces a process and all that it starts: one loop over what its threads do.
//!
//! It patches every program that is executed, hands timed waits to `waits`, and changes of the clock to
//! `rearm`. It must never leave a
//! thread stopped, and ends only when no process is left; if it dies, the kernel kills them all.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread;

use super::arch::{self, Registers};
use super::bell;
use super::calls::{Wait, Why};
use super::error::ClockError;
use super::inject::{self, Patched};
use super::page::{CLOCKS, Page};
use super::rearm::{RESTART_BLOCK, was_interrupted};
use super::segment::Line;
use super::shared::{Shared, Supervised};
use super::tally::Tally;
use super::trace::{self, Event, Resume};
use super::vdso::Vdso;
use crate::mechanism::scheduling::{self, Scheduling};

/// Tells whoever launched a process what became of it.
pub(super) struct Launched {
    /// How the launch went. Taken once that is told.
    pub(super) outcome: Option<Sender<Result<(), ClockError>>>,
    /// With which status it ended. A tracer's process gets that once; whoever is its parent in the same
    /// process must not wait for it, since a wait by any thread would also take its stops.
    pub(super) end: Sender<i32>,
    /// Whether it is a process of the host, to be counted, and not a canary.
    pub(super) counted: bool,
}

/// A process under supervision.
pub(super) struct Process {
    pub(super) memory: fs::File,
    /// Shared with its forks, which share the mapping.
    pub(super) page: Arc<Page>,
    pub(super) vdso: Vdso,
    /// It has set a timerfd.
    pub(super) timers: bool,
}

/// A thread under supervision.
#[derive(Default)]
pub(super) struct Thread {
    /// Its process.
    pub(super) process: i32,
    /// The last timed wait that it began.
    pub(super) wait: Option<Begun>,
    /// It is about to make that wait again: what is left counts, not the whole timeout.
    pub(super) again: bool,
    /// What must be put right when it returns from its call.
    pub(super) on_return: Option<OnReturn>,
    /// Where its replaced timeouts go.
    pub(super) slot: Option<usize>,
}

/// A timed wait that a thread has begun.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// When, in own monotonic time.
    pub(super) at_ns: u64,
    /// How long it is to last in own time, if it is relative and that was needed: at rate 1 a timeout is
    /// read only when the clock changes meanwhile, unless the kernel may have put what was left in its
    /// place by then.
    pub(super) length_ns: Option<u64>,
    /// The registers with which it began.
    pub(super) registers: Registers,
}

/// What must be put right when a thread returns from a call.
#[derive(Clone, Copy)]
pub(super) struct OnReturn {
    /// Its registers before its arguments were replaced.
    pub(super) registers: Registers,
    /// The wait that it is.
    pub(super) wait: Wait,
}

/// Starts a supervisor. `seize` runs on its thread and returns the process that it has seized; the
/// outcome is known once that has executed its first program.
pub(super) fn start(
    shared: &Arc<Shared>,
    seize: impl FnOnce() -> Result<i32, ClockError> + Send + 'static,
    launched: Launched,
) -> io::Result<()> {
    let supervised = Arc::new(Supervised::default());
    // Until it has a process there is nobody to tell of a change.
    supervised.knows.store(u64::MAX, Ordering::SeqCst);
    shared.lock().supervisors.push(Arc::downgrade(&supervised));
    let shared = Arc::clone(shared);
    let run = move || {
        bell::listen();
        // Threads wait for this one. Where the kernel cannot do it they wait a little longer.
        let _ = scheduling::schedule(Scheduling::ShortSlices);
        supervised
            .thread
            .store(bell::this_thread(), Ordering::SeqCst);
        match seize() {
            Err(error) => drop(launched.outcome.map(|sender| sender.send(Err(error)))),
            Ok(pid) => {
                let mut supervisor = Supervisor::new(&shared, &supervised, pid, launched);
                // The thread must end in either case: its end kills whatever it has not let go.
                let ended = catch_unwind(AssertUnwindSafe(|| supervisor.run()));
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => shared.break_down(format!("its supervisor failed: {error}")),
                    Err(_) => shared.break_down("its supervisor panicked".to_owned()),
                }
            }
        }
        supervised.over.store(true, Ordering::SeqCst);
    };
    thread::Builder::new()
        .name("clock".to_owned())
        .spawn(run)
        .map(drop)
}

/// The loop's state.
pub(super) struct Supervisor<'a> {
    pub(super) shared: &'a Shared,
    pub(super) supervised: &'a Supervised,
    pub(super) processes: HashMap<i32, Process>,
    pub(super) threads: HashMap<i32, Thread>,
    /// New threads that stopped before it was known whose they are.
    strays: HashSet<i32>,
    /// Threads that were interrupted because of a change and have not stopped yet.
    pub(super) interrupted: HashSet<i32>,
    /// The change that they were interrupted for.
    pub(super) generation: u64,
    /// The lines as of that change.
    pub(super) lines: [Line; CLOCKS],
    /// The process that was launched.
    first: i32,
    launched: Launched,
}

impl<'a> Supervisor<'a> {
    fn new(shared: &'a Shared, supervised: &'a Supervised, pid: i32, launched: Launched) -> Self {
        let thread = Thread {
            process: pid,
            ..Thread::default()
        };
        // In this order: a change in between is then merely followed once more.
        let generation = shared.generation.load(Ordering::SeqCst);
        supervised.knows.store(generation, Ordering::SeqCst);
        Self {
            shared,
            supervised,
            processes: HashMap::new(),
            threads: [(pid, thread)].into(),
            strays: HashSet::new(),
            interrupted: HashSet::new(),
            generation,
            lines: shared.lock().lines,
            first: pid,
            launched,
        }
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let event = trace::wait(None);
            self.follow_changes();
            match event {
                Ok((tid, event)) => match self.handle(tid, event) {
                    // Killed between its stop and our request: its end will be reported.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    handled => handled?,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.note_knowledge();
        }
    }

    fn handle(&mut self, tid: i32, event: Event) -> io::Result<()> {
        if !self.threads.contains_key(&tid) && !matches!(event, Event::Gone(_) | Event::Exec) {
            // It is let go when its maker's event tells whose it is.
            self.strays.insert(tid);
            return Ok(());
        }
        // Whatever it stops for, it will not stop for our interruption any more (ptrace(2)).
        let interrupted = self.interrupted.remove(&tid);
        match event {
            Event::Gone(status) => {
                self.gone(tid, status);
                Ok(())
            }
            Event::Seccomp => self.stopped_at_call(tid),
            Event::Return => {
                self.returning(tid)?;
                if interrupted {
                    self.make_wait_again(tid, was_interrupted)?;
                }
                trace::resume(tid, Resume::Run(0))
            }
            Event::Exec => self.executed(tid),
            Event::Child => self.made(tid),
            Event::Stop(signal) => {
                if interrupted {
                    self.make_wait_again(tid, was_interrupted)?;
                }
                let how = signal.map_or(Resume::Run(0), |_| Resume::Listen);
                trace::resume(tid, how)
            }
            Event::Signal(signal) => {
                if interrupted {
                    // Any other way to go on after a signal leads through the filter.
                    self.make_wait_again(tid, |result| result == RESTART_BLOCK)?;
                }
                let waits_for_return = self.threads[&tid].on_return.is_some();
                trace::resume(
                    tid,
                    if waits_for_return {
                        Resume::ToReturn(signal)
                    } else {
                        Resume::Run(signal)
                    },
                )
            }
            Event::Other => trace::resume(tid, Resume::Run(0)),
        }
    }

    /// A process has executed a program: it gets a stub and a page. One that cannot is killed, because it
    /// would live in real time without anybody knowing.
    fn executed(&mut self, pid: i32) -> io::Result<()> {
        // Whatever thread executed it has this number now, and the others are gone.
        let gone = self.threads_of(pid);
        gone.into_iter().for_each(|tid| self.forget(tid));
        let thread = Thread {
            process: pid,
            ..Thread::default()
        };
        self.threads.insert(pid, thread);
        match inject::patch(pid) {
            Ok(Patched { memory, page, vdso }) => {
                let page = Arc::new(page);
                self.shared.publish(&page);
                let process = Process {
                    memory,
                    page,
                    vdso,
                    timers: false,
                };
                self.add(pid, process);
                self.tell(Ok(()));
                trace::resume(pid, Resume::Run(0))
            }
            Err(ClockError::Died { status, .. }) => {
                self.gone(pid, status);
                Ok(())
            }
            // Killed in the middle: its end will be reported.
            Err(_) if is_dying(pid) => Ok(()),
            Err(error) => {
                if self.launched.outcome.is_none() {
                    self.shared.break_down(error.to_string());
                }
                self.tell(Err(error));
                let pid = nix::unistd::Pid::from_raw(pid);
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
                Ok(())
            }
        }
    }

    fn tell(&mut self, outcome: Result<(), ClockError>) {
        if let Some(sender) = self.launched.outcome.take() {
            // Whoever launched it may have given up.
            let _ = sender.send(outcome);
        }
    }

    /// A thread has made another thread or a process.
    fn made(&mut self, tid: i32) -> io::Result<()> {
        let new = trace::message(tid)? as i32;
        let maker = self.threads[&tid].process;
        // Gone already: its end came first or will come.
        if let Some(process) = thread_group(new) {
            if process != maker && !self.processes.contains_key(&process) {
                self.inherit(maker, process);
            }
            let thread = Thread {
                process,
                ..Thread::default()
            };
            self.threads.entry(new).or_insert(thread);
        }
        if self.strays.remove(&new) {
            trace::resume(new, Resume::Run(0))?;
        }
        trace::resume(tid, Resume::Run(0))
    }

    /// A fork has its parent's stub, vDSO and page.
    fn inherit(&mut self, parent: i32, child: i32) {
        let memory = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{child}/mem"));
        if let (Some(parent), Ok(memory)) = (self.processes.get(&parent), memory) {
            let process = Process {
                memory,
                page: Arc::clone(&parent.page),
                vdso: parent.vdso.clone(),
                timers: parent.timers,
            };
            self.add(child, process);
        }
    }

    fn add(&mut self, pid: i32, process: Process) {
        self.processes.insert(pid, process);
        if self.launched.counted {
            self.shared.lock().processes.insert(pid);
        }
    }

    /// Counts something, unless this is about a canary.
    pub(super) fn count(&self, what: impl FnOnce(&mut Tally)) {
        if self.launched.counted {
            what(&mut self.shared.lock().tally);
        }
    }

    fn gone(&mut self, tid: i32, status: i32) {
        self.forget(tid);
        if tid == self.first {
            // Before it executed its program it ends with the number of what went wrong.
            let answer = match libc::WIFEXITED(status) {
                true => io::Error::from_raw_os_error(libc::WEXITSTATUS(status)).to_string(),
                false => format!("it was killed by signal {}", libc::WTERMSIG(status)),
            };
            self.tell(Err(ClockError::NotStarted { answer }));
            // Nobody may be interested.
            let _ = self.launched.end.send(status);
        }
    }

    fn forget(&mut self, tid: i32) {
        self.strays.remove(&tid);
        self.interrupted.remove(&tid);
        let Some(thread) = self.threads.remove(&tid) else {
            return;
        };
        if let (Some(slot), Some(process)) = (thread.slot, self.processes.get(&thread.process)) {
            process.page.free_slot(slot);
        }
        if self.threads_of(thread.process).is_empty() {
            self.processes.remove(&thread.process);
            self.shared.lock().processes.remove(&thread.process);
        }
    }

    fn threads_of(&self, process: i32) -> Vec<i32> {
        let threads = self.threads.iter();
        threads
            .filter(|(_, thread)| thread.process == process)
            .map(|(tid, _)| *tid)
            .collect()
    }

    /// A thread has reached a call that the filter stops.
    fn stopped_at_call(&mut self, tid: i32) -> io::Result<()> {
        // By the call's number and not by the filter's answer, which would be one more request: how soon a
        // thread goes on is what living by this clock costs.
        let registers = trace::registers(tid)?;
        let how = match arch::why(registers.call()) {
            Some(Why::Wait) => self.begin_wait(tid, registers)?,
            Some(Why::Read) => self.answer_reading(tid, registers)?,
            Some(Why::Timer) => self.set_timer(tid, registers)?,
            _ => {
                let name = arch::gap_name(registers.call());
                self.count(|tally| *tally.gaps.entry(name).or_default() += 1);
                Resume::Run(0)
            }
        };
        trace::resume(tid, how)
    }
}

/// Whether a process has been killed, although its tracer has not heard of it yet.
fn is_dying(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain anything.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('t' | 'T'))
}

/// The process that a thread belongs to.
fn thread_group(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
