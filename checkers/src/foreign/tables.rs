//! Values and lists of values as numbers.

use std::collections::HashMap;

/// Values by number, as text in the file's own notation. Number 0 is nil.
#[derive(Clone, Debug)]
pub struct Values {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            texts: vec!["nil".into()],
            numbers: HashMap::from([("nil".into(), Self::NIL)]),
        }
    }
}

impl Values {
    /// The number of nil.
    pub const NIL: u32 = 0;

    /// The number of a value, which is added when it is new.
    ///
    /// # Panics
    /// When there are more than 2³² values.
    pub fn intern(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer than 2^32 values");
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// The text of a value.
    ///
    /// # Panics
    /// When the number did not come from this table.
    #[must_use]
    pub fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }
}

/// Lists of values in one piece of memory.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    elements: Vec<u32>,
    ends: Vec<usize>,
}

impl Lists {
    /// Adds a list and gives its number.
    pub fn push(&mut self, list: impl IntoIterator<Item = u32>) -> u64 {
        self.elements.extend(list);
        self.ends.push(self.elements.len());
        self.ends.len() as u64 - 1
    }

    /// The list of that number.
    ///
    /// # Panics
    /// When the number did not come from this table.
    #[must_use]
    pub fn get(&self, number: u64) -> &[u32] {
        let number = usize::try_from(number).expect("a number from this table");
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.elements[start..self.ends[number]]
    }
}
