//! State per process (or value): an array while the numbers are dense, a hash table for the rest.

use std::collections::HashMap;

/// A table from small numbers to states; what was never touched is `T::default()`.
pub(crate) struct Slots<T> {
    dense: Vec<T>,
    limit: usize,
    sparse: HashMap<u32, T>,
}

impl<T: Default + Clone> Slots<T> {
    /// For about `expected` numbers. Memory stays in proportion to that, however large a number is.
    pub(crate) fn new(expected: usize) -> Self {
        Self {
            dense: Vec::new(),
            limit: expected.saturating_mul(4).saturating_add(1024),
            sparse: HashMap::new(),
        }
    }

    /// The state of `number`.
    pub(crate) fn at(&mut self, number: u32) -> &mut T {
        let place = number as usize;
        if place >= self.limit {
            return self.sparse.entry(number).or_default();
        }
        if place >= self.dense.len() {
            self.dense.resize(place + 1, T::default());
        }
        &mut self.dense[place]
    }
}
