//! The parameter page: memory that a skewed process shares with us, read by the stub in it.
//!
//! Changes are published under a sequence lock: odd while a change is being written, and whoever reads
//! an odd number, or another one after than before, reads again. So no reading is taken by an old line
//! after the change began: time cannot go backwards. Behind the parameters lie slots, one a thread,
//! for the timeouts that the supervisor puts in place of the thread's own.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::segment::{Line, Segment};

/// Clock numbers are below this (clock_gettime(2)).
pub(super) const CLOCKS: usize = 12;
/// The clocks that are skewed, a bit each: wall and monotonic time and their kin, no CPU times.
pub(super) const SKEWED: u32 = 1 << libc::CLOCK_REALTIME
    | 1 << libc::CLOCK_MONOTONIC
    | 1 << libc::CLOCK_MONOTONIC_RAW
    | 1 << libc::CLOCK_REALTIME_COARSE
    | 1 << libc::CLOCK_MONOTONIC_COARSE
    | 1 << libc::CLOCK_BOOTTIME
    | 1 << libc::CLOCK_TAI;

/// Whether a clock is one of the skewed.
pub(super) fn is_skewed(clock: libc::clockid_t) -> bool {
    (0..CLOCKS as libc::clockid_t).contains(&clock) && SKEWED >> clock & 1 == 1
}

/// Where the sequence number is.
pub(super) const SEQUENCE_OFFSET: usize = 0;
/// Where the addresses of the vDSO's own functions are: clock_gettime, gettimeofday, time.
pub(super) const ORIGINALS_OFFSET: usize = 8;
/// Where the lines of the clocks are.
pub(super) const LINES_OFFSET: usize = 64;
/// From one line to the next; a power of two, so that the stub can shift.
pub(super) const LINE_STRIDE: usize = 64;
/// Where the slots are, and how long one is: an itimerspec.
const SLOTS_OFFSET: usize = 4096;
const SLOT_BYTES: usize = 32;
/// More threads than this in one process keep their own timeouts, which is counted.
const SLOTS: usize = 32_768;
/// The whole mapping. Only what is touched takes memory.
pub(super) const PAGE_BYTES: usize = SLOTS_OFFSET + SLOTS * SLOT_BYTES;

const WORD: usize = size_of::<u64>();

const _: () = {
    assert!(size_of::<Line>() <= LINE_STRIDE);
    assert!(LINES_OFFSET + CLOCKS * LINE_STRIDE <= SLOTS_OFFSET);
};

/// One process's page, mapped here too. Forks share it with their parent.
#[derive(Debug)]
pub(super) struct Page {
    base: NonNull<AtomicU64>,
    slots: Mutex<Slots>,
}

// SAFETY: the mapping is only ever accessed through atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

/// Which slots are in use.
#[derive(Debug, Default)]
struct Slots {
    used: usize,
    free: Vec<usize>,
}

impl Page {
    /// Maps the memory file that the process has mapped.
    pub(super) fn map(file: &File) -> io::Result<Self> {
        // SAFETY: a new shared mapping of a file that is PAGE_BYTES long and sealed by nobody but us.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            base,
            slots: Mutex::default(),
        })
    }

    /// All of it, as words. The process may write here as well (it is its memory), so nothing read back
    /// is trusted.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, aligned to a page, and lives as long as self; any value is a
        // valid word.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), PAGE_BYTES / WORD) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words()[offset / WORD]
    }

    /// Tells the stub where the functions are that it stands before.
    pub(super) fn set_originals(&self, originals: [u64; 3]) {
        for (index, address) in originals.into_iter().enumerate() {
            self.word(ORIGINALS_OFFSET + index * WORD)
                .store(address, Ordering::Relaxed);
        }
    }

    /// From now on readers wait. [`Self::end_change`] must follow soon.
    pub(super) fn begin_change(&self) {
        self.word(SEQUENCE_OFFSET).fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Writes the line of every clock and lets readers go on.
    pub(super) fn end_change(&self, lines: &[Line; CLOCKS]) {
        for (clock, line) in lines.iter().enumerate() {
            let offset = LINES_OFFSET + clock * LINE_STRIDE;
            for (index, word) in words_of(line).into_iter().enumerate() {
                self.word(offset + index * WORD)
                    .store(word, Ordering::Relaxed);
            }
        }
        fence(Ordering::SeqCst);
        self.word(SEQUENCE_OFFSET).fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a slot for a thread; `None` when all are taken.
    pub(super) fn take_slot(&self) -> Option<usize> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.free.pop() {
            return Some(slot);
        }
        let slot = slots.used;
        (slot < SLOTS).then(|| {
            slots.used += 1;
            slot
        })
    }

    /// Gives a slot back.
    pub(super) fn free_slot(&self, slot: usize) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.push(slot);
    }

    /// Writes into a slot and returns where it is, counted from the beginning of the page.
    pub(super) fn write_slot(&self, slot: usize, words: &[u64]) -> u64 {
        let offset = SLOTS_OFFSET + slot * SLOT_BYTES;
        for (index, word) in words.iter().enumerate() {
            self.word(offset + index * WORD)
                .store(*word, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        offset as u64
    }

    /// The first two words of a slot, where the kernel leaves the time that was left.
    pub(super) fn read_slot(&self, slot: usize) -> [u64; 2] {
        let offset = SLOTS_OFFSET + slot * SLOT_BYTES;
        [0, WORD].map(|word| self.word(offset + word).load(Ordering::Relaxed))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nobody borrows from it any more. The process keeps its own.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// A line as the stub reads it.
fn words_of(line: &Line) -> [u64; 7] {
    let of = |segment: &Segment| [segment.base_real_ns, segment.base_own_ns, segment.rate];
    let ([a, b, c], [d, e, f]) = (of(&line.old), of(&line.new));
    [line.from_real_ns, a, b, c, d, e, f]
}
