//! Live progress: a moving line on a terminal, plain lines in a log, JSON lines for machines.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::evaluate::{RunVerdict, TrialVerdict};
use crate::run::progress::{Progress, Tick};
use crate::say;
use crate::trial::{RunPlan, TrialPlan};

/// How often a plain log gets a line of figures.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Where progress goes.
#[derive(Clone, Debug)]
pub struct Display {
    kind: Kind,
    /// The arm and trial that are running.
    running: String,
    planned_ms: u64,
    last_line: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Kind {
    Terminal(ProgressBar),
    Plain,
    Json,
}

impl Display {
    /// The display that fits: JSON on request, a moving line on a terminal, plain lines elsewhere.
    #[must_use]
    pub fn choose(json: bool) -> Self {
        let kind = match json {
            true => Kind::Json,
            false if std::io::stderr().is_terminal() && std::env::var_os("CI").is_none() => {
                Kind::Terminal(bar())
            }
            false => Kind::Plain,
        };
        Self {
            kind,
            running: String::new(),
            planned_ms: 0,
            last_line: None,
        }
    }

    /// A run begins.
    pub fn begin(&mut self, plan: &RunPlan, folder: &Path) {
        match &self.kind {
            Kind::Json => json(&serde_json::json!({
                "event": "begin", "title": plan.scenario.title, "seed": plan.scenario.seed, "folder": folder,
            })),
            _ => self.line(&format!(
                "{}\nseed {}, {} of each arm; everything goes to {}",
                plan.scenario.title,
                plan.scenario.seed,
                count(u64::from(plan.scenario.trials), "trial"),
                folder.display()
            )),
        }
    }

    /// A trial begins.
    pub fn begin_trial(&mut self, plan: &TrialPlan, trials: u32) {
        let arm = &plan.arm.name;
        self.running = if trials > 1 {
            format!("{arm}, trial {} of {trials}", plan.trial)
        } else {
            arm.clone()
        };
        self.planned_ms = plan.arm.workload.duration_ns / 1_000_000;
        self.last_line = None;
        if let Kind::Json = &self.kind {
            json(
                &serde_json::json!({ "event": "trial", "arm": arm, "trial": plan.trial, "seed": plan.seed }),
            );
        }
    }

    /// The controller said something.
    pub fn progress(&mut self, progress: &Progress) {
        if let Kind::Json = &self.kind {
            return json(&serde_json::json!({ "event": "progress", "progress": progress }));
        }
        match progress {
            Progress::Stage(text) => match &self.kind {
                Kind::Terminal(bar) => bar.set_message(format!("{}: {text}", self.running)),
                _ => self.line(&format!("{}: {text}", self.running)),
            },
            Progress::Started => {
                if let Kind::Terminal(bar) = &self.kind {
                    bar.set_message(format!("{}: started", self.running));
                }
            }
            Progress::Tick(tick) => self.tick(tick),
            Progress::Warning(text) => self.line(&format!("{}: warning: {text}", self.running)),
            // The launcher reports it when the sandbox has ended.
            Progress::Failed(_) => {}
        }
    }

    fn tick(&mut self, tick: &Tick) {
        let text = format!("{}: {}", self.running, figures(tick, self.planned_ms));
        match &self.kind {
            Kind::Terminal(bar) => bar.set_message(text),
            _ => {
                if self
                    .last_line
                    .is_none_or(|last| last.elapsed() >= PLAIN_EVERY)
                {
                    self.last_line = Some(Instant::now());
                    self.line(&text);
                }
            }
        }
    }

    /// A trial ended.
    pub fn end_trial(&mut self, verdict: &TrialVerdict) {
        match &self.kind {
            Kind::Json => json(&serde_json::json!({ "event": "verdict", "verdict": verdict })),
            _ => {
                let why = verdict
                    .reasons
                    .first()
                    .map_or(String::new(), |reason| format!(" ({reason})"));
                self.line(&format!(
                    "{}: {}{why}",
                    self.running,
                    verdict.conclusion.name()
                ));
            }
        }
    }

    /// The run ended.
    pub fn end(&mut self, story: &str, verdict: &RunVerdict) {
        if let Kind::Terminal(bar) = &self.kind {
            bar.finish_and_clear();
        }
        match &self.kind {
            Kind::Json => json(&serde_json::json!({ "event": "end", "verdict": verdict })),
            _ => say!("\n{story}"),
        }
    }

    /// Something worth a line.
    pub fn note(&self, text: &str) {
        match &self.kind {
            Kind::Json => json(&serde_json::json!({ "event": "note", "text": text })),
            _ => self.line(text),
        }
    }

    /// Something that went wrong.
    pub fn error(&self, text: &str) {
        match &self.kind {
            Kind::Json => json(&serde_json::json!({ "event": "error", "text": text })),
            _ => self.line(&format!("error: {text}")),
        }
    }

    fn line(&self, text: &str) {
        match &self.kind {
            Kind::Terminal(bar) => bar.println(text),
            _ => eprintln!("{text}"),
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn figures(tick: &Tick, planned_ms: u64) -> String {
    let seconds = |ms: u64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
    let mut parts = vec![
        match tick.elapsed_ms.checked_sub(planned_ms) {
            Some(over_ms) if over_ms > 0 => format!("ending, {}", seconds(tick.elapsed_ms)),
            _ => format!("{} of {}", seconds(tick.elapsed_ms), seconds(planned_ms)),
        },
        count(tick.terms, "term"),
        count(tick.overlaps, "overlap"),
    ];
    if tick.acknowledged > 0 {
        parts.push(format!(
            "{} of {} lost",
            tick.lost_writes,
            count(tick.acknowledged, "write")
        ));
    }
    if tick.refused_writes > 0 {
        parts.push(format!("{} refused", tick.refused_writes));
    }
    parts.extend(tick.faults.iter().map(|fault| format!("[{fault}]")));
    parts.join(" · ")
}

/// A number with its noun, in the plural where it must be.
#[must_use]
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

fn json(value: &serde_json::Value) {
    say!("{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_say_what_is_happening() {
        let tick = Tick {
            elapsed_ms: 6240,
            operations: 90,
            terms: 21,
            overlaps: 1,
            acknowledged: 20,
            lost_writes: 3,
            refused_writes: 0,
            faults: vec!["pause c1".into()],
        };
        let expected = "6.2 s of 10.0 s · 21 terms · 1 overlap · 3 of 20 writes lost · [pause c1]";
        assert_eq!(figures(&tick, 10_000), expected);
    }
}
