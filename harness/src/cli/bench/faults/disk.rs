//! What is measured of disks and power, inside a sandbox with one host.
//!
//! Files lie in memory, where a sync itself costs nothing: what is measured is what the faults' mechanisms
//! add while they are idle, and how fast they let go.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nemesis::mechanism::fsync_gate::{Answer, FsyncGate};
use nemesis::mechanism::undo_fs::UndoFs;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use workloads::truth::now_ns;

use super::network::arm;
use super::sample::{Sample, figure};
use crate::run::place::Place;
use crate::sandbox::{Host, NetworkKind, ProcessSpec, node_address};

/// Syncs that are timed in each place.
const SYNCS: usize = 5_000;
/// Holds and losses of power that are timed.
const HOLDS: usize = 50;
const LOSSES: usize = 20;
/// How long a sync is held.
const HELD: Duration = Duration::from_millis(20);

/// Measures.
pub(super) fn measure() -> Result<()> {
    let place = Place::new(&arm(NetworkKind::Switch)?, std::env::temp_dir())?;
    let scratch = &place.inside.scratch;
    let (plain, point) = (scratch.join("plain"), scratch.join("forgets"));
    for folder in [&plain, &point] {
        fs::create_dir_all(folder).with_context(|| format!("mkdir {}", folder.display()))?;
    }
    let disk = UndoFs::mount(&scratch.join("backing"), &point);
    let host = place.host("n1", node_address(1))?;
    let gate = FsyncGate::new("n1", now_ns);
    syncs(&host, None, &plain)?.row("write and fdatasync");
    syncs(&host, Some(&gate), &plain)?.row("the same, behind an open fsync gate");
    match &disk {
        Ok(_) => {
            syncs(&host, None, &point)?.row("the same, on a disk that can forget");
            syncs(&host, Some(&gate), &point)?.row("the same, both");
        }
        Err(why) => figure("the same, on a disk that can forget", why),
    }
    holds(&host, &gate, &plain)?;
    let mut off = Sample::default();
    for _ in 0..LOSSES {
        let _output = start(&host, None, &plain, usize::MAX)?;
        let asked_ns = now_ns();
        host.power_off()?;
        off.add(now_ns() - asked_ns);
        host.power_on()?;
    }
    off.row("power off: link down, killed, connections destroyed");
    Ok(())
}

/// Times of syncs in a folder, in nanoseconds.
fn syncs(host: &Host, gate: Option<&FsyncGate>, folder: &Path) -> Result<Sample> {
    let mut text = String::new();
    start(host, gate, folder, SYNCS)?.read_to_string(&mut text)?;
    let times = text.lines().map(|line| line.parse::<u64>());
    let times: Vec<u64> = times.collect::<Result<_, _>>()?;
    anyhow::ensure!(
        times.len() == SYNCS,
        "expected {SYNCS} syncs, found {}",
        times.len()
    );
    Ok(times.into_iter().collect())
}

/// How long a held sync takes to return after the gate was opened.
fn holds(host: &Host, gate: &FsyncGate, folder: &Path) -> Result<()> {
    let mut output = start(host, Some(gate), folder, usize::MAX)?;
    let (mut released, mut returned) = (Sample::default(), Sample::default());
    for _ in 0..HOLDS {
        let held = || anyhow!("nothing was held");
        let set_ns = gate.set(Answer::Hold).map_err(|why| anyhow!(why))?;
        while gate.holding() == 0 {
            anyhow::ensure!(now_ns() - set_ns < 5_000_000_000, held());
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(HELD);
        let (opened_ns, tally) = gate.open().map_err(|why| anyhow!(why))?;
        anyhow::ensure!(tally.held == 1, held());
        released.add(now_ns() - opened_ns);
        // The first sync that took as long as the hold: what it took beyond that is the way back.
        let mut line = String::new();
        loop {
            line.clear();
            output.read_line(&mut line)?;
            let took_ns: u64 = line.trim().parse()?;
            if took_ns > HELD.as_nanos() as u64 {
                returned.add(took_ns.saturating_sub(tally.longest_ns));
                break;
            }
        }
    }
    released.row("a held sync is let go after the gate opens");
    returned.row("  and what it took beyond being held");
    host.kill_all()?;
    Ok(())
}

/// Starts a process that syncs so often and prints how long each took.
fn start(
    host: &Host,
    gate: Option<&FsyncGate>,
    folder: &Path,
    count: usize,
) -> Result<BufReader<File>> {
    let (output, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let spec = ProcessSpec {
        argv: vec![
            "/proc/self/exe".into(),
            "bench".into(),
            "faults".into(),
            "--wire".into(),
            "sync".into(),
            folder.join("file").into(),
            count.to_string().into(),
        ],
        env: Vec::new(),
        cwd: None,
        stdin: File::open("/dev/null")?.into(),
        stdout,
        stderr: std::io::stderr().as_fd().try_clone_to_owned()?,
    };
    match gate {
        None => host.spawn(spec).map(drop)?,
        Some(gate) => {
            let (process, listener) = host.spawn_gated(spec)?;
            gate.attach(listener, process.pid)?;
        }
    }
    Ok(BufReader::new(File::from(output)))
}

/// The process: writes 4 KiB and syncs, again and again, and prints the time of each pair.
pub(super) fn sync(path: &Path, count: usize) -> Result<()> {
    use std::io::Write;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    let page = [7; 4096];
    let mut stdout = std::io::stdout().lock();
    for _ in 0..count {
        let before_ns = now_ns();
        file.write_all_at(&page, 0)?;
        file.sync_data()?;
        writeln!(stdout, "{}", now_ns() - before_ns)?;
    }
    Ok(())
}
