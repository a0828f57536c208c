//! Which directory the sandbox may cover with a scratch file system of its own.
//!
//! It has to exist already (an ordinary user cannot make one at the root), be short (paths of Unix sockets
//! end at 107 bytes, and they live in there), and hide nothing that the run needs.

use std::path::{Path, PathBuf};

use super::error::SandboxError;

/// The candidates, best first.
const CANDIDATES: [&str; 4] = ["/dev/shm", "/mnt", "/srv", "/media"];

/// The first candidate that can be covered, with symbolic links resolved.
pub(super) fn choose(needed: &[PathBuf]) -> Result<PathBuf, SandboxError> {
    let mut tried = Vec::new();
    for candidate in CANDIDATES.map(Path::new) {
        match candidate.canonicalize() {
            Ok(path) if !path.is_dir() => {
                tried.push(format!("{} is no directory", candidate.display()))
            }
            Ok(path) => match hidden_by(&path, needed) {
                None => return Ok(path),
                Some(needed) => tried.push(format!(
                    "{} would hide {}",
                    candidate.display(),
                    needed.display()
                )),
            },
            Err(_) => tried.push(format!("{} does not exist", candidate.display())),
        }
    }
    Err(SandboxError::NoScratch {
        tried: tried.join("; "),
    })
}

/// The first needed path that a mount over `directory` would hide.
pub(super) fn hidden_by<'a>(directory: &Path, needed: &'a [PathBuf]) -> Option<&'a PathBuf> {
    needed
        .iter()
        .find(|path| resolve(path).starts_with(directory))
}

/// Resolves symbolic links in as much of the path as exists yet.
fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for ancestor in absolute.ancestors() {
        if let Ok(resolved) = ancestor.canonicalize() {
            return match absolute.strip_prefix(ancestor) {
                Ok(rest) if !rest.as_os_str().is_empty() => resolved.join(rest),
                _ => resolved,
            };
        }
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needed_path_is_hidden_by_its_ancestors_and_itself_only() {
        let needed = [
            PathBuf::from("/srv/results/not-there-yet"),
            PathBuf::from("/dev/shm"),
        ];
        assert_eq!(hidden_by(Path::new("/srv"), &needed), Some(&needed[0]));
        assert_eq!(
            hidden_by(Path::new("/srv/results/not-there-yet"), &needed),
            Some(&needed[0])
        );
        assert_eq!(hidden_by(Path::new("/srv/res"), &needed), None);
        let shm = Path::new("/dev/shm").canonicalize().unwrap();
        assert_eq!(hidden_by(&shm, &needed), Some(&needed[1]));
    }

    #[test]
    fn symbolic_links_do_not_hide_a_needed_path_from_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        let needed = [folder.path().join("link/deep/file")];
        assert_eq!(hidden_by(&real, &needed), Some(&needed[0]));
    }

    #[test]
    fn no_room_is_an_error_with_every_reason() {
        let needed = CANDIDATES.map(PathBuf::from);
        let message = choose(&needed).unwrap_err().to_string();
        assert!(CANDIDATES.iter().all(|c| message.contains(c)), "{message}");
    }
}
