//! Executables on the disk: is this one, and where on a search path is that one. Runs nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The first executable called `name` in `search_path` (written as `PATH` is), as an absolute
/// path.
pub(super) fn find(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        // An empty element means the working directory to a shell; nothing is taken from there.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| check_executable(path).is_ok())
}

/// Checks that `path` is a file which this user may execute; the error says what it is instead.
pub(super) fn check_executable(path: &Path) -> Result<(), String> {
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("there is no such file".into())
        }
        Err(error) => Err(format!("it cannot be read: {error}")),
        Ok(meta) if meta.is_dir() => Err("it is a folder; the server binary is expected".into()),
        Ok(meta) if !meta.is_file() => Err("it is not a regular file".into()),
        Ok(_) => access(path, AccessFlags::X_OK)
            .map_err(|_| "it is not executable by this user (chmod +x it)".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_executable_files_of_absolute_folders_are_found() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(one.path().join("etcd")).unwrap();
        std::fs::write(two.path().join("etcd"), "").unwrap();
        let search = std::env::join_paths([Path::new(""), one.path(), two.path()]).unwrap();
        assert_eq!(find("etcd", &search), None, "a folder and a plain file");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(two.path().join("etcd"), mode).unwrap();
        assert_eq!(find("etcd", &search), Some(two.path().join("etcd")));
    }
}
