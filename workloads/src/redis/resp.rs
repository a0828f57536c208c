//! RESP2, the protocol that Redis and Sentinel speak (redis.io, "Redis serialization protocol specification").
//!
//! Bytes to values and back, and nothing else: no sockets, no meaning of an answer.

/// An answer, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `+OK`
    Simple(String),
    /// `-ERR …`, without the minus sign.
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$3`, any bytes.
    Bulk(Vec<u8>),
    /// `$-1` or `*-1`: nothing there.
    Nil,
    /// `*2`
    Array(Vec<Value>),
}

/// Bytes that are no RESP2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub(crate) struct Malformed {
    expected: &'static str,
    found: String,
}

/// The longest string that Redis stores (`proto-max-bulk-len`).
const MOST_BYTES: i64 = 512 << 20;
/// Arrays within arrays; no answer that is asked for here has more than three levels.
const MOST_LEVELS: u32 = 8;
/// A line that is longer is no length, number or message.
const MOST_LINE: usize = 64 << 10;

impl Value {
    /// The text of a string; absent for anything else, and for bytes that are no text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Simple(text) => Some(text),
            Value::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array; none for anything else.
    pub(crate) fn elements(&self) -> &[Value] {
        match self {
            Value::Array(elements) => elements,
            _ => &[],
        }
    }

    /// The value behind a name in a flat list of names and values.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.elements().chunks_exact(2);
        pairs.find(|pair| pair[0].text() == Some(name))?[1].text()
    }
}

/// A command as an array of strings, the only form in which clients send any.
pub(crate) fn encode<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads one value from the front of `bytes`: the value and how many bytes it took, or nothing while its
/// end has not arrived.
///
/// # Errors
/// When no further byte can make it RESP2.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut cursor = Cursor { bytes, at: 0 };
    Ok(cursor.value(0)?.map(|value| (value, cursor.at)))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn value(&mut self, level: u32) -> Result<Option<Value>, Malformed> {
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        let (kind, rest) = line.split_first().unwrap_or((&0, &[]));
        match kind {
            b'+' => Ok(Some(Value::Simple(lossy(rest)))),
            b'-' => Ok(Some(Value::Error(lossy(rest)))),
            b':' => Ok(Some(Value::Integer(number(rest)?))),
            b'$' => self.bulk(number(rest)?),
            b'*' => self.array(number(rest)?, level),
            _ => Err(malformed("+, -, :, $ or *", line)),
        }
    }

    /// Up to the next line end, which is passed over.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = &self.bytes[self.at..];
        match rest.windows(2).position(|pair| pair == b"\r\n") {
            Some(length) => {
                self.at += length + 2;
                Ok(Some(&rest[..length]))
            }
            None if rest.len() > MOST_LINE => Err(malformed("a line end", rest)),
            None => Ok(None),
        }
    }

    fn bulk(&mut self, length: i64) -> Result<Option<Value>, Malformed> {
        if length == -1 {
            return Ok(Some(Value::Nil));
        }
        let length = usize::try_from(length)
            .ok()
            .filter(|_| length <= MOST_BYTES)
            .ok_or_else(|| malformed("a length up to 512 MiB", length.to_string().as_bytes()))?;
        let rest = &self.bytes[self.at..];
        let Some(found) = rest.get(..length + 2) else {
            return Ok(None);
        };
        let (content, end) = found.split_at(length);
        if end != b"\r\n" {
            return Err(malformed("a line end after a string", end));
        }
        self.at += length + 2;
        Ok(Some(Value::Bulk(content.to_vec())))
    }

    fn array(&mut self, length: i64, level: u32) -> Result<Option<Value>, Malformed> {
        if length == -1 {
            return Ok(Some(Value::Nil));
        }
        if length < 0 || level >= MOST_LEVELS {
            return Err(malformed(
                "a short, shallow array",
                length.to_string().as_bytes(),
            ));
        }
        let mut elements = Vec::new();
        for _ in 0..length {
            match self.value(level + 1)? {
                Some(element) => elements.push(element),
                None => return Ok(None),
            }
        }
        Ok(Some(Value::Array(elements)))
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| malformed("a whole number", digits))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed(expected: &'static str, found: &[u8]) -> Malformed {
    Malformed {
        expected,
        found: lossy(&found[..found.len().min(80)]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Value {
        let (value, used) = decode(bytes).expect("RESP2").expect("complete");
        assert_eq!(used, bytes.len());
        value
    }

    #[test]
    fn every_kind_of_answer_is_read() {
        assert_eq!(whole(b"+OK\r\n"), Value::Simple("OK".into()));
        assert_eq!(whole(b"-ERR no\r\n"), Value::Error("ERR no".into()));
        assert_eq!(whole(b":-7\r\n"), Value::Integer(-7));
        assert_eq!(whole(b"$4\r\na\r\nb\r\n"), Value::Bulk(b"a\r\nb".to_vec()));
        assert_eq!(whole(b"$0\r\n\r\n"), Value::Bulk(Vec::new()));
        assert_eq!(whole(b"$-1\r\n"), Value::Nil);
        assert_eq!(whole(b"*-1\r\n"), Value::Nil);
        let pair = whole(b"*2\r\n$4\r\nname\r\n*1\r\n:1\r\n");
        assert_eq!(
            pair,
            Value::Array(vec![
                Value::Bulk(b"name".to_vec()),
                Value::Array(vec![Value::Integer(1)])
            ])
        );
    }

    #[test]
    fn rubbish_is_refused_with_what_was_expected() {
        for (bad, expected) in [
            (&b"HTTP/1.1 400\r\n"[..], "+, -, :, $ or *"),
            (b"\r\n", "+, -, :, $ or *"),
            (b":x\r\n", "a whole number"),
            (b"$-2\r\n", "a length"),
            (b"$99999999999\r\n", "a length"),
            (b"$1\r\nabc", "a line end after a string"),
            (b"*-3\r\n", "a short, shallow array"),
        ] {
            let error = decode(bad).expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let deep = b"*1\r\n".repeat(100);
        assert!(decode(&deep).is_err());
        assert!(decode(&vec![b'+'; MOST_LINE + 2]).is_err());
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let list = whole(b"*4\r\n+ip\r\n+198.18.0.1\r\n+port\r\n+6379\r\n");
        assert_eq!(list.field("port"), Some("6379"));
        assert_eq!(list.field("6379"), None);
    }

    fn arrays() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-zA-Z ]{0,12}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
                let mut out = format!("${}\r\n", bytes.len()).into_bytes();
                out.extend_from_slice(&bytes);
                out.extend_from_slice(b"\r\n");
                out
            }),
        ];
        proptest::collection::vec(leaf, 0..6).prop_map(|parts| {
            let mut out = format!("*{}\r\n", parts.len()).into_bytes();
            parts.iter().for_each(|part| out.extend_from_slice(part));
            out
        })
    }

    proptest! {
        #[test]
        fn a_part_of_an_answer_is_never_taken_for_a_whole(bytes in arrays(), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len());
            prop_assert_eq!(decode(&bytes[..cut]), Ok(None));
            prop_assert_eq!(decode(&bytes).map(|found| found.map(|(_, used)| used)), Ok(Some(bytes.len())));
        }

        #[test]
        fn a_command_reads_back_as_its_words(words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6)) {
            let mut bytes = Vec::new();
            encode(words.iter().map(Vec::as_slice), &mut bytes);
            let expected = words.into_iter().map(Value::Bulk).collect();
            prop_assert_eq!(whole(&bytes), Value::Array(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
