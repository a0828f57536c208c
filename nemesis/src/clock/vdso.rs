//! The vDSO of a stopped process: found, read, and made to lead to the stub.
//!
//! Only the values of three dynamic symbols are changed. The functions themselves stay as they are and
//! where they are, and the stub calls them: no instruction is decoded or moved, and no thread can be in the
//! middle of anything that changes. What is looked up later (at start by libc and by Go) finds the stub.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use super::arch::{SYMBOLS, SYSCALL_INSTRUCTION};
use super::error::ClockError;

/// Sizes and tags of ELF64 (elf(5)).
const EHDR_BYTES: u64 = 64;
const PHDR_BYTES: usize = 56;
const SYM_BYTES: usize = 24;
const DYN_BYTES: usize = 16;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
/// A vDSO is a few pages; anything larger is something else.
const MOST_BYTES: u64 = 64 * 1024;
/// A vDSO has about a dozen symbols.
const MOST_SYMBOLS: usize = 256;

/// The vDSO of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vdso {
    /// Addresses of the vDSO's own clock_gettime, gettimeofday and time; the last may be missing.
    pub(super) originals: [u64; 3],
    /// Address of a system call instruction in it.
    pub(super) call: u64,
    /// Address of some text in it that ends in a zero byte.
    pub(super) text: u64,
    /// Begin and end.
    range: (u64, u64),
    /// Addresses of the symbols' values, with the function that each stands for.
    values: Vec<(u64, usize)>,
    /// What to subtract from an address to have a symbol's value.
    bias: u64,
}

impl Vdso {
    /// Finds it in a process.
    pub(super) fn find(pid: i32, memory: &File) -> Result<Self, ClockError> {
        let (begin, end) = range(pid)?;
        let mut image = vec![0; (end - begin) as usize];
        memory
            .read_exact_at(&mut image, begin)
            .map_err(|error| ClockError::patch(pid, "read its vDSO", &error))?;
        Self::parse(begin, &image).map_err(|(expected, found)| ClockError::Vdso {
            pid,
            expected,
            found,
        })
    }

    /// Reads the image of one that lies at `begin`.
    fn parse(begin: u64, image: &[u8]) -> Result<Self, (&'static str, String)> {
        let elf = Image(image);
        if image.get(..4) != Some(b"\x7fELF") {
            return Err(("an ELF image", format!("{:?}", image.get(..4))));
        }
        let lacking = |what| move || (what, "none".to_owned());
        let (base, dynamic) = elf.headers().ok_or_else(lacking("a dynamic segment"))?;
        let symbols = elf
            .dynamic(dynamic, DT_SYMTAB, base)
            .ok_or_else(lacking("a symbol table"))?;
        let strings = elf
            .dynamic(dynamic, DT_STRTAB, base)
            .ok_or_else(lacking("a string table"))?;
        let mut originals = [0; 3];
        let mut values = Vec::new();
        // The string table follows the symbols in every vDSO so far; a bound in any case.
        let count = match strings.checked_sub(symbols) {
            Some(bytes) if bytes > 0 => (bytes / SYM_BYTES).min(MOST_SYMBOLS),
            _ => MOST_SYMBOLS,
        };
        for index in 0..count {
            let at = symbols + index * SYM_BYTES;
            let (Some(name), Some(value)) = (elf.u32(at), elf.u64(at + 8)) else {
                break;
            };
            let Some(name) = elf.text(strings + name as usize) else {
                continue;
            };
            let function = SYMBOLS.iter().position(|names| names.contains(&name));
            if let Some(function) = function {
                originals[function] = begin.wrapping_add(value.wrapping_sub(base));
                values.push((begin + at as u64 + 8, function));
            }
        }
        if originals[0] == 0 || originals[1] == 0 {
            let found = format!("{originals:x?}");
            return Err(("the symbols clock_gettime and gettimeofday", found));
        }
        let call = image[EHDR_BYTES as usize..]
            .windows(SYSCALL_INSTRUCTION.len())
            .position(|bytes| bytes == SYSCALL_INSTRUCTION)
            .ok_or_else(lacking("a system call instruction"))?;
        Ok(Self {
            originals,
            call: begin + EHDR_BYTES + call as u64,
            // The first string of a table is empty; the second is some name.
            text: begin + strings as u64 + 1,
            range: (begin, begin + image.len() as u64),
            values,
            bias: begin.wrapping_sub(base),
        })
    }

    /// Makes its symbols lead to these functions.
    pub(super) fn lead_to(&self, memory: &File, functions: [u64; 3]) -> io::Result<()> {
        for (at, function) in &self.values {
            let value = functions[*function].wrapping_sub(self.bias);
            memory.write_all_at(&value.to_ne_bytes(), *at)?;
        }
        Ok(())
    }

    /// Whether its symbols lead to these functions now.
    pub(super) fn leads_to(&self, memory: &File, functions: [u64; 3]) -> bool {
        self.values.iter().all(|(at, function)| {
            let mut value = [0; 8];
            let expected = functions[*function].wrapping_sub(self.bias);
            memory.read_exact_at(&mut value, *at).is_ok() && u64::from_ne_bytes(value) == expected
        })
    }

    /// Whether an address is in it.
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.range.0..self.range.1).contains(&address)
    }
}

/// Where the vDSO of a process is.
fn range(pid: i32) -> Result<(u64, u64), ClockError> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .map_err(|error| ClockError::patch(pid, "read its memory map", &error))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end) = (parse(begin)?, parse(end)?);
        (begin < end && end - begin <= MOST_BYTES).then_some((begin, end))
    });
    range.ok_or_else(|| ClockError::Vdso {
        pid,
        expected: "a mapping of at most 64 kB called [vdso]",
        found: line
            .unwrap_or("none; was Linux started with vdso=0?")
            .to_owned(),
    })
}

/// An ELF64 image of this machine's byte order. Every access is checked.
struct Image<'a>(&'a [u8]);

impl<'a> Image<'a> {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }

    fn text(&self, at: usize) -> Option<&'a str> {
        let bytes = self.0.get(at..)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }

    /// An offset, if it is within the image: nothing is added to any other.
    fn within(&self, offset: u64) -> Option<usize> {
        usize::try_from(offset)
            .ok()
            .filter(|offset| *offset < self.0.len())
    }

    /// The address that offset 0 is linked at, and the offset of the dynamic section.
    fn headers(&self) -> Option<(u64, usize)> {
        let table = self.within(self.u64(32)?)?;
        let (mut base, mut dynamic) = (None, None);
        for index in 0..usize::from(self.u16(56)?) {
            let at = table + index * PHDR_BYTES;
            let (offset, address) = (self.u64(at + 8)?, self.u64(at + 16)?);
            match self.u32(at)? {
                PT_LOAD if base.is_none() => base = Some(address.wrapping_sub(offset)),
                PT_DYNAMIC => dynamic = self.within(offset),
                _ => {}
            }
        }
        Some((base?, dynamic?))
    }

    /// The offset that an entry of the dynamic section gives.
    fn dynamic(&self, section: usize, tag: u64, base: u64) -> Option<usize> {
        let mut at = section;
        loop {
            match self.u64(at)? {
                0 => return None,
                found if found == tag => {
                    return self.within(self.u64(at + 8)?.wrapping_sub(base));
                }
                _ => at += DYN_BYTES,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_vdso_has_what_is_needed() {
        let pid = std::process::id().cast_signed();
        let memory = File::open("/proc/self/mem").expect("our own memory");
        let vdso = Vdso::find(pid, &memory).expect("a vDSO");
        assert!(vdso.originals.iter().all(|at| vdso.contains(*at)));
        assert!(vdso.contains(vdso.call) && vdso.contains(vdso.text));
        assert_eq!(vdso.values.len(), 6, "both names of each function");
        assert!(vdso.leads_to(&memory, vdso.originals));
        assert!(!vdso.leads_to(&memory, [1, 2, 3]));
    }

    #[test]
    fn rubbish_is_told_and_never_read_beyond_its_end() {
        let mut image = vec![0; 4096];
        assert_eq!(
            Vdso::parse(0x1000, &image).expect_err("no ELF").0,
            "an ELF image"
        );
        image[..4].copy_from_slice(b"\x7fELF");
        assert!(Vdso::parse(0x1000, &image).is_err());
        // Header tables that point anywhere.
        for value in [1, 4095, 4096, u64::MAX] {
            image[32..40].copy_from_slice(&value.to_ne_bytes());
            image[56] = 3;
            assert!(Vdso::parse(0x1000, &image).is_err());
        }
    }
}
