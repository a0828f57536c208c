//! The controller: one trial from an empty sandbox to a stored history. Runs inside the sandbox.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use checkers::history::{End, EndReason, Event, FORMAT_VERSION, FinalRead, Header};
use nemesis::Engine;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::runtime::Handle;
use workloads::lock::LockConfig;
use workloads::reply::Reply;
use workloads::resource::memory::server::MemoryServer;
use workloads::resource::{self, ResourceConfig};
use workloads::script::{self, ScriptConfig};
use workloads::truth::now_ns;
use workloads::worker::protocol::{PROTOCOL_VERSION, Setup};

use super::clients::{self, ClientSpec};
use super::cluster::Cluster;
use super::drive::{Drive, DriveConfig, DriveEnd};
use super::host::ManagedHost;
use super::observers::{self, LeaderCell};
use super::place::Place;
use super::progress::{Progress, ProgressSender};
use super::recorder::Recorder;
use super::wake::Wakes;
use super::world::{FaultableHost, World};
use crate::backend;
use crate::exit::Exit;
use crate::store::{self, names};
use crate::trial::TrialPlan;

/// How long the final read of a register may be tried.
const FINAL_READ_LIMIT: Duration = Duration::from_secs(15);

/// Runs the trial in `folder`; progress goes to `progress_pipe`.
#[must_use]
pub fn main(folder: &Path, progress_pipe: Option<OwnedFd>) -> Exit {
    let progress = ProgressSender::new(progress_pipe.map(File::from));
    match run(folder, &progress) {
        Ok(exit) => exit,
        Err(error) => {
            progress.send(&Progress::Failed(format!("{error:#}")));
            Exit::SetUp
        }
    }
}

/// The descriptor that the launcher hands down as number 3.
#[must_use]
#[allow(unsafe_code)]
pub fn inherited_pipe() -> OwnedFd {
    // SAFETY: the launcher starts the controller with exactly one inherited descriptor, 3, which
    // nothing else in this process owns; this is called once, at its start.
    unsafe { OwnedFd::from_raw_fd(3) }
}

fn run(folder: &Path, progress: &ProgressSender) -> Result<Exit> {
    let wakes = Wakes::new().context("cannot create an event descriptor")?;
    listen_for_interrupt(wakes.clone())?;
    let plan: TrialPlan = store::read_json(&folder.join(names::PLAN), "the plan of a trial")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let set_up = SetUp {
        plan: &plan,
        folder,
        progress,
        wakes: &wakes,
        runtime: runtime.handle(),
    };
    let reason = set_up.run()?;
    runtime.shutdown_background();
    Ok(if reason == EndReason::Interrupted {
        Exit::Interrupted
    } else {
        Exit::Met
    })
}

/// SIGTERM means: heal, store, end. It is taken by a thread, since nothing in here may run in a handler.
fn listen_for_interrupt(wakes: Wakes) -> Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_block().context("cannot block SIGTERM")?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)
        .context("cannot create a signal descriptor")?;
    std::thread::Builder::new()
        .name("interrupt".into())
        .spawn(move || {
            while let Ok(Some(_)) = signals.read_signal() {
                wakes.interrupt();
            }
        })?;
    Ok(())
}

struct SetUp<'a> {
    plan: &'a TrialPlan,
    folder: &'a Path,
    progress: &'a ProgressSender,
    wakes: &'a Wakes,
    runtime: &'a Handle,
}

impl SetUp<'_> {
    fn run(&self) -> Result<EndReason> {
        let arm = &self.plan.arm;
        let place = Place::new(arm, self.folder.join(names::LOGS))?;
        let spec = backend::find(&arm.cluster.backend)
            .context("the plan names a backend that this build does not have")?;
        self.progress.stage(format!(
            "starting {}@{} on {} node{}",
            spec.name,
            arm.cluster.version,
            arm.cluster.nodes,
            if arm.cluster.nodes == 1 { "" } else { "s" }
        ));
        let began = Instant::now();
        let server = &self.plan.server.launch;
        let cluster = Cluster::start(spec, &arm.cluster, server, &place, self.runtime)?;
        self.progress.stage(format!(
            "ready after {:.1} s; starting {} workers",
            began.elapsed().as_secs_f64(),
            arm.workload.workers
        ));

        let (recorder, recording) = Recorder::start(&self.folder.join(names::HISTORY))
            .context("cannot create the history")?;
        recorder.record(Event::Header(self.header()));
        let memory = place.inside.scratch.join("memory.sock");
        let sink = recorder.clone();
        let store = MemoryServer::start(
            &memory,
            arm.workload.tokens,
            Box::new(move |access| sink.record(Event::Access(access))),
        )
        .context("cannot open the memory store's socket")?;
        let (hosts, workers) =
            clients::start(&self.client_spec(&cluster, &memory), &place, self.wakes)?;

        let leader = LeaderCell::default();
        let asked = Arc::clone(&leader);
        let faultable = |hosts: &[Arc<ManagedHost>]| {
            let hosts = hosts.iter().cloned();
            hosts.map(|host| host as Arc<dyn FaultableHost>).collect()
        };
        let (nodes, helpers) = cluster.hosts.split_at(cluster.info.nodes.len());
        let world = World::new(
            faultable(nodes),
            faultable(&hosts),
            Box::new(move || {
                Some(asked.lock().unwrap_or_else(PoisonError::into_inner).clone())
                    .filter(|name| !name.is_empty())
            }),
        );
        let client_nodes = (0..hosts.len()).map(|index| cluster.info.node_of(index).name.clone());
        let world = world.with_helpers(faultable(helpers));
        let world = Arc::new(world.with_network(Ok(place.network.links()), client_nodes.collect()));
        let every_node = arm.faults.iter().any(|fault| !fault.target.is_client());
        let watching = observers::start(
            &cluster,
            every_node,
            &leader,
            &recorder,
            self.wakes,
            self.progress,
            self.runtime,
        );
        let (engine, noticing) = self.start_engine(&world, &recorder)?;

        let drive = Drive::new(
            self.drive_config()?,
            workers,
            recorder.clone(),
            self.progress.clone(),
            world,
            engine,
            self.wakes.clone(),
        );
        let end = drive.run();
        if let Some(noticing) = noticing {
            noticing
                .join()
                .map_err(|_| anyhow!("the thread that records faults panicked"))?;
        }
        let reason = self.conclude(&cluster, &place, &store, &end, &recorder)?;
        drop(watching);
        recorder.record(Event::End(End {
            reason,
            at_ns: now_ns(),
        }));
        drop(store);
        finish(recorder, recording)?;
        Ok(reason)
    }

    fn header(&self) -> Header {
        let arm = &self.plan.arm;
        Header {
            format: FORMAT_VERSION,
            title: self.plan.title.clone(),
            arm: arm.name.clone(),
            trial: self.plan.trial,
            seed: self.plan.seed,
            backend: format!("{}@{}", arm.cluster.backend, arm.cluster.version),
            workload: arm.workload.kind.clone(),
            lock: arm.workload.lock.clone(),
            resource: arm.workload.resource.clone().unwrap_or_default(),
            discipline: arm.workload.discipline.name().to_owned(),
            tokens: arm.workload.tokens.name().to_owned(),
            ttl_ms: arm.workload.ttl_ms,
            faults: !arm.faults.is_empty(),
            clock_error_ns: 0,
            at_ns: now_ns(),
        }
    }

    fn client_spec(&self, cluster: &Cluster, memory: &Path) -> ClientSpec {
        let workload = self.plan.arm.workload.clone();
        let (version, memory) = (self.plan.arm.cluster.version.clone(), memory.to_owned());
        let (info, backend) = (cluster.info.clone(), cluster.spec.backend);
        let setup = move |index: usize| {
            let node = info.node_of(index);
            let endpoint = Some(info.endpoint(backend, node));
            let request_timeout_ms = workload.request_timeout_ns / 1_000_000;
            let endpoints = info.endpoints(backend, &info.nodes);
            let helpers = info.endpoints(backend, &info.helpers);
            let program = info.server.words().to_vec();
            let lock_config = LockConfig {
                endpoint,
                endpoints: endpoints.clone(),
                helpers: helpers.clone(),
                program,
                version: version.clone(),
                memory: memory.clone(),
                ttl_ms: workload.ttl_ms,
                keep_alive: workload.keep_alive,
                request_timeout_ms,
                acquire_timeout_ms: workload.acquire_timeout_ns / 1_000_000,
                options: workload.options.clone(),
            };
            let setup = Setup {
                protocol: PROTOCOL_VERSION,
                lock: workload.lock.clone(),
                lock_config,
                resource: workload.resource.clone(),
                resource_config: ResourceConfig {
                    endpoint,
                    endpoints,
                    helpers,
                    memory: memory.clone(),
                    request_timeout_ms,
                },
                discipline: workload.discipline,
            };
            (setup, node.name.clone())
        };
        let argv: Vec<OsString> = match &self.plan.worker {
            Some(worker) => worker.iter().map(Into::into).collect(),
            None => vec!["/proc/self/exe".into(), "worker".into()],
        };
        ClientSpec {
            workers: self.plan.arm.workload.workers,
            argv,
            setup: Box::new(setup),
        }
    }

    fn drive_config(&self) -> Result<DriveConfig> {
        let workload = &self.plan.arm.workload;
        Ok(DriveConfig {
            workload: script::find(&workload.kind)
                .context("the plan names a workload that this build does not have")?,
            script: ScriptConfig {
                locks: workload.locks,
                hold_ns: workload.hold.min_ns..=workload.hold.max_ns,
                think_ns: workload.think.min_ns..=workload.think.max_ns,
            },
            seed: self.plan.seed,
            clients: workload.clients,
            duration_ns: workload.duration_ns,
            heeds_lost: self.header().heeds_lost(),
            rate_per_s: workload.rate_per_s,
        })
    }

    #[allow(clippy::type_complexity)]
    fn start_engine(
        &self,
        world: &Arc<World>,
        recorder: &Recorder,
    ) -> Result<(Option<Engine>, Option<std::thread::JoinHandle<()>>)> {
        let faults = &self.plan.arm.faults;
        if faults.is_empty() {
            return Ok((None, None));
        }
        let (sender, notices) = std::sync::mpsc::channel();
        let noticing = observers::record_notices(notices, recorder.clone(), self.wakes.clone())?;
        let world = Arc::clone(world) as Arc<dyn nemesis::World>;
        let engine = Engine::start(&self.plan.schedule, faults, world, sender, now_ns, now_ns())?;
        Ok((Some(engine), Some(noticing)))
    }

    /// After the workload: is the cluster well again, and what does the resource hold?
    fn conclude(
        &self,
        cluster: &Cluster,
        place: &Place,
        store: &MemoryServer,
        end: &DriveEnd,
        recorder: &Recorder,
    ) -> Result<EndReason> {
        let mut reason = end.reason;
        let mut log = String::new();
        for failure in &end.failures {
            log.push_str(&format!("{failure}\n"));
        }
        if let Err(why) = place.network.check() {
            self.progress.send(&Progress::Warning(why.clone()));
            log.push_str(&format!("{why}\n"));
            reason = if reason == EndReason::Interrupted {
                reason
            } else {
                EndReason::Failed
            };
        }
        if let Err(error) = cluster.await_healthy(self.runtime) {
            let text =
                format!("after the last fault was healed, the cluster did not get well: {error:#}");
            self.progress.send(&Progress::Warning(text.clone()));
            log.push_str(&text);
            reason = if reason == EndReason::Interrupted {
                reason
            } else {
                EndReason::Failed
            };
        }
        if let Err(error) = self.read_finals(cluster, store, end, recorder) {
            self.progress.send(&Progress::Warning(format!("{error:#}")));
            log.push_str(&format!("{error:#}\n"));
            reason = if reason == EndReason::Interrupted {
                reason
            } else {
                EndReason::Failed
            };
        }
        if !log.is_empty() {
            let path = self.folder.join(names::LOGS).join("controller.log");
            std::fs::write(&path, log)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(reason)
    }

    fn read_finals(
        &self,
        cluster: &Cluster,
        store: &MemoryServer,
        end: &DriveEnd,
        recorder: &Recorder,
    ) -> Result<()> {
        let Some(name) = &self.plan.arm.workload.resource else {
            return Ok(());
        };
        let spec = resource::find(name)
            .context("the plan names a resource that this build does not have")?;
        if spec.backend.is_empty() {
            for (key, register) in store.registers() {
                let (version, elements) = (register.version, register.elements);
                recorder.record(Event::Final(FinalRead {
                    key,
                    version,
                    elements,
                    at_ns: now_ns(),
                }));
            }
            return Ok(());
        }
        for key in &end.registers {
            let register = self.runtime.block_on(self.read_final(spec, cluster, key))?;
            let (version, elements) = (register.version, register.elements);
            recorder.record(Event::Final(FinalRead {
                key: key.clone(),
                version,
                elements,
                at_ns: now_ns(),
            }));
        }
        Ok(())
    }

    async fn read_final(
        &self,
        spec: &resource::ResourceSpec,
        cluster: &Cluster,
        key: &str,
    ) -> Result<resource::Snapshot> {
        let began = Instant::now();
        let mut why = String::new();
        for node in cluster.info.nodes.iter().cycle() {
            let config = ResourceConfig {
                endpoint: Some(cluster.info.endpoint(cluster.spec.backend, node)),
                endpoints: cluster
                    .info
                    .endpoints(cluster.spec.backend, &cluster.info.nodes),
                helpers: cluster
                    .info
                    .endpoints(cluster.spec.backend, &cluster.info.helpers),
                memory: PathBuf::new(),
                request_timeout_ms: 2000,
            };
            match (spec.connect)(config).await {
                Ok(resource) => match resource.read(key, None, None).await {
                    Reply::Ok(register) => return Ok(register),
                    Reply::Fail(reason) | Reply::Info(reason) => {
                        why = format!("{}: {reason}", node.name)
                    }
                },
                Err(error) => why = format!("{}: {error}", node.name),
            }
            if began.elapsed() > FINAL_READ_LIMIT {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(anyhow!(
            "the final content of register {key} cannot be read within {FINAL_READ_LIMIT:?}: {why}"
        ))
    }
}

fn finish(recorder: Recorder, recording: super::recorder::RecorderThread) -> Result<()> {
    // The memory store's threads keep a recorder each; telling the writer to end is not theirs to wait for.
    recorder.close();
    recording
        .finish()
        .context("the history could not be written to its end")?;
    Ok(())
}
