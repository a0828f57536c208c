//! The launcher: parses, plans, shows progress, and holds nothing that must be cleaned up.
//!
//! It lives outside of the sandbox. When it is killed, the sandbox's init ends everything else, and
//! what the trials recorded until then can still be checked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nemesis::Schedule;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::pipe2;

use super::environment::Environment;
use super::progress::Progress;
use crate::evaluate::{self, Conclusion, RunVerdict, TrialVerdict};
use crate::exit::Exit;
use crate::known::known;
use crate::provision::{Located, Provisioner, Wanted, catalogue};
use crate::replay::Replay;
use crate::report::display::Display;
use crate::report::story;
use crate::sandbox::{ControllerEnd, Sandbox, SandboxSpec};
use crate::scenario::{self, ArmPlan, Resolved, Scenario};
use crate::store::{self, names};
use crate::trial::{FORMAT_VERSION, RunPlan, Server, TrialPlan, trial_seed};

/// What there is to run.
#[derive(Clone, Debug)]
pub enum What {
    /// A scenario file.
    Scenario(PathBuf),
    /// The stored plan of a trial or of a run.
    Replay(PathBuf),
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The scenario file or the plan.
    pub what: What,
    /// Overrides, `key` and value.
    pub set: Vec<(String, String)>,
    /// Seed; drawn when absent.
    pub seed: Option<u64>,
    /// Number of trials; the scenario's when absent.
    pub trials: Option<u32>,
    /// Arms to run; all when empty.
    pub arms: Vec<String>,
    /// Binaries given by the user, by backend.
    pub binaries: BTreeMap<String, PathBuf>,
    /// A foreign worker's command line.
    pub worker: Option<Vec<String>>,
    /// The results folder.
    pub results: PathBuf,
    /// How progress is shown.
    pub display: Display,
    /// The command line that runs the same again, but for the seed of a scenario.
    pub rerun: String,
}

/// A run that is planned, with its folder.
struct Run {
    options: RunOptions,
    plan: RunPlan,
    /// The trials' plans where they are stored ones; else each is drawn when its turn comes.
    stored: Option<Vec<TrialPlan>>,
    folder: PathBuf,
    servers: BTreeMap<String, Located>,
    signals: SignalFd,
}

/// What is asked for, read and found in order.
struct Asked {
    /// What the run's folder is called after.
    name: String,
    scenario: Resolved,
    stored: Option<Vec<TrialPlan>>,
}

/// Runs a scenario. Mistakes in it are printed, all of them.
///
/// # Errors
/// What keeps the run from starting or from being stored.
pub fn run(options: RunOptions) -> Result<Exit> {
    let asked = match &options.what {
        What::Scenario(file) => resolve(file, &options),
        What::Replay(plan) => {
            let Replay {
                name,
                scenario,
                trials,
            } = Replay::load(plan)?;
            Some(Asked {
                name,
                scenario,
                stored: Some(trials),
            })
        }
    };
    let Some(mut asked) = asked.filter(|asked| arms_are_known(&options, &asked.scenario)) else {
        return Ok(Exit::Usage);
    };
    if !options.arms.is_empty() {
        let wanted = |arm: &ArmPlan| options.arms.contains(&arm.name);
        asked.scenario.arms.retain(wanted);
        asked
            .stored
            .iter_mut()
            .for_each(|trials| trials.retain(|trial| wanted(&trial.arm)));
    }
    let mut display = options.display.clone();
    let servers = locate(&asked.scenario, &options, &mut display)?;
    let seed = asked.scenario.seed;
    let folder = store::create_run(&options.results, &asked.name, seed)?;
    let rerun = match options.what {
        What::Scenario(_) => format!("{} --seed {seed}", options.rerun),
        What::Replay(_) => options.rerun.clone(),
    };
    let plan = RunPlan {
        format: FORMAT_VERSION,
        rerun,
        scenario: asked.scenario,
    };
    store::write_json(&folder.join(names::PLAN), &plan)?;
    let located: Vec<Located> = servers.values().cloned().collect();
    store::write_json(
        &folder.join(names::ENVIRONMENT),
        &Environment::now(&located),
    )?;
    display.begin(&plan, &folder);
    let signals = catch_signals()?;
    Run {
        options,
        plan,
        stored: asked.stored,
        folder,
        servers,
        signals,
    }
    .trials(display)
}

/// Reads and resolves a scenario; `None` after its mistakes were printed.
fn resolve(file: &Path, options: &RunOptions) -> Option<Asked> {
    let complain = |errors: Vec<scenario::ScenarioError>| {
        eprintln!("{}", scenario::render(&errors));
    };
    let scenario = Scenario::load(file, &known()).map_err(complain).ok()?;
    // A seed that people can read and type.
    let seed = options
        .seed
        .or(scenario.seed)
        .unwrap_or_else(|| u64::from(rand::random::<u32>() % 1_000_000));
    let resolved = scenario.resolve(&options.set, seed, options.trials);
    let stem = file.file_stem().map(|stem| stem.to_string_lossy());
    Some(Asked {
        name: stem.unwrap_or_default().into_owned(),
        scenario: resolved.map_err(complain).ok()?,
        stored: None,
    })
}

/// Whether every arm that the user names is there; says so if one is not.
fn arms_are_known(options: &RunOptions, scenario: &Resolved) -> bool {
    let is_known = |wanted: &&String| scenario.arms.iter().any(|arm| arm.name == **wanted);
    let Some(wanted) = options.arms.iter().find(|wanted| !is_known(wanted)) else {
        return true;
    };
    let known: Vec<_> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
    eprintln!(
        "--arm: expected one of {}, found \"{wanted}\"",
        known.join(", ")
    );
    false
}

/// Finds or fetches every server that an arm needs, before anything starts.
fn locate(
    resolved: &Resolved,
    options: &RunOptions,
    display: &mut Display,
) -> Result<BTreeMap<String, Located>> {
    for name in options.binaries.keys() {
        catalogue::backend(name)?;
    }
    let provisioner = Provisioner {
        java: options.binaries.get("java").cloned(),
        ..Provisioner::from_env()
    };
    let mut servers = BTreeMap::new();
    for arm in &resolved.arms {
        let name = server_name(arm);
        if servers.contains_key(&name) {
            continue;
        }
        let wanted = Wanted::new(&arm.cluster.backend, Some(&arm.cluster.version))?;
        let given = options
            .binaries
            .get(&arm.cluster.backend)
            .map(PathBuf::as_path);
        let located = provisioner.locate(&wanted, given, &|line| display.note(line))?;
        servers.insert(name, located);
    }
    Ok(servers)
}

fn server_name(arm: &ArmPlan) -> String {
    format!("{}@{}", arm.cluster.backend, arm.cluster.version)
}

/// From here on Ctrl-C is read from a descriptor: the run is ended in order.
fn catch_signals() -> Result<SignalFd> {
    let set: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    set.thread_block()
        .context("cannot block SIGINT and SIGTERM")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot create a signal descriptor")
}

/// How one trial's sandbox ended.
enum Ended {
    /// The history is complete, or as complete as it can be.
    Stored,
    /// The user does not want more.
    Interrupted,
    /// Nothing could be run.
    NotSetUp(String),
}

impl Run {
    fn trials(self, mut display: Display) -> Result<Exit> {
        let mut verdicts = Vec::new();
        let mut exit = None;
        for number in 0..self.count() {
            let plan = self.plan_trial(number)?;
            let folder = store::create_trial(&self.folder, &plan.arm.name, plan.trial)?;
            store::write_json(&folder.join(names::PLAN), &plan)?;
            display.begin_trial(&plan, self.plan.scenario.trials);
            let ended = self.sandboxed(&folder, &plan, &mut display)?;
            let verdict = match &ended {
                Ended::NotSetUp(why) => {
                    evaluate::unreadable(&plan, format!("the set-up failed: {why}"))
                }
                Ended::Stored | Ended::Interrupted => evaluate::trial(&folder)?,
            };
            store::write_json(&folder.join(names::VERDICT), &verdict)?;
            display.end_trial(&verdict);
            verdicts.push(verdict);
            match ended {
                Ended::Stored => {}
                Ended::Interrupted => exit = Some(Exit::Interrupted),
                Ended::NotSetUp(why) => {
                    let (arm, trial) = (&plan.arm.name, plan.trial);
                    display.error(&format!("arm \"{arm}\", trial {trial}: {why}"));
                    exit = Some(Exit::SetUp);
                }
            }
            if exit.is_some() {
                break;
            }
        }
        let verdict = self.conclude(verdicts)?;
        display.end(&story::tell(&self.plan, &verdict, &self.folder), &verdict);
        Ok(exit.unwrap_or_else(|| exit_of(verdict.conclusion)))
    }

    fn conclude(&self, verdicts: Vec<TrialVerdict>) -> Result<RunVerdict> {
        let verdict = evaluate::run(&self.plan, verdicts);
        store::write_json(&self.folder.join(names::VERDICT), &verdict)?;
        Ok(verdict)
    }

    /// How many trials there are, over all arms.
    fn count(&self) -> usize {
        let of_each = usize::try_from(self.plan.scenario.trials).unwrap_or(usize::MAX);
        self.stored
            .as_ref()
            .map_or(of_each * self.plan.scenario.arms.len(), Vec::len)
    }

    /// The plan of the trial with this number, from 0: stored or drawn.
    fn plan_trial(&self, number: usize) -> Result<TrialPlan> {
        if let Some(stored) = &self.stored {
            let plan = stored[number].clone();
            let server = self.server(&plan.arm);
            return Ok(TrialPlan { server, ..plan });
        }
        let scenario = &self.plan.scenario;
        let arm = &scenario.arms[number % scenario.arms.len()];
        let trial = u32::try_from(number / scenario.arms.len())? + 1;
        let seed = trial_seed(scenario.seed, trial);
        let schedule = Schedule::draw_with(
            seed,
            &arm.faults,
            arm.nemesis.as_ref(),
            arm.workload.duration_ns,
        )?;
        Ok(TrialPlan {
            format: FORMAT_VERSION,
            title: scenario.title.clone(),
            schedule,
            arm: arm.clone(),
            trial,
            seed,
            server: self.server(arm),
            worker: self.options.worker.clone(),
        })
    }

    /// The server of an arm on this machine.
    fn server(&self, arm: &ArmPlan) -> Server {
        let located = &self.servers[&server_name(arm)];
        Server {
            path: located.path.clone(),
            launch: located.launch.clone(),
            origin: located.detail.clone(),
        }
    }

    /// Runs the controller in a sandbox until both have ended.
    fn sandboxed(&self, folder: &Path, plan: &TrialPlan, display: &mut Display) -> Result<Ended> {
        let (reader, writer) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).context("cannot create a pipe")?;
        // The controller's end blocks: a progress line is never torn.
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(OFlag::empty()))?;
        let started = Sandbox::start(SandboxSpec {
            controller_argv: vec!["controller".into(), folder.into()],
            inherit: vec![writer],
            needed_paths: self.needed_paths(folder, plan),
            cgroup: true,
        });
        let sandbox = match started {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(Ended::NotSetUp(error.to_string())),
        };
        let mut watch = Watch {
            reader,
            pending: Vec::new(),
            failed: None,
            interrupted: false,
        };
        watch.until_closed(&self.signals, &sandbox, display)?;
        let end = sandbox.wait();
        Ok(match (end, watch.failed) {
            (_, Some(why)) => Ended::NotSetUp(why),
            _ if watch.interrupted => Ended::Interrupted,
            (ControllerEnd::Exited(0), None) => Ended::Stored,
            (end, None) => {
                display.error(&format!(
                    "the controller {end}; what it recorded until then is checked"
                ));
                Ended::Stored
            }
        })
    }

    fn needed_paths(&self, folder: &Path, plan: &TrialPlan) -> Vec<PathBuf> {
        let servers = self.servers.values().flat_map(|server| {
            // Java is elsewhere than the server that it starts.
            [server.path.clone(), server.launch.program().to_owned()]
        });
        let worker = plan.worker.iter().flatten().take(1).map(PathBuf::from);
        servers.chain(worker).chain([folder.to_owned()]).collect()
    }
}

/// What to do with a conclusion at the end of a run.
#[must_use]
pub fn exit_of(conclusion: Conclusion) -> Exit {
    match conclusion {
        Conclusion::Pass => Exit::Met,
        Conclusion::Fail => Exit::NotMet,
        Conclusion::Inconclusive => Exit::Inconclusive,
    }
}

/// The launcher's view of one trial.
struct Watch {
    reader: OwnedFd,
    pending: Vec<u8>,
    failed: Option<String>,
    interrupted: bool,
}

impl Watch {
    /// Shows progress until the controller has closed its end, and passes Ctrl-C on: the first one asks
    /// for an orderly end, the second one ends everything at once.
    fn until_closed(
        &mut self,
        signals: &SignalFd,
        sandbox: &Sandbox,
        display: &mut Display,
    ) -> Result<()> {
        let mut pipe = File::from(self.reader.try_clone()?);
        loop {
            let mut fds = [
                PollFd::new(pipe.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot wait for the controller"),
            }
            while let Ok(Some(_)) = signals.read_signal() {
                if self.interrupted {
                    sandbox.kill();
                } else {
                    display.note("interrupted: healing faults and storing what was recorded (again to end at once)");
                    sandbox.interrupt();
                }
                self.interrupted = true;
            }
            let mut chunk = [0; 16 << 10];
            match pipe.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => self.pending.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot read the controller's progress"),
            }
            self.show(display);
        }
    }

    fn show(&mut self, display: &mut Display) {
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            // Both ends are the same executable; a line that does not parse was cut by a kill.
            if let Ok(progress) = serde_json::from_slice::<Progress>(&line) {
                if let Progress::Failed(why) = &progress {
                    self.failed = Some(why.clone());
                }
                display.progress(&progress);
            }
        }
    }
}
