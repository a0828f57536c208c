//! Fetching Debian packages without root: a private apt root for one suite, which uses the
//! machine's own mirror, proxy settings and keyring, and leaves the machine's own apt alone.
//!
//! Nothing is installed and no maintainer script runs: packages are downloaded, verified by apt
//! against the signed index, and unpacked. See apt.conf(5), sources.list(5), apt-get(8).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::cache::Package;
use super::catalogue::{Debian, Release};
use super::complaint::{self, Step::*};
use super::error::FetchFault;
use super::tool::{Ran, run};
use super::{mirror, path};

/// The programs that fetching needs.
pub(super) struct Tools {
    apt_get: PathBuf,
    apt_cache: PathBuf,
    dpkg_deb: PathBuf,
    search_path: OsString,
}

impl Tools {
    pub(super) fn find(search_path: &OsStr) -> Result<Self, FetchFault> {
        let tool = |tool| path::find(tool, search_path).ok_or(FetchFault::NoTool { tool });
        Ok(Tools {
            apt_get: tool("apt-get")?,
            apt_cache: tool("apt-cache")?,
            dpkg_deb: tool("dpkg-deb")?,
            search_path: search_path.into(),
        })
    }

    fn run<A: AsRef<OsStr>>(
        &self,
        tool: &Path,
        args: &[A],
        folder: &Path,
    ) -> Result<Ran, FetchFault> {
        run(tool, args, folder, &self.search_path).map_err(FetchFault::io("run", tool))
    }
}

/// Debian's archive keyring in the first of `dirs` that has it: the file with all keys, else the
/// files with one key each. Keys that Debian has withdrawn are left out.
pub(super) fn keyrings(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, FetchFault> {
    for dir in dirs {
        let mut files: Vec<_> = fs::read_dir(dir)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        files.retain(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("debian-archive-")
                && !name.contains("removed")
                && [".gpg", ".pgp", ".asc"]
                    .iter()
                    .any(|end| name.ends_with(end))
                && fs::File::open(file).is_ok()
        });
        files.sort();
        if let Some(whole) = files
            .iter()
            .find(|file| file.file_stem() == Some(OsStr::new("debian-archive-keyring")))
        {
            return Ok(vec![whole.clone()]);
        }
        if !files.is_empty() {
            return Ok(files);
        }
    }
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    Err(FetchFault::NoKeyring {
        dirs: dirs.join(", "),
    })
}

/// A private apt root with one suite.
pub(super) struct AptRoot<'a> {
    tools: &'a Tools,
    dir: PathBuf,
    suite: &'a str,
}

impl<'a> AptRoot<'a> {
    /// Lays out the root in the empty folder `dir`.
    pub(super) fn create(
        tools: &'a Tools,
        dir: &Path,
        suite: &'a str,
        keyrings: &[PathBuf],
    ) -> Result<Self, FetchFault> {
        let ask = ["indextargets", "--format", mirror::FORMAT];
        let targets = tools.run(&tools.apt_get, &ask, dir)?;
        if !targets.succeeded {
            return Err(FetchFault::Apt {
                step: "`apt-get indextargets`",
                tail: targets.tail(),
            });
        }
        let site = mirror::choose(&targets.stdout, suite)
            .map_err(|found| FetchFault::NoMirror { found })?;
        let root = AptRoot {
            tools,
            dir: dir.to_path_buf(),
            suite,
        };
        for folder in [
            "state/lists/partial",
            "cache/archives/partial",
            "preferences.d",
            "debs",
        ] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).map_err(FetchFault::io("create", &folder))?;
        }
        let signed_by: Vec<_> = keyrings.iter().map(|file| file.to_string_lossy()).collect();
        let source = format!(
            "deb [signed-by={}] {site} {suite} main\n",
            signed_by.join(",")
        );
        for (name, text) in [("sources.list", source), ("apt.conf", apt_conf(dir)?)] {
            let file = dir.join(name);
            fs::write(&file, text).map_err(FetchFault::io("write", &file))?;
        }
        Ok(root)
    }

    /// Downloads the packages of `debian`, the first in the version that `release` says, and unpacks them
    /// into `into`.
    pub(super) fn fetch(
        &self,
        debian: &Debian,
        release: &Release,
        into: &Path,
        progress: &dyn Fn(&str),
    ) -> Result<Vec<Package>, FetchFault> {
        progress(&format!(
            "reading the package list of Debian {} …",
            self.suite
        ));
        self.update()?;
        let packages = self.packages(debian, release)?;
        let told: Vec<_> = packages.iter().map(Package::to_string).collect();
        progress(&format!("downloading {} …", told.join(", ")));
        self.download(&packages)?;
        for package in &packages {
            self.unpack(package, into)?;
        }
        Ok(packages)
    }

    fn update(&self) -> Result<(), FetchFault> {
        let ran = self.apt(&self.tools.apt_get, &["-q", "update"])?;
        // Before version 2.1.15 apt ends with status 0 although it fetched nothing.
        if ran.succeeded && !ran.all.contains("Failed to fetch") {
            return Ok(());
        }
        Err(complaint::fault(&ran, Update, self.suite, &self.dir))
    }

    /// Finds the packages in the suite: the first in a version that is `release`, the others in the newest
    /// there is.
    fn packages(&self, debian: &Debian, release: &Release) -> Result<Vec<Package>, FetchFault> {
        let ask = [&["madison"], debian.packages].concat();
        let ran = self.apt(&self.tools.apt_cache, &ask)?;
        let found = debian.packages.iter().enumerate().map(|(nth, name)| {
            let has = madison_versions(&ran.stdout, name);
            let fits = |version: &&String| nth > 0 || release.is_packaged_as(upstream_of(version));
            match has.iter().find(fits) {
                Some(version) => Ok(Package {
                    name: (*name).into(),
                    version: version.clone(),
                }),
                None => Err(FetchFault::VersionAbsent {
                    package: (*name).into(),
                    suite: self.suite.into(),
                    wanted: if nth > 0 {
                        "in any version"
                    } else {
                        release.version
                    }
                    .into(),
                    has: if has.is_empty() {
                        "none".into()
                    } else {
                        has.join(", ")
                    },
                }),
            }
        });
        found.collect()
    }

    fn download(&self, packages: &[Package]) -> Result<(), FetchFault> {
        let exact = packages.iter();
        let exact: Vec<_> = exact
            .map(|one| format!("{}={}", one.name, one.version))
            .collect();
        let mut args = vec!["-q", "download"];
        args.extend(exact.iter().map(String::as_str));
        let ran = self.apt(&self.tools.apt_get, &args)?;
        if ran.succeeded {
            return Ok(());
        }
        Err(complaint::fault(&ran, Download, self.suite, &self.dir))
    }

    fn unpack(&self, package: &Package, into: &Path) -> Result<(), FetchFault> {
        let debs = self.dir.join("debs");
        let prefix = format!("{}_", package.name);
        let deb = fs::read_dir(&debs)
            .map_err(FetchFault::io("read", &debs))?
            .flatten()
            .find(|file| {
                let name = file.file_name().to_string_lossy().into_owned();
                name.starts_with(&prefix) && name.ends_with(".deb")
            });
        let Some(deb) = deb else {
            let tail = format!("it left no file {prefix}*.deb");
            return Err(FetchFault::BrokenDownload {
                by: "apt-get",
                tail,
            });
        };
        let (extract, deb) = (OsStr::new("-x"), deb.path());
        let args = [extract, deb.as_os_str(), into.as_os_str()];
        let ran = self.tools.run(&self.tools.dpkg_deb, &args, &debs)?;
        match ran.succeeded {
            true => Ok(()),
            false => Err(complaint::fault(&ran, Unpack, self.suite, &self.dir)),
        }
    }

    /// Runs an apt program on this root.
    fn apt(&self, tool: &Path, args: &[&str]) -> Result<Ran, FetchFault> {
        // With `-c` our settings are read after the machine's own, so they win (apt.conf(5)).
        let config = self.dir.join("apt.conf");
        let mut all = vec![OsStr::new("-c"), config.as_os_str()];
        all.extend(args.iter().map(OsStr::new));
        self.tools.run(tool, &all, &self.dir.join("debs"))
    }
}

/// The settings that make an apt root private. The machine's proxies and credentials stay.
fn apt_conf(dir: &Path) -> Result<String, FetchFault> {
    let text = dir
        .to_str()
        .filter(|text| !text.contains(['"', '\\', '\n', ':']));
    let dir = text.ok_or_else(|| FetchFault::AwkwardPath {
        path: dir.to_path_buf(),
    })?;
    Ok(format!(
        r##"// The machine's hooks are about its own packages.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
// Package lists only: no DEP-11, no Contents, no translations.
#clear Acquire::IndexTargets::deb;
Acquire::IndexTargets::deb::Packages {{
  MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
  ShortDescription "Packages";
  Description "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Packages";
  Optional "0";
}};
Acquire::Languages "none";
Acquire::GzipIndexes "true";
// Fail rather than hang on a mirror that does not answer.
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
APT::Update::Error-Mode "any";
APT::Default-Release "";
// Without root there is no user `_apt` to change to.
APT::Sandbox::User "";
Dir::Etc::sourcelist "{dir}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "{dir}/preferences.d";
Dir::State "{dir}/state";
Dir::State::lists "{dir}/state/lists";
Dir::State::status "/dev/null";
Dir::State::extended_states "{dir}/state/extended_states";
Dir::Cache "{dir}/cache";
Dir::Cache::archives "{dir}/cache/archives";
Dir::Cache::pkgcache "{dir}/cache/pkgcache.bin";
Dir::Cache::srcpkgcache "{dir}/cache/srcpkgcache.bin";
"##
    ))
}

/// The versions in the answer of `apt-cache madison`, as it orders them (newest first).
fn madison_versions(answer: &str, package: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for line in answer.lines() {
        let mut columns = line.split('|').map(str::trim);
        let (name, version) = (columns.next(), columns.next());
        if let Some(version) = version.filter(|_| name == Some(package)) {
            // A machine with several architectures has a line for each.
            if !versions.iter().any(|known| known == version) {
                versions.push(version.into());
            }
        }
    }
    versions
}

/// The upstream version in a Debian version: without epoch, Debian revision, and the mark of a
/// repacked source such as `+dfsg` (deb-version(7)).
fn upstream_of(version: &str) -> &str {
    let version = version
        .split_once(':')
        .map_or(version, |(_epoch, rest)| rest);
    let version = version
        .rsplit_once('-')
        .map_or(version, |(upstream, _revision)| upstream);
    version
        .split_once('+')
        .map_or(version, |(upstream, _repacked)| upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_versions() {
        for (debian, upstream) in [
            ("3.3.25+dfsg-6+b6", "3.3.25"),
            ("3.4.23-4+b4", "3.4.23"),
            ("5:7.0.15-1~deb12u5", "7.0.15"),
            ("3.6.0~rc1-1", "3.6.0~rc1"),
            ("1.0", "1.0"),
        ] {
            assert_eq!(upstream_of(debian), upstream);
        }
    }

    #[test]
    fn madison_columns() {
        let answer = "etcd-server | 3.5.16-4 | http://m/debian trixie/main amd64 Packages\n\
                      etcd-server | 3.5.16-4 | http://m/debian trixie/main i386 Packages\n\
                      other | 1 | http://m/debian trixie/main amd64 Packages\n";
        assert_eq!(madison_versions(answer, "etcd-server"), ["3.5.16-4"]);
        assert!(madison_versions("N: Unable to locate package\n", "etcd-server").is_empty());
    }

    #[test]
    fn the_whole_keyring_comes_before_single_keys_and_withdrawn_ones_never() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, keys) = (dir.path().join("none"), dir.path().to_path_buf());
        let write = |name: &str| fs::write(keys.join(name), "").unwrap();
        write("debian-archive-removed-keys.gpg");
        write("ubuntu-archive-keyring.gpg");
        let error = keyrings(&[empty.clone(), keys.clone()])
            .unwrap_err()
            .to_string();
        assert!(error.contains(&*keys.to_string_lossy()), "{error}");
        write("debian-archive-trixie-stable.asc");
        write("debian-archive-bookworm-stable.asc");
        assert_eq!(keyrings(&[empty.clone(), keys.clone()]).unwrap().len(), 2);
        write("debian-archive-keyring.pgp");
        assert_eq!(
            keyrings(&[empty, keys.clone()]).unwrap(),
            [keys.join("debian-archive-keyring.pgp")]
        );
    }

    #[test]
    fn a_path_that_would_break_the_configuration_is_refused() {
        assert!(
            apt_conf(Path::new("/tmp/a b"))
                .unwrap()
                .contains("\"/tmp/a b/state\"")
        );
        // A colon would end a folder of a library path.
        for path in ["/tmp/a\"; DPkg \"", "/tmp/a:b"] {
            assert!(apt_conf(Path::new(path)).is_err(), "{path}");
        }
    }
}
