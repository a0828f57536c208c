//! Which servers this machine has, and running a test on each. Nothing is fetched here.

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Where the servers of one kind are looked for.
pub(crate) struct Search {
    /// Environment variable that names them, with colons between them; when it is set, the cache is not looked at.
    pub(crate) variable: &'static str,
    /// Their folder in fencepost's cache.
    pub(crate) folder: &'static str,
    /// Tells one from all else that is there.
    pub(crate) is_one: fn(&Path) -> bool,
    /// What this machine lacks when there is none, and how to get it.
    pub(crate) lack: &'static str,
}

impl Search {
    /// Every one there is; when there is none, says that the test is skipped, and why.
    pub(crate) fn found(&self) -> Vec<PathBuf> {
        let named = std::env::var_os(self.variable).filter(|named| !named.is_empty());
        let found = match named {
            Some(named) => std::env::split_paths(&named).collect(),
            None => self.cached(),
        };
        if found.is_empty() {
            println!("skipped: {}", self.lack);
        }
        found
    }

    fn cached(&self) -> Vec<PathBuf> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        let mut found = Vec::new();
        if let Some(cache) = cache {
            let folder = cache.join("fencepost").join(self.folder);
            self.look_into(&folder, 6, &mut found);
        }
        found.sort();
        found
    }

    fn look_into(&self, folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if (self.is_one)(&path) {
                found.push(path);
            } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.look_into(&path, depth - 1, found);
            }
        }
    }
}

/// True for a program of that name. Packages have scripts, settings and folders of the same name.
pub(crate) fn is_program(path: &Path, name: &str) -> bool {
    let mut magic = [0; 4];
    path.file_name().is_some_and(|found| found == name)
        && std::fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok()
        && magic == *b"\x7fELF"
}

/// Runs a test on each server that was found, all at once.
pub(crate) fn on_each<F>(found: Vec<PathBuf>, test: impl Fn(PathBuf) -> F + Sync)
where
    F: Future<Output = ()>,
{
    let test = &test;
    std::thread::scope(|scope| {
        for one in found {
            scope.spawn(move || block_on(test(one)));
        }
    });
}

/// Runs a test to its end on this thread.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}
