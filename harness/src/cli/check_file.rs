//! `fencepost check FILE`: judge one history, of fencepost or of somebody else, by the checks or by one model.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use checkers::check::{Report, Verdict, run_all};
use checkers::foreign::{Foreign, ForeignError, Format, Mapping, Options, sniff};
use checkers::history::History;
use checkers::judge::{Question, judge};
use checkers::model::name::{ModelName, NAMES};
use checkers::search::wgl::Limits;

use crate::exit::Exit;
use crate::report::story;

/// What is asked about a file.
#[derive(Debug)]
pub struct FileQuestion {
    /// The file.
    pub path: PathBuf,
    /// The model, by its name.
    pub model: Option<String>,
    /// Other names of operations.
    pub map: Option<Mapping>,
    /// A register's value at the beginning.
    pub initial: Option<String>,
    /// True when values are `[key value]` pairs.
    pub keyed: bool,
    /// Memory for a search, in megabytes.
    pub search_memory_mb: usize,
    /// Print JSON.
    pub json: bool,
}

/// Reads, judges, prints.
///
/// # Errors
/// When the reports cannot be printed as JSON. A bad file is no error here but exit code 2, after what came
/// before was reported.
pub fn run(question: &FileQuestion) -> Result<Exit> {
    let Some(name) = &question.model else {
        return match sniff(&question.path) {
            Ok(Some(Format::Fencepost)) => by_checks(question),
            Ok(_) => {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                eprintln!(
                    "error: {} was not recorded by fencepost: say what it is to be held to with --model, one of {}",
                    question.path.display(),
                    names.join(", ")
                );
                Ok(Exit::Usage)
            }
            Err(error) => Ok(refuse(&error)),
        };
    };
    match name.parse::<ModelName>() {
        Ok(model) => by_model(question, name, model),
        Err(error) => {
            eprintln!("error: {error}");
            Ok(Exit::Usage)
        }
    }
}

fn refuse(error: &dyn std::error::Error) -> Exit {
    eprintln!("error: {error}");
    Exit::Usage
}

fn by_checks(question: &FileQuestion) -> Result<Exit> {
    match History::read(&question.path) {
        Ok(history) => {
            let reports = run_all(&history);
            print(question, &reports)?;
            Ok(exit(&reports, history.truncated.is_some()))
        }
        Err(error) => {
            if let Some(partial) = &error.partial {
                print(question, &run_all(partial))?;
            }
            Ok(refuse(&error))
        }
    }
}

fn by_model(question: &FileQuestion, name: &str, model: ModelName) -> Result<Exit> {
    let options = Options {
        shape: model.shape(),
        mapping: question.map.clone().unwrap_or_default(),
        keyed: question.keyed,
    };
    let asked = Question {
        model,
        name: name.to_owned(),
        initial: question.initial.clone(),
        limits: Limits {
            cache_bytes: question.search_memory_mb << 20,
        },
    };
    match Foreign::read(&question.path, &options) {
        Ok(mut foreign) => {
            let truncated = foreign.truncated.is_some();
            let reports = [judge(&mut foreign, &asked)];
            print(question, &reports)?;
            Ok(exit(&reports, truncated))
        }
        Err(mut error) => {
            report_partial(question, &mut error, &asked)?;
            Ok(refuse(&error))
        }
    }
}

fn report_partial(
    question: &FileQuestion,
    error: &mut ForeignError,
    asked: &Question,
) -> Result<()> {
    match &mut error.partial {
        Some(partial) if !partial.ops.is_empty() => print(question, &[judge(partial, asked)]),
        _ => Ok(()),
    }
}

fn print(question: &FileQuestion, reports: &[Report]) -> Result<()> {
    let text = if question.json {
        serde_json::to_string_pretty(reports)? + "\n"
    } else {
        reports.iter().map(show).collect()
    };
    // A reader that has seen enough closes the pipe; that changes no verdict.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn show(report: &Report) -> String {
    let class = report
        .class
        .map_or_else(String::new, |class| format!(" ({class})"));
    let mut text = format!("{}: {}{class}\n", report.check, report.verdict);
    if let Some(why) = &report.unknown_because {
        let _ = writeln!(text, "  because {why}");
    }
    for (name, value) in &report.metrics {
        let _ = writeln!(text, "  {name:<28} {value}");
    }
    for note in &report.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    report
        .witnesses
        .iter()
        .for_each(|witness| text += &story::lines(witness));
    text
}

/// Unknown never counts as valid, and a history that stops early proves nothing by being valid so far.
fn exit(reports: &[Report], truncated: bool) -> Exit {
    let any = |verdict| reports.iter().any(|report| report.verdict == verdict);
    if any(Verdict::Invalid) {
        Exit::NotMet
    } else if any(Verdict::Unknown) || truncated {
        Exit::Inconclusive
    } else {
        Exit::Met
    }
}
