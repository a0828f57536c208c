//! A table of names, so that ten million operations share one copy of `lock-17`.

use std::collections::HashMap;

/// Names in the order of their first use, each with a small number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names {
    names: Vec<String>,
    ids: HashMap<String, u32>,
}

impl Names {
    /// The number of `name`, which is added when it is new.
    ///
    /// # Panics
    /// When there are more than 2³² names.
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = u32::try_from(self.names.len()).expect("fewer than 2^32 names");
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// The number of `name`, if it occurs.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The name behind a number.
    ///
    /// # Panics
    /// When the number did not come from this table.
    #[must_use]
    pub fn name(&self, id: u32) -> &str {
        &self.names[id as usize]
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True when there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}
