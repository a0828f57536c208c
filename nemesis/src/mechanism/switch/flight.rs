//! Frames under way: those that were made to wait, in the order in which they are due. Pure.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::RuleId;

/// Most frames that wait at a time: at 1500 bytes about 100 MB. What comes on top is dropped and counted.
const MOST_WAITING: usize = 65_536;

/// A frame that waits.
pub(super) struct Waiting {
    pub(super) due_ns: u64,
    /// Keeps the order of frames that are due at the same time.
    order: u64,
    pub(super) link: (u16, u16),
    /// The rules that made it wait.
    pub(super) rules: Vec<RuleId>,
    pub(super) packet: Vec<u8>,
}

// The heap yields its greatest element, so the order is turned around.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.order).cmp(&(self.due_ns, self.order))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Waiting {}

/// All frames under way.
#[derive(Default)]
pub(super) struct Flight {
    heap: BinaryHeap<Waiting>,
    last_order: u64,
}

impl Flight {
    /// Lets a frame wait; false when there is no room for it.
    pub(super) fn add(
        &mut self,
        due_ns: u64,
        link: (u16, u16),
        rules: Vec<RuleId>,
        packet: Vec<u8>,
    ) -> bool {
        if self.heap.len() >= MOST_WAITING {
            return false;
        }
        self.last_order += 1;
        self.heap.push(Waiting {
            due_ns,
            order: self.last_order,
            link,
            rules,
            packet,
        });
        true
    }

    /// When the next frame is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|waiting| waiting.due_ns)
    }

    /// The next frame that is due.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<Waiting> {
        (self.next_due_ns()? <= now_ns).then(|| self.heap.pop())?
    }

    /// Drops the frames that `is_cut` says so of, and hands each to `dropped`.
    pub(super) fn drop_cut(
        &mut self,
        is_cut: impl Fn(&Waiting) -> bool,
        mut dropped: impl FnMut(&Waiting),
    ) {
        self.heap.retain(|waiting| {
            let cut = is_cut(waiting);
            if cut {
                dropped(waiting);
            }
            !cut
        });
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_by_due_time_and_then_in_order() {
        let mut flight = Flight::default();
        for (due_ns, name) in [(30, 1), (10, 2), (30, 3), (20, 4), (10, 5)] {
            assert!(flight.add(due_ns, (0, 1), Vec::new(), vec![name]));
        }
        assert_eq!(flight.next_due_ns(), Some(10));
        let mut order = Vec::new();
        while let Some(waiting) = flight.take_due(29) {
            order.push(waiting.packet[0]);
        }
        assert_eq!(order, [2, 5, 4]);
        flight.drop_cut(|waiting| waiting.packet[0] == 1, |_| ());
        assert_eq!(flight.take_due(30).expect("one is left").packet, [3]);
        assert_eq!(flight.len(), 0);
    }

    #[test]
    fn too_many_are_refused() {
        let mut flight = Flight::default();
        let taken = (0..MOST_WAITING + 9).filter(|_| flight.add(1, (0, 1), Vec::new(), Vec::new()));
        assert_eq!(taken.count(), MOST_WAITING);
    }
}
