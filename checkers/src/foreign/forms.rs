//! EDN forms of a stream, one at a time, found by their brackets: no file is held in memory as a whole.
//!
//! It knows strings, characters, comments, tags and brackets, and that a file may hold its operations
//! in one vector or list. What a form means is the EDN crate's business.

use super::error::ForeignProblem;
use crate::history::lines::{Lines, shorten};

/// The longest form that is read. A read of a set of some million elements fits.
pub(super) const MAX_FORM_BYTES: usize = 64 << 20;

/// How a search for a form ended.
pub(super) enum Found {
    /// It is in the buffer.
    Form,
    /// There is none any more.
    End,
    /// The compressed stream stops in the middle.
    CutOff,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Between tokens.
    Plain,
    /// In a symbol, number, keyword or tag.
    Atom,
    Text,
    TextEscape,
    /// Right after a backslash outside a string: the next byte is a character.
    Char,
    Comment,
}

/// A cursor over the forms of a file.
pub(super) struct Forms {
    /// The form last found.
    pub(super) buffer: Vec<u8>,
    /// The line on which it begins.
    pub(super) line: u64,
    current_line: u64,
    /// True inside the vector or list that holds all operations.
    wrapped: bool,
    any: bool,
}

impl Forms {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            line: 1,
            current_line: 1,
            wrapped: false,
            any: false,
        }
    }

    /// Reads the next form into the buffer.
    pub(super) fn advance(&mut self, lines: &mut Lines<'_>) -> Result<Found, ForeignProblem> {
        self.buffer.clear();
        let mut scan = Scan {
            inside: Inside::Plain,
            depth: 0,
        };
        loop {
            let Some(chunk) = lines.chunk()? else {
                if lines.cut_off {
                    return Ok(Found::CutOff);
                }
                if scan.depth > 0 || matches!(scan.inside, Inside::Text | Inside::TextEscape) {
                    let found = shorten(&self.buffer);
                    return Err(ForeignProblem::OpenForm { found });
                }
                return Ok(if self.buffer.is_empty() {
                    Found::End
                } else {
                    Found::Form
                });
            };
            let (used, done) = self.take(chunk, &mut scan);
            lines.consume(used);
            if done {
                self.any = true;
                return Ok(Found::Form);
            }
            if self.buffer.len() > MAX_FORM_BYTES {
                let found = shorten(&self.buffer);
                return Err(ForeignProblem::LongForm { found });
            }
        }
    }

    /// Takes bytes up to the end of the form; how many, and whether it ended.
    fn take(&mut self, chunk: &[u8], scan: &mut Scan) -> (usize, bool) {
        for (place, &byte) in chunk.iter().enumerate() {
            self.current_line += u64::from(byte == b'\n');
            if self.buffer.is_empty() {
                if scan.inside == Inside::Comment {
                    if byte == b'\n' {
                        scan.inside = Inside::Plain;
                    }
                    continue;
                }
                match byte {
                    _ if byte.is_ascii_whitespace() || byte == b',' => continue,
                    b';' => {
                        scan.inside = Inside::Comment;
                        continue;
                    }
                    b'[' | b'(' if !self.any && !self.wrapped => {
                        self.wrapped = true;
                        continue;
                    }
                    b']' | b')' if self.wrapped => {
                        self.wrapped = false;
                        continue;
                    }
                    _ => self.line = self.current_line,
                }
            }
            match scan.step(byte) {
                Step::Take => self.buffer.push(byte),
                Step::TakeAndEnd => {
                    self.buffer.push(byte);
                    return (place + 1, true);
                }
                Step::EndBefore => {
                    self.current_line -= u64::from(byte == b'\n');
                    return (place, true);
                }
            }
        }
        (chunk.len(), false)
    }
}

struct Scan {
    inside: Inside,
    depth: usize,
}

enum Step {
    Take,
    TakeAndEnd,
    EndBefore,
}

impl Scan {
    fn step(&mut self, byte: u8) -> Step {
        match self.inside {
            Inside::Text => {
                match byte {
                    b'"' => return self.close(),
                    b'\\' => self.inside = Inside::TextEscape,
                    _ => {}
                }
                return Step::Take;
            }
            Inside::TextEscape => {
                self.inside = Inside::Text;
                return Step::Take;
            }
            Inside::Char => {
                self.inside = Inside::Atom;
                return Step::Take;
            }
            Inside::Comment => {
                if byte == b'\n' {
                    self.inside = Inside::Plain;
                }
                return Step::Take;
            }
            Inside::Plain | Inside::Atom => {}
        }
        match byte {
            b'"' => self.inside = Inside::Text,
            b'\\' => self.inside = Inside::Char,
            b'{' | b'[' | b'(' => {
                self.depth += 1;
                self.inside = Inside::Plain;
            }
            b'}' | b']' | b')' if self.depth > 0 => {
                self.depth -= 1;
                return self.close();
            }
            // An atom of its own at the top level ends here; so does a bracket too many.
            b'}' | b']' | b')' => {
                return if self.inside == Inside::Atom {
                    Step::EndBefore
                } else {
                    Step::TakeAndEnd
                };
            }
            b';' if self.inside == Inside::Plain => self.inside = Inside::Comment,
            _ if byte.is_ascii_whitespace() || byte == b',' => {
                if self.depth == 0 && self.inside == Inside::Atom {
                    return Step::EndBefore;
                }
                self.inside = Inside::Plain;
            }
            _ => self.inside = Inside::Atom,
        }
        Step::Take
    }

    fn close(&mut self) -> Step {
        self.inside = Inside::Plain;
        if self.depth == 0 {
            Step::TakeAndEnd
        } else {
            Step::Take
        }
    }
}
