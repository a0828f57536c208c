//! How a server is started: the words before its own flags. Looks at the disk, runs nothing but the
//! loader's own listing of libraries.
//!
//! A package of another Debian suite does not run with this machine's libraries, so it is started by its
//! own suite's dynamic loader with its own suite's libraries (ld.so(8)): no file is changed, and the same
//! bytes run on every distribution. A Java server is started by the Java runtime with its class path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::catalogue::{Backend, Debian, Runtime};
use super::path::check_executable;
use super::tool;

/// The program and the words before a server's own flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Launch(Vec<String>);

impl Launch {
    /// A program that is executed as it is.
    #[must_use]
    pub fn direct(program: &Path) -> Self {
        Self(vec![word(program)])
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// The program that is executed: the server, its loader, or Java.
    #[must_use]
    pub fn program(&self) -> &Path {
        Path::new(self.0.first().map_or("", String::as_str))
    }

    /// How the server in the unpacked packages `files` is started. `java` starts it if it is a Java server.
    pub(super) fn of_packages(
        backend: &Backend,
        debian: &Debian,
        files: &Path,
        java: Option<&Self>,
    ) -> Result<Self, String> {
        let binary = files.join(debian.binary);
        match (&backend.runtime, java) {
            (Runtime::Native, _) => check_executable(&binary).map(|()| Self::direct(&binary)),
            (Runtime::OwnLoader, _) => {
                check_executable(&binary)?;
                Self::by_loader(files, &binary)
            }
            (Runtime::Java { jars }, Some(java)) => {
                let beside = beside(jars, binary.parent().unwrap_or(files));
                Ok(java.with_class_path(&[vec![binary], beside].concat()))
            }
            (Runtime::Java { .. }, None) => Err("it needs Java".into()),
        }
    }

    /// How a server is started that was given by the user or is on `PATH`: with this machine's libraries.
    pub(super) fn of_path(
        backend: &Backend,
        path: &Path,
        java: Option<&Self>,
    ) -> Result<Self, String> {
        if path.to_str().is_none() {
            return Err("its path is no UTF-8".into());
        }
        match (&backend.runtime, java) {
            (Runtime::Java { jars }, Some(java)) => {
                Ok(java.with_class_path(&class_path_of(backend, jars, path)?))
            }
            (Runtime::Java { .. }, None) => Err("it needs Java".into()),
            (Runtime::Native | Runtime::OwnLoader, _) => {
                check_executable(path).map(|()| Self::direct(path))
            }
        }
    }

    fn by_loader(files: &Path, binary: &Path) -> Result<Self, String> {
        let (triplet, loader) = match std::env::consts::ARCH {
            "x86_64" => ("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
            "aarch64" => ("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
            other => return Err(format!("the loader of {other} is not known")),
        };
        let folders = ["lib", "usr/lib"].map(|lib| files.join(lib).join(triplet));
        let found = folders.iter().map(|folder| folder.join(loader));
        let found = found
            .into_iter()
            .find(|file| check_executable(file).is_ok());
        let loader = found.ok_or_else(|| format!("its packages have no {loader}"))?;
        let present = folders.iter().filter(|folder| folder.is_dir());
        let library_path: Vec<_> = present.map(|folder| word(folder)).collect();
        Ok(Self(vec![
            word(&loader),
            "--library-path".into(),
            library_path.join(":"),
            word(binary),
        ]))
    }

    fn with_class_path(&self, jars: &[PathBuf]) -> Self {
        let jars: Vec<_> = jars.iter().map(|jar| word(jar)).collect();
        let mut words = self.0.clone();
        words.extend(["-cp".into(), jars.join(":")]);
        Self(words)
    }

    /// A library that the loader would take from elsewhere than `files`, or not find: then the packages are
    /// not complete, and the server would run on some machines only.
    pub(super) fn stranger(&self, files: &Path, search_path: &OsStr) -> Result<(), String> {
        let [loader, flag, folders, binary] = self.0.as_slice() else {
            return Ok(());
        };
        let args = [flag.as_str(), folders.as_str(), "--list", binary.as_str()];
        let ran = tool::run(Path::new(loader), &args, files, search_path)
            .map_err(|error| format!("its loader {loader} does not run here: {error}"))?;
        if !ran.succeeded {
            return Err(format!("its libraries do not fit: {}", ran.tail()));
        }
        foreign_library(&ran.stdout, files).map_or(Ok(()), |line| {
            Err(format!(
                "one of its libraries is not in its packages: {line}"
            ))
        })
    }
}

/// The first line of the loader's answer (`NAME => PATH (ADDRESS)`) that names a file outside of `files`.
fn foreign_library<'a>(answer: &'a str, files: &Path) -> Option<&'a str> {
    answer.lines().map(str::trim).find(|line| {
        let resolved = line.split_once(" => ").map(|(_, rest)| rest);
        resolved.is_some_and(|rest| !Path::new(rest).starts_with(files))
    })
}

/// Those of `jars` that `folder` has: not every version needs all of them.
fn beside(jars: &[&str], folder: &Path) -> Vec<PathBuf> {
    let all = jars.iter().map(|jar| folder.join(jar));
    all.filter(|jar| jar.is_file()).collect()
}

/// The class path of a Java server of the user's. Debian keeps the jars of everything in one folder, where
/// only those by their known names may be taken; a release's own folder, and its `lib`, is taken whole.
fn class_path_of(backend: &Backend, jars: &[&str], path: &Path) -> Result<Vec<PathBuf>, String> {
    let meta = path.metadata().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        _ => format!("it cannot be read: {error}"),
    })?;
    let whole = |folder: &Path| vec![folder.join("*"), folder.join("lib/*")];
    if meta.is_dir() {
        return Ok(whole(path));
    }
    let folder = path
        .parent()
        .filter(|_| path.extension() == Some(OsStr::new("jar")));
    let folder = folder.ok_or_else(|| {
        format!(
            "expected {}'s main jar, or the folder with its jars",
            backend.name
        )
    })?;
    let mut class_path = vec![path.to_path_buf()];
    let named = beside(jars, folder);
    class_path.extend(if named.is_empty() {
        whole(folder)
    } else {
        named
    });
    Ok(class_path)
}

/// Paths were checked to be UTF-8: by apt's set-up for those of the cache, above for those of the user.
fn word(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_from_elsewhere_is_seen() {
        let answer = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                      \tlibm.so.6 => /c/files/lib/libm.so.6 (0x00007f01)\n\
                      \t/lib64/ld-linux-x86-64.so.2 => /c/files/lib/ld-linux-x86-64.so.2 (0x00007f02)\n";
        assert_eq!(foreign_library(answer, Path::new("/c/files")), None);
        let foreign = foreign_library(answer, Path::new("/c/other")).unwrap();
        assert!(foreign.starts_with("libm.so.6 =>"), "{foreign}");
        let absent = "\tliblzf.so.1 => not found\n";
        assert!(foreign_library(absent, Path::new("/c/files")).is_some());
    }

    #[test]
    fn a_class_path_is_a_jar_or_a_folder_of_them() {
        let zookeeper = super::super::catalogue::backend("zookeeper").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let class_path = |path: &Path| class_path_of(zookeeper, &["slf4j-api.jar"], path);
        let jar = at("zookeeper-3.9.3.jar");
        for file in [&jar, &at("zoo.cfg"), &at("slf4j-api-1.7.jar")] {
            std::fs::write(file, "").unwrap();
        }
        assert_eq!(class_path(folder.path()).unwrap(), [at("*"), at("lib/*")]);
        assert_eq!(
            class_path(&jar).unwrap(),
            [jar.clone(), at("*"), at("lib/*")]
        );
        std::fs::write(at("slf4j-api.jar"), "").unwrap();
        assert_eq!(class_path(&jar).unwrap(), [jar, at("slf4j-api.jar")]);
        let text = class_path(&at("zoo.cfg")).unwrap_err();
        assert!(text.contains("main jar"), "{text}");
        let absent = class_path(&at("none.jar")).unwrap_err();
        assert!(absent.contains("no such file"), "{absent}");
    }
}
