//! Jute, the encoding of ZooKeeper's protocol: big-endian numbers, texts and buffers with their length in
//! front (`zookeeper-jute/src/main/java/org/apache/jute/Binary{Output,Input}Archive.java`). It knows no
//! request.

/// What is being written: one frame, whose length is put in front at the end.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(vec![0; 4])
    }

    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn boolean(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn buffer(self, bytes: &[u8]) -> Self {
        let mut out = self.int(length(bytes.len()));
        out.0.extend_from_slice(bytes);
        out
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.buffer(text.as_bytes())
    }

    pub(super) fn texts(self, texts: &[&str]) -> Self {
        let out = self.int(length(texts.len()));
        texts.iter().fold(out, |out, text| out.text(text))
    }

    /// What another writer has written so far, without its length.
    pub(super) fn append(mut self, body: Writer) -> Self {
        self.0.extend_from_slice(&body.0[4..]);
        self
    }

    /// The frame.
    pub(super) fn frame(mut self) -> Vec<u8> {
        let body = length(self.0.len() - 4);
        self.0[..4].copy_from_slice(&body.to_be_bytes());
        self.0
    }
}

/// Nothing that is sent comes near 2 GiB: the server refuses frames above 1 MiB.
fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Bytes that end too early, or a length that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {left} bytes more")]
pub(super) struct Malformed {
    expected: &'static str,
    left: usize,
}

/// What is left to be read of a frame's body.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    fn take(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err(self.malformed(expected));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed {
            expected,
            left: self.0.len(),
        }
    }

    fn fixed<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, expected)?);
        Ok(bytes)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.fixed("an int").map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.fixed("a long").map(i64::from_be_bytes)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Malformed> {
        self.fixed("a boolean").map(|[byte]| byte != 0)
    }

    /// A buffer that is not there (length -1) reads as an empty one.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        match self.int()? {
            -1 => Ok(&[]),
            length => {
                let length = usize::try_from(length).map_err(|_| self.malformed("a length"))?;
                self.take(length, "a buffer")
            }
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.malformed("a text in UTF-8"))
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let count = self.int()?.max(0); // -1: no vector
        (0..count).map(|_| self.text()).collect()
    }

    /// Everything that was not read.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let frame = Writer::new()
            .int(-101)
            .long(1 << 40)
            .boolean(true)
            .text("/a")
            .buffer(&[0, 255])
            .texts(&["x", ""])
            .append(Writer::new().int(7))
            .frame();
        assert_eq!(frame[..4], 42_i32.to_be_bytes());
        let mut reader = Reader::new(&frame[4..]);
        assert_eq!(reader.int(), Ok(-101));
        assert_eq!(reader.long(), Ok(1 << 40));
        assert_eq!(reader.boolean(), Ok(true));
        assert_eq!(reader.text().as_deref(), Ok("/a"));
        assert_eq!(reader.buffer(), Ok(&[0, 255][..]));
        assert_eq!(reader.texts(), Ok(vec!["x".to_owned(), String::new()]));
        assert_eq!(reader.rest(), 7_i32.to_be_bytes());
    }

    #[test]
    fn bytes_that_make_no_sense_are_an_error() {
        let error = Reader::new(&[0, 0, 0, 9, 1]).buffer().unwrap_err();
        assert_eq!(error.to_string(), "expected a buffer, found 1 bytes more");
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xfe]).buffer().is_err());
        assert!(Reader::new(&[0, 0, 0, 1, 0xff]).text().is_err());
        assert!(Reader::new(&[0, 0]).int().is_err());
        assert_eq!(Reader::new(&[0xff; 4]).buffer(), Ok(&[][..]));
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).texts().is_err());
    }
}
