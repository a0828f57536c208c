//! Each model on histories of 10⁴ to 10⁶ operations (the cost should grow close to linearly), invalid ones with many
//! unknown outcomes, a file from its first byte to the verdict, and the data of Porcupine and Knossos.
//!
//! `cargo bench -p checkers`. For 10⁷ operations and peak memory see `examples/measure.rs`.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use checkers::foreign::{Foreign, Options};
use checkers::history::Outcome;
use checkers::judge::{Question, judge};
use checkers::model::Model;
use checkers::model::decision::Decision;
use checkers::model::name::ModelName;
use checkers::model::op::{Action, Op};
use checkers::model::owner::OwnerLock;
use checkers::search::spec::RegisterSpec;
use checkers::search::wgl::Limits;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

#[path = "made/mod.rs"]
mod made;

const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];

fn shape(operations: u64) -> made::Shape {
    made::Shape {
        operations,
        clients: 20,
        unknown_percent: 3,
    }
}

fn growth(c: &mut Criterion) {
    let owner = |cap, fenced| Model::Owner(OwnerLock { cap, fenced });
    let register = RegisterSpec {
        initial: 0,
        failed_cas_observes: false,
    };
    let models = [
        ("owner-mutex", owner(1, false)),
        ("reentrant", owner(3, false)),
        ("fenced", owner(1, true)),
        ("semaphore", Model::Semaphore { permits: 2 }),
        ("mutex", Model::Ownerless { permits: 1 }),
        ("cas-register", Model::Register(register)),
    ];
    let mut group = c.benchmark_group("growth");
    group.sample_size(10);
    for (name, model) in models {
        for size in SIZES {
            let is_register = matches!(model, Model::Register(_));
            let ops = if is_register {
                made::register(&shape(size))
            } else {
                made::lock(&shape(size))
            };
            assert!(
                model.decide(&mut ops.clone(), Limits::default()).is_valid(),
                "{name}"
            );
            group.throughput(Throughput::Elements(size));
            group.bench_with_input(BenchmarkId::new(name, size), &ops, |b, ops| {
                let decide = |mut ops: Vec<Op>| model.decide(&mut ops, Limits::default());
                b.iter_batched(|| ops.clone(), decide, BatchSize::LargeInput);
            });
        }
    }
    group.finish();
}

/// A holder that is overtaken at the end, behind so many unknown outcomes.
fn invalid(c: &mut Criterion) {
    let mut group = c.benchmark_group("invalid");
    group.sample_size(10);
    for unknowns in [25_usize, 100, 1_000] {
        let mut ops = made::lock(&made::Shape {
            operations: 10 * unknowns as u64,
            clients: 20,
            unknown_percent: 0,
        });
        let mut left = unknowns;
        // Unknown acquires of clients that never come back.
        for place in (0..ops.len()).step_by(5) {
            if left == 0 {
                break;
            }
            left -= 1;
            let mut extra = ops[place];
            extra.process = 1_000_000 + place as u32;
            extra.action = Action::Acquire;
            extra.outcome = Outcome::Info;
            extra.return_at = u64::MAX;
            ops.push(extra);
        }
        let last = ops
            .iter()
            .filter(|op| op.outcome == Outcome::Ok)
            .map(|op| op.return_at)
            .max()
            .unwrap_or(0);
        // Enough releases in a row that no unknown acquire can be behind all of them.
        for extra in 0..=unknowns as u64 {
            let at = last + 10 * (extra + 1);
            let (action, process) = (Action::Acquire, 2_000_000 + extra as u32);
            ops.push(Op {
                invoke_at: at,
                return_at: at + 5,
                arg: u64::MAX,
                process,
                key: 0,
                id: 0,
                action,
                outcome: Outcome::Ok,
            });
        }
        ops.sort_by_key(|op| op.invoke_at);
        (0_u32..).zip(&mut ops).for_each(|(id, op)| op.id = id);
        for (name, model) in [
            ("owner-mutex", Model::OWNER_MUTEX),
            ("mutex", Model::Ownerless { permits: 1 }),
        ] {
            assert!(
                matches!(
                    model.decide(&mut ops.clone(), Limits::default()),
                    Decision::Invalid(_)
                ),
                "{name}"
            );
            group.bench_with_input(BenchmarkId::new(name, unknowns), &ops, |b, ops| {
                b.iter(|| black_box(model.decide_one(ops, Limits::default())));
            });
        }
    }
    group.finish();
}

fn file(c: &mut Criterion) {
    let mut group = c.benchmark_group("file to verdict");
    group.sample_size(10);
    for size in SIZES {
        // A file, as users have it: a large one is decompressed by a thread of its own.
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        made::write(&shape(size), file.reopen().expect("it can be written"));
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::new("owner-mutex", size), &file, |b, file| {
            b.iter(|| {
                verdict(
                    Foreign::read(file.path(), &options("owner-mutex")),
                    "owner-mutex",
                    None,
                )
            });
        });
    }
    group.finish();
}

fn options(model: &str) -> Options {
    Options::new(model.parse::<ModelName>().expect("a model").shape())
}

fn verdict<E: std::fmt::Debug>(
    foreign: Result<Foreign, E>,
    model: &str,
    initial: Option<&str>,
) -> checkers::check::Report {
    let question = Question {
        model: model.parse().expect("a model"),
        name: model.to_owned(),
        initial: initial.map(str::to_owned),
        limits: Limits::default(),
    };
    judge(&mut foreign.expect("it reads"), &question)
}

fn known_data(c: &mut Criterion) {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("FENCEPOST_SHARED").map_or_else(beside, PathBuf::from);
    let data = shared.join("data/linearizability");
    let files = |folder: &str, extension: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(data.join(folder)).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths
            .filter(|path| path.extension().is_some_and(|e| e == extension))
            .collect()
    };
    let etcd = files("etcd", "log");
    let knossos: Vec<PathBuf> = ["knossos/good", "knossos/bad"]
        .iter()
        .flat_map(|folder| files(folder, "edn"))
        .collect();
    if etcd.is_empty() {
        println!(
            "skipped: no data under {}; set FENCEPOST_SHARED",
            data.display()
        );
        return;
    }
    let mut group = c.benchmark_group("known data");
    group.sample_size(10);
    for (name, paths, initial) in [
        ("all etcd logs", etcd, None),
        ("all Knossos registers", knossos, Some("0")),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                for path in &paths {
                    black_box(verdict(
                        Foreign::read(path, &options("cas-register")),
                        "cas-register",
                        initial,
                    ));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, growth, invalid, file, known_data);
criterion_main!(benches);
