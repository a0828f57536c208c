//! Contents of files that are not on the disk yet: what stood there before, page by page.
//!
//! A page's pre-image is taken at the first write to it after a sync, so undoing costs as much memory as
//! was changed and not synced. Knows nothing of names or of FUSE.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::draw::Draws;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What one file looked like when it was last synced, as far as it differs from now.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// Its size.
    size: u64,
    /// Its pages before they were changed; `None` for one that lay beyond its end.
    pages: BTreeMap<u64, Option<Box<[u8]>>>,
    /// Bytes written since.
    pub(super) written: u64,
}

/// What a file lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reverted {
    /// Sectors of changed pages that were put back or cut off.
    pub(super) sectors: u64,
    /// Changed sectors that reached the disk although nobody asked for it.
    pub(super) kept: u64,
}

impl Unsynced {
    /// The file is in sync now.
    pub(super) fn new(size: u64) -> Self {
        Self {
            size,
            pages: BTreeMap::new(),
            written: 0,
        }
    }

    /// Its size when it was last synced.
    pub(super) fn durable_size(&self) -> u64 {
        self.size
    }

    /// Takes the pre-images of a range that is about to be written or cut off.
    pub(super) fn before_change(&mut self, file: &File, from: u64, to: u64) -> io::Result<()> {
        for page in from / PAGE..to.div_ceil(PAGE) {
            if self.pages.contains_key(&page) {
                continue;
            }
            let image = if page * PAGE >= self.size {
                None
            } else {
                Some(read_page(file, page)?)
            };
            self.pages.insert(page, image);
        }
        Ok(())
    }

    /// Puts everything back.
    pub(super) fn revert(self, file: &File) -> io::Result<Reverted> {
        let size = file.metadata()?.len();
        let mut reverted = Reverted::default();
        for (page, image) in &self.pages {
            let there = size.saturating_sub(page * PAGE).min(PAGE);
            let was = image.as_ref().map_or(0, |image| image.len() as u64);
            reverted.sectors += there.max(was).div_ceil(SECTOR as u64);
            if let Some(image) = image {
                file.write_all_at(image, page * PAGE)?;
            }
        }
        // What was merely allocated beyond the old end held nothing.
        file.set_len(self.size)?;
        Ok(reverted)
    }

    /// Puts back some sectors and not others, as a disk does that was in the middle of writing. Each
    /// changed sector reached it with an even chance, and so did the file's new size.
    pub(super) fn tear(self, file: &File, draws: &mut Draws) -> io::Result<Reverted> {
        let size = file.metadata()?.len();
        let grows = draws.unit() < 0.5;
        let end = if grows { size } else { self.size };
        let mut reverted = Reverted::default();
        for (&page, image) in &self.pages {
            let now = read_page(file, page)?;
            let old = image.as_deref().unwrap_or_default();
            for from in (0..now.len().max(old.len())).step_by(SECTOR) {
                let (new, old) = (sector(&now, from), sector(old, from));
                if new == old {
                    continue;
                }
                let at = page * PAGE + from as u64;
                // What lies beyond the end or was cut off cannot be kept.
                if at >= end || new.is_empty() || draws.unit() < 0.5 {
                    let mut put = vec![0; new.len().max(old.len())];
                    put[..old.len()].copy_from_slice(old);
                    file.write_all_at(&put, at)?;
                    reverted.sectors += 1;
                } else {
                    reverted.kept += 1;
                }
            }
        }
        file.set_len(end)?;
        Ok(reverted)
    }
}

/// The sector of a page that begins there, shorter or empty at its end.
fn sector(page: &[u8], from: usize) -> &[u8] {
    let from = from.min(page.len());
    &page[from..(from + SECTOR).min(page.len())]
}

/// A page, shorter at the end of the file.
fn read_page(file: &File, page: u64) -> io::Result<Box<[u8]>> {
    let mut bytes = vec![0; PAGE as usize];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], page * PAGE + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(bytes, 0).expect("written");
        file
    }

    fn write(file: &File, unsynced: &mut Unsynced, at: u64, bytes: &[u8]) {
        unsynced
            .before_change(file, at, at + bytes.len() as u64)
            .expect("read");
        file.write_all_at(bytes, at).expect("written");
    }

    fn content(file: &File) -> Vec<u8> {
        let mut bytes =
            vec![0; usize::try_from(file.metadata().expect("there").len()).expect("small")];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    }

    #[test]
    fn overwritten_appended_and_truncated_bytes_come_back() {
        let old: Vec<u8> = (0..10_000u32).map(|byte| byte as u8).collect();
        let file = file_with(&old);
        let mut unsynced = Unsynced::new(old.len() as u64);
        write(&file, &mut unsynced, 4000, &[7; 500]);
        write(&file, &mut unsynced, 9_990, &[8; 30_000]);
        unsynced.before_change(&file, 100, 39_990).expect("read");
        file.set_len(100).expect("cut");
        write(&file, &mut unsynced, 50, &[9; 100]);
        unsynced.revert(&file).expect("put back");
        assert_eq!(content(&file), old);
    }

    #[test]
    fn a_torn_write_mixes_whole_sectors_of_old_and_new_by_the_seed() {
        let torn = |seed| {
            let file = file_with(&[1; 8192]);
            let mut unsynced = Unsynced::new(8192);
            write(&file, &mut unsynced, 0, &[2; 16_384]);
            let reverted = unsynced
                .tear(&file, &mut Draws::new(seed, 0))
                .expect("torn");
            assert_eq!(reverted.sectors + reverted.kept, 32);
            content(&file)
        };
        let content = torn(3);
        for sector in content.chunks(SECTOR) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "a torn sector"
            );
        }
        let of = |value| {
            content
                .chunks(SECTOR)
                .filter(|sector| sector[0] == value)
                .count()
        };
        assert!(of(1) > 0 && of(2) > 0, "{} old, {} new", of(1), of(2));
        assert_eq!(torn(3), content);
        assert_ne!(torn(4), content);
    }
}
