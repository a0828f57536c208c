//! The hot lines (invoke, ok, fail, info) without a copy and without a JSON parser.
//!
//! It knows the one form in which [`super::encode`] writes them: field order, no spaces, plain strings. Any
//! other line, right or wrong, is `None` here and goes to `serde_json`, which also finds the words for
//! what is wrong. It must never accept what `serde_json` would refuse or read differently (tested).

use super::event::{Completion, Function, Invoke, Ns, Outcome};

/// A hot line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hot<'l> {
    /// An operation was handed over.
    Invoke(HotInvoke<'l>),
    /// It ended.
    Completion(Outcome, HotCompletion<'l>),
}

/// [`Invoke`], borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HotInvoke<'l> {
    pub(crate) op: u64,
    pub(crate) client: u32,
    pub(crate) f: Function,
    pub(crate) lock: &'l str,
    pub(crate) key: Option<&'l str>,
    pub(crate) element: Option<u64>,
    pub(crate) at_ns: Ns,
}

/// [`Completion`], borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HotCompletion<'l> {
    pub(crate) op: u64,
    pub(crate) invoke_ns: Ns,
    pub(crate) return_ns: Ns,
    pub(crate) token: Option<u64>,
    pub(crate) dead_on_arrival: bool,
    pub(crate) wakes: Option<u64>,
    pub(crate) version: Option<u64>,
    pub(crate) base: Option<u64>,
    pub(crate) holds: Option<bool>,
    pub(crate) renewed_ns: Option<Ns>,
    pub(crate) error: Option<&'l str>,
}

impl<'l> From<&'l Invoke> for HotInvoke<'l> {
    fn from(invoke: &'l Invoke) -> Self {
        Self {
            op: invoke.op,
            client: invoke.client,
            f: invoke.f,
            lock: &invoke.lock,
            key: invoke.key.as_deref(),
            element: invoke.element,
            at_ns: invoke.at_ns,
        }
    }
}

impl<'l> From<&'l Completion> for HotCompletion<'l> {
    fn from(completion: &'l Completion) -> Self {
        Self {
            op: completion.op,
            invoke_ns: completion.invoke_ns,
            return_ns: completion.return_ns,
            token: completion.token,
            dead_on_arrival: completion.dead_on_arrival,
            wakes: completion.wakes,
            version: completion.version,
            base: completion.base,
            holds: completion.holds,
            renewed_ns: completion.renewed_ns,
            error: completion.error.as_deref(),
        }
    }
}

/// Reads a line as our writer writes it.
pub(crate) fn hot(line: &[u8]) -> Option<Hot<'_>> {
    let rest = line.strip_prefix(b"{\"e\":\"")?;
    match *rest.first()? {
        b'o' => completion(Outcome::Ok, rest.strip_prefix(b"ok\"")?),
        b'i' => match rest.strip_prefix(b"invoke\"") {
            Some(rest) => invoke(rest),
            None => completion(Outcome::Info, rest.strip_prefix(b"info\"")?),
        },
        b'f' => completion(Outcome::Fail, rest.strip_prefix(b"fail\"")?),
        _ => None,
    }
}

fn invoke(line: &[u8]) -> Option<Hot<'_>> {
    let mut cursor = Cursor(line);
    let op = cursor.field(b",\"op\":")?;
    let client = u32::try_from(cursor.field(b",\"client\":")?).ok()?;
    cursor.eat(b",\"f\":\"")?;
    let f = match cursor.until_quote()? {
        b"acquire" => Function::Acquire,
        b"release" => Function::Release,
        b"read" => Function::Read,
        b"write" => Function::Write,
        b"holds" => Function::Holds,
        _ => return None,
    };
    cursor.eat(b",\"lock\":\"")?;
    let lock = cursor.plain_string()?;
    let key = match cursor.eat(b",\"key\":\"") {
        Some(()) => Some(cursor.plain_string()?),
        None => None,
    };
    let element = cursor.optional(b",\"element\":")?;
    let at_ns = cursor.field(b",\"at_ns\":")?;
    cursor.end()?;
    Some(Hot::Invoke(HotInvoke {
        op,
        client,
        f,
        lock,
        key,
        element,
        at_ns,
    }))
}

fn completion(outcome: Outcome, line: &[u8]) -> Option<Hot<'_>> {
    let mut cursor = Cursor(line);
    let op = cursor.field(b",\"op\":")?;
    let invoke_ns = cursor.field(b",\"invoke_ns\":")?;
    let return_ns = cursor.field(b",\"return_ns\":")?;
    let token = cursor.optional(b",\"token\":")?;
    let dead_on_arrival = cursor.eat(b",\"dead_on_arrival\":true").is_some();
    let wakes = cursor.optional(b",\"wakes\":")?;
    let version = cursor.optional(b",\"version\":")?;
    let base = cursor.optional(b",\"base\":")?;
    let holds = if cursor.eat(b",\"holds\":true").is_some() {
        Some(true)
    } else {
        cursor.eat(b",\"holds\":false").map(|()| false)
    };
    let renewed_ns = cursor.optional(b",\"renewed_ns\":")?;
    let error = match cursor.eat(b",\"error\":\"") {
        Some(()) => Some(cursor.plain_string()?),
        None => None,
    };
    cursor.end()?;
    Some(Hot::Completion(
        outcome,
        HotCompletion {
            op,
            invoke_ns,
            return_ns,
            token,
            dead_on_arrival,
            wakes,
            version,
            base,
            holds,
            renewed_ns,
            error,
        },
    ))
}

/// What is left of a line.
struct Cursor<'l>(&'l [u8]);

impl<'l> Cursor<'l> {
    fn eat(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn field(&mut self, name: &[u8]) -> Option<u64> {
        self.eat(name)?;
        self.number()
    }

    /// `None` when the field is there and is not a number as we write it.
    #[allow(clippy::option_option)]
    fn optional(&mut self, name: &[u8]) -> Option<Option<u64>> {
        match self.eat(name) {
            Some(()) => self.number().map(Some),
            None => Some(None),
        }
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        let mut length = 0;
        for &byte in self.0 {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            // It wraps only past the 19 digits that always fit, and those are refused below.
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            length += 1;
        }
        // JSON has no number that begins with 0 but 0 itself.
        if length == 0 || length > 19 || (self.0[0] == b'0' && length > 1) {
            return None;
        }
        self.0 = &self.0[length..];
        Some(value)
    }

    fn until_quote(&mut self) -> Option<&'l [u8]> {
        let end = memchr::memchr(b'"', self.0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(text)
    }

    /// A string without escapes.
    fn plain_string(&mut self) -> Option<&'l str> {
        let text = self.until_quote()?;
        let plain = text.iter().all(|&b| b >= 0x20 && b != b'\\');
        if plain {
            std::str::from_utf8(text).ok()
        } else {
            None
        }
    }

    fn end(&self) -> Option<()> {
        (self.0 == b"}").then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::history::decode::by_serde;
    use crate::history::{Event, encode};

    /// Compares with what `serde_json` makes of the same line.
    fn agrees(line: &[u8]) -> bool {
        let Some(hot) = hot(line) else {
            return true;
        };
        match (hot, by_serde(&mut line.to_vec())) {
            (Hot::Invoke(hot), Ok(Event::Invoke(event))) => hot == HotInvoke::from(&event),
            (Hot::Completion(Outcome::Ok, hot), Ok(Event::Ok(event)))
            | (Hot::Completion(Outcome::Fail, hot), Ok(Event::Fail(event)))
            | (Hot::Completion(Outcome::Info, hot), Ok(Event::Info(event))) => {
                hot == HotCompletion::from(&event)
            }
            _ => false,
        }
    }

    fn line(event: &Event) -> Vec<u8> {
        let mut line = Vec::new();
        encode(event, &mut line).expect("it encodes");
        line.pop();
        line
    }

    fn event(numbers: &[u64; 8], text: &str, choice: u8) -> Event {
        let [op, a, b, c, d, e, f, g] = *numbers;
        let has = |bit: u8| choice >> bit & 1 == 1;
        let some = |bit: u8, value: u64| has(bit).then_some(value);
        if choice.is_multiple_of(3) {
            return Event::Invoke(Invoke {
                op,
                client: a as u32,
                f: Function::Write,
                lock: text.to_owned(),
                key: has(3).then(|| text.to_owned()),
                element: some(4, b),
                at_ns: c,
            });
        }
        let completion = Completion {
            op,
            invoke_ns: a,
            return_ns: b,
            token: some(3, c),
            dead_on_arrival: has(4),
            wakes: some(6, a),
            version: some(5, d),
            base: some(6, e),
            holds: has(7).then_some(f % 2 == 0),
            renewed_ns: some(3, g),
            error: has(5).then(|| text.to_owned()),
        };
        match choice % 3 {
            1 => Event::Ok(completion),
            _ => Event::Info(completion),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn reads_what_serde_reads(
            numbers in any::<[u64; 8]>(), text in "[a-z/ 0-9]{0,9}|\\PC{0,4}", choice in any::<u8>(),
            at in any::<prop::sample::Index>(), change in any::<u8>(),
        ) {
            let mut line = line(&event(&numbers, &text, choice));
            prop_assert!(agrees(&line));
            // A damaged line must not be read as something else.
            let at = at.index(line.len());
            line[at] = change;
            prop_assert!(agrees(&line));
        }
    }

    #[test]
    fn ordinary_lines_take_the_fast_way() {
        for choice in 0..=255 {
            let numbers = [1, 2, 3, 4, 5, 6, 7, 8];
            assert!(hot(&line(&event(&numbers, "lock-1", choice))).is_some());
        }
    }
}
