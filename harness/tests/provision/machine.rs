//! Machines to fetch on: shell scripts that stand in for apt, in a folder that is the whole search
//! path, so that what the machine under the tests has does not matter. Nothing here sets an
//! environment variable of its own process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::provision::{FetchFault, Located, ProvisionError, Provisioner, Wanted};
use tempfile::TempDir;

/// A machine with nothing on its search path but what a test puts there.
pub(crate) struct Machine {
    /// Removed with the machine.
    pub(crate) dir: TempDir,
}

pub(crate) const SILENT: &dyn Fn(&str) = &|_| {};
pub(crate) const INDEX: &str = "echo 'http://mirror.invalid/debian bookworm main Debian'";
pub(crate) const ETCD: &str = "#!/bin/sh\necho 'etcd Version: 3.5.16'\necho 'Git SHA: none'\n";

impl Machine {
    pub(crate) fn bare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["bin", "keys", "cache"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("keys/debian-archive-keyring.gpg"), "").unwrap();
        let machine = Machine { dir };
        for tool in ["cat", "chmod", "mkdir", "sleep"] {
            let real = ["/usr/bin", "/bin"].map(|bin| Path::new(bin).join(tool));
            let real = real.iter().find(|path| path.exists()).expect("coreutils");
            std::os::unix::fs::symlink(real, machine.at("bin").join(tool)).unwrap();
        }
        machine
    }

    /// With stand-ins for apt and dpkg-deb that work; `calls` gets a line for each update.
    pub(crate) fn with_apt() -> Self {
        let machine = Machine::bare();
        machine.apt_get(INDEX, "true", "echo deb > etcd-server_3.5.16-4_amd64.deb");
        machine.madison("etcd-server | 3.5.16-4 | http://mirror.invalid/debian trixie/main");
        let unpack = format!(
            "mkdir -p \"$3/usr/bin\"\ncat > \"$3/usr/bin/etcd\" <<'END'\n{ETCD}END\nchmod 755 \"$3/usr/bin/etcd\""
        );
        machine.tool("dpkg-deb", &unpack);
        machine
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn apt_get(&self, index: &str, update: &str, download: &str) {
        let calls = self.at("calls");
        let body = format!(
            "case \"$*\" in\nindextargets*) {index};;\n\
             *update) echo update >> '{}'; {update};;\n*download*) {download};;\nesac",
            calls.display()
        );
        self.tool("apt-get", &body);
    }

    pub(crate) fn madison(&self, answer: &str) {
        self.tool("apt-cache", &format!("echo '{answer}'"));
    }

    pub(crate) fn tool(&self, name: &str, body: &str) {
        write_script(&self.at("bin").join(name), &format!("#!/bin/sh\n{body}\n"));
    }

    pub(crate) fn updates(&self) -> usize {
        fs::read_to_string(self.at("calls"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    pub(crate) fn provisioner(&self) -> Provisioner {
        Provisioner {
            cache_dir: Some(self.at("cache")),
            search_path: self.at("bin").into(),
            keyring_dirs: vec![self.at("keys")],
            java: None,
        }
    }

    pub(crate) fn locate(&self) -> Result<Located, ProvisionError> {
        self.provisioner()
            .locate(&wanted("etcd@3.5.16"), None, SILENT)
    }

    /// The fault that a fetch ends with, and the whole message. Nothing half may be left.
    pub(crate) fn fault(&self) -> (FetchFault, String) {
        let error = self.locate().unwrap_err();
        assert_eq!(
            self.cached(),
            Vec::<String>::new(),
            "left behind by: {error}"
        );
        let message = error.to_string();
        assert!(
            message.contains("etcd-server") && message.contains("--binary etcd=PATH"),
            "{message}"
        );
        assert!(!error.is_usage());
        let ProvisionError::Fetch { fault, .. } = error else {
            panic!("{message}")
        };
        (*fault, message)
    }

    /// What the cache holds for etcd, lock files aside.
    pub(crate) fn cached(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at("cache/etcd")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with(".lock")).collect()
    }
}

/// Writes through a child process: a file that this process has open for writing could be
/// inherited by another test's child just then, and be "busy" when it is to be run.
pub(crate) fn write_script(path: &Path, text: &str) {
    let script = "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"";
    let status = Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(path)
        .arg(text)
        .status()
        .unwrap();
    assert!(status.success());
}

pub(crate) fn wanted(text: &str) -> Wanted {
    text.parse().unwrap()
}
