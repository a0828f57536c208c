//! The kernel's bridge as a network that faults can act on: cuts and losses by nftables rules.
//!
//! Each rule of ours is a chain of its own in a bridge table, with one nftables rule a link and its counter.
//! The program `nft` (package nftables) does it; a rule takes milliseconds where the switch takes a tenth of
//! one. Losses are drawn by the kernel (`numgen random`) and cannot be repeated. Everything else that a link
//! can suffer is refused: that is what the [`switch`](super::switch) is for.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::Now;
use crate::mechanism::links::Links;
use crate::mechanism::switch::{
    Effect, Installed, Removed, Rule, RuleCounters, RuleId, SwitchError,
};

/// The table that holds our chains.
const TABLE: &str = "bridge fencepost";

/// Parameters of faults on links that a bridge cannot carry out.
pub const BEYOND_A_BRIDGE: &[&str] = &[
    "delay",
    "jitter",
    "duplicate",
    "reorder",
    "corrupt",
    "rate",
    "flap",
];

/// A share is written as so many of this many.
const PARTS: f64 = 100_000.0;

/// A bridge whose ports bear the names of the hosts, in the network namespace of the calling process.
pub struct NftBridge {
    now: Now,
    program: OsString,
    last_id: AtomicU64,
}

impl NftBridge {
    /// Nothing is done before the first rule.
    #[must_use]
    pub fn new(now: Now) -> Self {
        Self::with_program(now, "nft".into())
    }

    /// With another program than the `nft` in PATH.
    #[must_use]
    pub fn with_program(now: Now, program: OsString) -> Self {
        Self {
            now,
            program,
            last_id: AtomicU64::new(0),
        }
    }

    /// Runs `nft` with a script on its standard input, and returns what it prints.
    fn nft(&self, arguments: &[&str], script: &str) -> Result<String, SwitchError> {
        let failed = |what: String| SwitchError::Bridge { what };
        let spawned = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => failed(
                "expected the program `nft` in PATH, found none; install the package nftables, or set \
                 cluster.network = \"switch\", which needs nothing"
                    .to_owned(),
            ),
            _ => failed(format!("`nft` could not be started: {error}")),
        })?;
        let io_failed = |error: io::Error| failed(format!("talking to `nft`: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes()).map_err(io_failed)?;
        }
        let output = child.wait_with_output().map_err(io_failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().next().unwrap_or("no reason given");
        Err(failed(format!("`nft` refused: {first}")))
    }

    /// Reads the counters of a rule; `None` when it is not there.
    fn counters(&self, id: RuleId) -> Result<Option<RuleCounters>, SwitchError> {
        let listed = self.nft(&["--json", "list", "table", "bridge", "fencepost"], "")?;
        Ok(parse_counters(&listed, id))
    }
}

/// The commands that put a rule in force.
fn script(id: RuleId, rule: &Rule) -> String {
    let mut script = format!(
        "add table {TABLE}\n\
         add chain {TABLE} r{id} {{ type filter hook forward priority 0; policy accept; }}\n"
    );
    let share = (rule.effect.loss * PARTS).round();
    let chance = if rule.effect.cut {
        String::new()
    } else {
        format!("numgen random mod {PARTS} < {share} ")
    };
    let selectors = match rule.port {
        None => vec![String::new()],
        Some(port) => ["sport", "dport"]
            .map(|end| format!("meta l4proto {{ tcp, udp }} th {end} {port} "))
            .into(),
    };
    for (from, to) in &rule.links {
        for selector in &selectors {
            writeln!(
                script,
                "add rule {TABLE} r{id} iifname \"{from}\" oifname \"{to}\" {selector}{chance}counter drop \
                 comment \"{from} {to}\""
            )
            .expect("writing to a string");
        }
    }
    script
}

/// The counters of one chain in what `nft --json list table` prints.
fn parse_counters(listed: &str, id: RuleId) -> Option<RuleCounters> {
    let listed: Value = serde_json::from_str(listed).ok()?;
    let objects = listed.get("nftables")?.as_array()?;
    let chain = format!("r{id}");
    let is_chain = |object: &Value| object["chain"]["name"] == chain.as_str();
    objects.iter().find(|object| is_chain(object))?;
    let mut counters = RuleCounters::default();
    for object in objects {
        let rule = &object["rule"];
        let link = rule["comment"].as_str().and_then(|it| it.split_once(' '));
        let (true, Some((from, to))) = (rule["chain"] == chain.as_str(), link) else {
            continue;
        };
        let statements = rule["expr"].as_array().into_iter().flatten();
        let packets: u64 = statements
            .filter_map(|statement| statement["counter"]["packets"].as_u64())
            .sum();
        if packets > 0 {
            let link = (from.to_owned(), to.to_owned());
            *counters.struck_by_link.entry(link).or_default() += packets;
            counters.seen += packets;
        }
    }
    Some(counters)
}

/// What this network can do.
fn check_effect(effect: &Effect) -> Result<(), SwitchError> {
    let able = Effect {
        cut: effect.cut,
        loss: effect.loss,
        ..Effect::default()
    };
    if *effect == able {
        return Ok(());
    }
    Err(SwitchError::Bridge {
        what: "expected a cut or a loss, which is all that cluster.network = \"bridge\" can do, found another \
               effect; set cluster.network = \"switch\""
            .to_owned(),
    })
}

impl Links for NftBridge {
    fn name(&self) -> &'static str {
        "bridge with nftables"
    }

    fn install(&self, rule: &Rule) -> Result<Installed, SwitchError> {
        rule.check()?;
        check_effect(&rule.effect)?;
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let requested_ns = (self.now)();
        // One transaction: all of it or nothing.
        self.nft(&["--file", "-"], &script(id, rule))?;
        Ok(Installed {
            id,
            requested_ns,
            since_ns: (self.now)(),
        })
    }

    fn remove(&self, id: RuleId) -> Result<Option<Removed>, SwitchError> {
        let requested_ns = (self.now)();
        let Some(mut counters) = self.counters(id)? else {
            return Ok(None);
        };
        let delete = format!("flush chain {TABLE} r{id}\ndelete chain {TABLE} r{id}\n");
        self.nft(&["--file", "-"], &delete)?;
        // Which of both it was the fault knows; its receipt looks at the one that it asked for.
        counters.cut = counters.seen;
        counters.lost = counters.seen;
        Ok(Some(Removed {
            requested_ns,
            gone_ns: (self.now)(),
            counters,
        }))
    }

    fn look(&self, id: RuleId) -> Result<Option<RuleCounters>, SwitchError> {
        self.counters(id)
    }

    fn check(&self) -> Result<(), SwitchError> {
        self.nft(&["list", "tables"], "").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(effect: Effect, port: Option<u16>) -> Rule {
        Rule {
            links: vec![("n1".to_owned(), "n2".to_owned())],
            port,
            effect,
            draw: 0,
        }
    }

    fn loss(loss: f64) -> Effect {
        Effect {
            loss,
            ..Effect::default()
        }
    }

    #[test]
    fn cuts_losses_and_selectors_become_rules() {
        let cut = Effect {
            cut: true,
            ..Effect::default()
        };
        let text = script(7, &rule(cut, None));
        assert!(text.ends_with(
            "add rule bridge fencepost r7 iifname \"n1\" oifname \"n2\" counter drop comment \"n1 n2\"\n"
        ));
        let text = script(7, &rule(loss(0.25), Some(2380)));
        for end in ["sport", "dport"] {
            let expected = format!("th {end} 2380 numgen random mod 100000 < 25000 counter drop");
            assert!(text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn counters_are_read_by_chain_and_link() {
        let listed = r#"{"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "bridge", "table": "fencepost", "name": "r1"}},
            {"chain": {"family": "bridge", "table": "fencepost", "name": "r2"}},
            {"rule": {"chain": "r1", "comment": "n1 n2", "expr": [{"counter": {"packets": 5, "bytes": 1}}, {"drop": null}]}},
            {"rule": {"chain": "r2", "comment": "n1 n2", "expr": [{"counter": {"packets": 3, "bytes": 1}}]}},
            {"rule": {"chain": "r2", "comment": "n2 n1", "expr": [{"counter": {"packets": 0, "bytes": 0}}]}}
        ]}"#;
        let counters = parse_counters(listed, 2).expect("there");
        assert_eq!(counters.seen, 3);
        assert_eq!(counters.struck_by_link.len(), 1);
        assert_eq!(parse_counters(listed, 3), None);
        assert_eq!(parse_counters("", 1), None);
    }

    #[test]
    fn what_it_cannot_do_is_refused_in_words() {
        let bridge = NftBridge::with_program(|| 0, "no-such-program-nft".into());
        let delay = Effect {
            delay_ns: 1,
            ..Effect::default()
        };
        for (effect, fragment) in [
            (delay, "set cluster.network = \"switch\""),
            (loss(0.1), "install the package nftables"),
        ] {
            let error = bridge.install(&rule(effect, None)).expect_err(fragment);
            assert!(error.to_string().contains(fragment), "{error}");
        }
    }
}
