//! Symbolic links of unpacked packages. A package's absolute links mean its own files, but unpacked
//! elsewhere they would mean this machine's: they are made relative.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::error::FetchFault;

/// Makes every absolute link below `root` relative whose target is in `root`. What points elsewhere stays.
pub(super) fn keep_inside(root: &Path) -> Result<(), FetchFault> {
    in_folder(root, root, 0)
}

fn in_folder(root: &Path, folder: &Path, depth: usize) -> Result<(), FetchFault> {
    for entry in fs::read_dir(folder).map_err(FetchFault::io("read", folder))? {
        let entry = entry.map_err(FetchFault::io("read", folder))?;
        let kind = entry.file_type().map_err(FetchFault::io("read", folder))?;
        let path = entry.path();
        if kind.is_dir() {
            in_folder(root, &path, depth + 1)?;
        } else if kind.is_symlink() {
            relink(root, &path, depth).map_err(FetchFault::io("change the link", &path))?;
        }
    }
    Ok(())
}

/// `depth` is how many folders below `root` the link lies in.
fn relink(root: &Path, link: &Path, depth: usize) -> io::Result<()> {
    let target = fs::read_link(link)?;
    let Ok(inside) = target.strip_prefix("/") else {
        return Ok(());
    };
    if root.join(inside).symlink_metadata().is_err() {
        return Ok(());
    }
    let up: PathBuf = std::iter::repeat_n("..", depth).collect();
    fs::remove_file(link)?;
    symlink(up.join(inside), link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_links_come_to_mean_the_packages_own_files() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("usr/lib/jvm")).unwrap();
        fs::create_dir_all(at("etc/java")).unwrap();
        fs::write(at("etc/java/jvm.cfg"), "-server").unwrap();
        symlink("/etc/java/jvm.cfg", at("usr/lib/jvm/jvm.cfg")).unwrap();
        symlink("/etc/java", at("conf")).unwrap();
        symlink("/etc/hostname", at("usr/elsewhere")).unwrap();
        symlink("jvm.cfg", at("usr/lib/jvm/near")).unwrap();
        keep_inside(root.path()).unwrap();
        assert_eq!(
            fs::read_to_string(at("usr/lib/jvm/jvm.cfg")).unwrap(),
            "-server"
        );
        for (link, target) in [
            ("usr/lib/jvm/jvm.cfg", "../../../etc/java/jvm.cfg"),
            ("conf", "etc/java"),
            ("usr/elsewhere", "/etc/hostname"),
            ("usr/lib/jvm/near", "jvm.cfg"),
        ] {
            assert_eq!(fs::read_link(at(link)).unwrap(), Path::new(target));
        }
    }
}
