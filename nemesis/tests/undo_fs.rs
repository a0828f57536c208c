//! The file system that forgets, on a real mount: what was synced is kept, the rest is gone.
//!
//! The writers are ordinary programs and other processes than the one that serves the mount. Where FUSE
//! cannot be had the tests are skipped, with the reason.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nemesis::mechanism::undo_fs::{Keep, UndoFs};

/// A mount and its folder.
struct Disk {
    fs: UndoFs,
    point: PathBuf,
    folder: tempfile::TempDir,
}

impl Disk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let (backing, point) = (folder.path().join("backing"), folder.path().join("mnt"));
        fs::create_dir_all(&point).expect("a folder");
        match UndoFs::mount(&backing, &point) {
            Ok(fs) => Some(Self { fs, point, folder }),
            Err(why) => {
                println!("SKIPPED: {why}");
                None
            }
        }
    }

    /// Runs a shell script in the mount and returns what it printed.
    fn run(&self, script: &str) -> String {
        let ran = Command::new("sh")
            .args(["-euc", script])
            .current_dir(&self.point)
            .output()
            .expect("sh runs");
        let (out, err) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        assert!(ran.status.success(), "{script}: {out}{err}");
        out.trim_end().to_owned()
    }

    /// Every file with its content, by the shell.
    fn all(&self) -> String {
        self.run("find . -type f | sort | while read -r f; do echo \"$f $(cat \"$f\")\"; done")
    }

    /// Every file with its content as the backing directory has it.
    fn backing(&self) -> String {
        let live = self.folder.path().join("backing/live");
        let ran = Command::new("sh")
            .args([
                "-euc",
                "find . -type f | sort | while read -r f; do echo \"$f $(cat \"$f\")\"; done",
            ])
            .current_dir(live)
            .output()
            .expect("sh runs");
        String::from_utf8_lossy(&ran.stdout).trim_end().to_owned()
    }
}

#[test]
fn what_was_synced_survives_and_what_was_not_is_gone() {
    let Some(disk) = Disk::mount() else { return };
    disk.run("echo one >kept; sync kept; echo two >>kept; echo three >never");
    assert_eq!(disk.all(), "./kept one\ntwo\n./never three");
    let loss = disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(disk.all(), "./kept one");
    assert_eq!(disk.all(), disk.backing());
    assert_eq!(
        (loss.files, loss.bytes, loss.names_undone),
        (2, 10, 1),
        "{loss}"
    );
    // It goes on working.
    disk.run("echo four >>kept; sync kept");
    disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(disk.all(), "./kept one\nfour");
}

#[test]
fn renames_and_removals_are_undone_unless_the_folder_was_synced() {
    let Some(disk) = Disk::mount() else { return };
    disk.run(
        "mkdir d; echo old >config; echo log >d/log; echo x >gone; \
         sync config d/log gone . d",
    );
    disk.run("echo new >config.tmp; sync config.tmp; mv config.tmp config; rm gone; mv d/log d/log.1; rm -r d");
    assert_eq!(disk.all(), "./config new");
    let loss = disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(
        disk.all(),
        "./config old\n./config.tmp new\n./d/log log\n./gone x"
    );
    assert_eq!(loss.names_undone, 5, "{loss}");
    disk.run("mv config.tmp config; rm gone; sync .");
    let loss = disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(disk.all(), "./config new\n./d/log log");
    assert_eq!(loss.names_undone, 0, "{loss}");
}

#[test]
fn a_file_that_was_named_but_not_synced_is_empty_as_on_ext4() {
    let Some(disk) = Disk::mount() else { return };
    disk.run("echo content >a; sync .");
    disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(disk.all(), "./a");
}

#[test]
fn overwrites_truncations_and_extensions_come_back_through_the_page_cache() {
    let Some(disk) = Disk::mount() else { return };
    disk.run("head -c 300000 /dev/urandom >f; sync f; cksum <f >sum; sync sum");
    let before = disk.run("cksum <f");
    disk.run("printf changed | dd of=f bs=1 seek=5000 conv=notrunc status=none; truncate -s 100000 f; cat f f >g");
    disk.run("head -c 70000 /dev/zero >>f; truncate -s 400000 f");
    assert_ne!(disk.run("cksum <f"), before);
    disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(disk.run("cksum <f"), before);
    assert_eq!(disk.run("ls"), "f\nsum");
}

#[test]
fn a_torn_write_is_the_same_for_the_same_seed() {
    let torn = |draw| {
        let disk = Disk::mount()?;
        disk.run("head -c 65536 /dev/zero | tr '\\0' o >f; sync f");
        disk.run("head -c 131072 /dev/zero | tr '\\0' n >f; echo x >g; echo y >h");
        let loss = disk
            .fs
            .lose(Keep::Torn { draw, host: 1 })
            .expect("it forgets");
        println!("{loss}");
        assert!(loss.sectors_kept > 0 && loss.sectors_reverted > 0, "{loss}");
        Some((disk.run("cksum <f; ls"), loss))
    };
    let (Some(one), Some(again), Some(other)) = (torn(7), torn(7), torn(8)) else {
        return;
    };
    assert_eq!(one, again);
    assert_ne!(one.0, other.0);
}

#[test]
fn it_behaves_like_any_file_system_meanwhile() {
    let Some(disk) = Disk::mount() else { return };
    disk.run(
        "echo a >a; ln a b; ln -s a c; test \"$(cat c)\" = a; chmod 640 a; test \"$(stat -c %a b)\" = 640; \
         mkfifo p; test -p p; mkdir -p x/y/z; mv x w; test -d w/y/z; rmdir w/y/z; ! rmdir w 2>&-; \
         echo b >>a; test \"$(wc -l <b)\" = 2; ! ln a b 2>&-; ! mkdir a 2>&-; ! cat nothing 2>&-; \
         exec 3<>a; rm a b; echo still >&3; exec 3>&-; cat c 2>&- && exit 1; ls -la >/dev/null; df . >/dev/null",
    );
    disk.fs.lose(Keep::Nothing).expect("it forgets");
    assert_eq!(disk.run("ls -A"), "");
}
