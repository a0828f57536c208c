//! The table of every key that a scenario may have.
//!
//! Validation and the reference (`scenarios/README.md`) both come from here, so they cannot differ: a
//! key that is not in the table is an error, its default is parsed from the text shown to users.

use super::known::Registry;
use crate::sandbox::NetworkKind;
use nemesis::TriggerEvent;
use workloads::discipline::Discipline;
use workloads::resource::memory::store::TokenPolicy;

/// The tables of a scenario file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Top,
    Cluster,
    Tuning,
    ClusterOptions,
    Workload,
    LockOptions,
    Nemesis,
    Fault,
    When,
    Lasts,
    Gc,
    Arm,
}

impl Table {
    /// Every table, in the order of the reference.
    pub(super) const ALL: &'static [Self] = &[
        Self::Top,
        Self::Cluster,
        Self::Tuning,
        Self::ClusterOptions,
        Self::Workload,
        Self::LockOptions,
        Self::Nemesis,
        Self::Fault,
        Self::When,
        Self::Lasts,
        Self::Gc,
        Self::Arm,
    ];

    /// How errors and the reference name it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Top => "the top level",
            Self::Cluster => "[cluster]",
            Self::Tuning => "[cluster.tuning]",
            Self::ClusterOptions => "[cluster.options]",
            Self::Workload => "[workload]",
            Self::LockOptions => "[workload.options]",
            Self::Nemesis => "[nemesis]",
            Self::Fault => "[[fault]]",
            Self::When => "`when` of [[fault]]",
            Self::Lasts => "`lasts` of [[fault]]",
            Self::Gc => "`lasts.gc` of [[fault]]",
            Self::Arm => "[[arm]]",
        }
    }

    /// Whether its keys come from a registry, those of the backend or lock that the scenario names.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::ClusterOptions | Self::LockOptions)
    }

    /// Its keys, in the order of the reference.
    pub(super) fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.table == self)
    }

    /// One of its keys.
    pub(super) fn key(self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}

/// What a key's value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Any text that is not empty.
    Text,
    /// A name from a registry.
    Name(Registry),
    /// One of a fixed set of words.
    Word(&'static [&'static str]),
    /// A whole number, both ends included.
    Integer(u64, u64),
    /// A number above the first and at most the second.
    Number(f64, f64),
    /// `true` or `false`.
    Bool,
    /// A duration of at least so many nanoseconds.
    Duration(u64),
    /// A duration in whole milliseconds, at least one.
    Millis,
    /// A duration or a range of them.
    Range,
    /// Whom a fault hits.
    Target,
    /// How long a fault lasts.
    Lasts,
    /// Rows of the ledger.
    Claims,
    /// In how many trials an arm's expectations must hold.
    HoldsIn,
    /// What the metrics must be.
    Expectations,
    /// Keys of other tables with the values they have in this arm.
    Overrides,
    /// A table.
    Table(Table),
    /// A table that may stand any number of times.
    Tables(Table),
}

impl Kind {
    /// The kind in the words of an error message: "expected …".
    pub(super) fn describe(self) -> String {
        match self {
            Self::Text => "a text that is not empty".to_owned(),
            Self::Name(registry) => format!("the name of a {}", registry.noun()),
            Self::Word(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                one_of(&quoted)
            }
            Self::Integer(min, max) if max >= i64::MAX as u64 => format!("a whole number from {min}"),
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Number(above, at_most) if at_most == f64::INFINITY => format!("a number above {above}"),
            Self::Number(above, at_most) => format!("a number above {above} and at most {at_most}"),
            Self::Bool => "true or false".to_owned(),
            Self::Duration(0) => "a duration such as \"2s\"".to_owned(),
            Self::Duration(_) => "a duration above zero such as \"2s\"".to_owned(),
            Self::Millis => "a duration in whole milliseconds such as \"500ms\"".to_owned(),
            Self::Range => "a duration or a range of them such as \"0s..2s\"".to_owned(),
            Self::Target => format!("a target: {}", super::fault::SYNTAX),
            Self::Lasts => {
                "a duration, a range such as \"3s..5s\", or { gc = { median = \"200ms\", p99 = \"4s\" } }".to_owned()
            }
            Self::Claims => format!("a list of ledger rows from 1 to {LEDGER_ROWS}"),
            Self::HoldsIn => "\"all\", \"any\" or a share such as \"3/10\"".to_owned(),
            Self::Expectations => "a table of metrics such as { lost_writes = \"> 0\" }".to_owned(),
            Self::Overrides => "a table such as { \"workload.ttl\" = \"5s\" }".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(table) => format!("tables, each headed {}", table.title()),
        }
    }

    /// True when the value is written as a text; a bare `3.5` on the command line is then one too.
    pub(super) fn is_text(self) -> bool {
        match self {
            Self::Text
            | Self::Name(_)
            | Self::Word(_)
            | Self::Duration(_)
            | Self::Millis
            | Self::Range
            | Self::Target
            | Self::HoldsIn => true,
            Self::Integer(..)
            | Self::Number(..)
            | Self::Bool
            | Self::Lasts
            | Self::Claims
            | Self::Expectations
            | Self::Overrides
            | Self::Table(_)
            | Self::Tables(_) => false,
        }
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn one_of(words: &[String]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// What happens when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// It may not be.
    Required,
    /// This TOML value is taken.
    Default(&'static str),
    /// The value comes from elsewhere or there is none; the words say which.
    Optional(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) table: Table,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) absent: Absent,
    /// Unit of the number or duration; empty where there is none.
    pub(super) unit: &'static str,
    /// A value as it would be written.
    pub(super) example: &'static str,
    /// What it means, for the reference.
    pub(super) about: &'static str,
}

/// Rows of the evidence ledger.
pub(super) const LEDGER_ROWS: i64 = 35;

/// Largest number that TOML can hold.
const ANY: u64 = i64::MAX as u64;

/// Short forms, so that one key is one line of the table below.
const fn key(table: Table, name: &'static str, kind: Kind, absent: Absent) -> Key {
    Key {
        table,
        name,
        kind,
        absent,
        unit: "",
        example: "",
        about: "",
    }
}

impl Key {
    const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    const fn shown(mut self, example: &'static str, about: &'static str) -> Self {
        self.example = example;
        self.about = about;
        self
    }
}

use Absent::{Default, Optional, Required};
use Kind::{Bool, Duration, Integer, Millis, Name, Number, Range, Text, Word};
use Table::{
    Arm, Cluster, ClusterOptions, Fault, Gc, Lasts, LockOptions, Nemesis, Top, Tuning, When,
    Workload,
};

/// Every key of every table.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    key(Top, "title", Text, Required)
        .shown("\"etcd: a lock alone loses writes\"", "What the scenario shows, in one line."),
    key(Top, "about", Text, Optional("no text"))
        .shown("\"Reproduces …\"", "Background, as long as it needs to be."),
    key(Top, "claims", Kind::Claims, Default("[]"))
        .shown("[10, 11]", "Rows of the evidence ledger that it makes executable."),
    key(Top, "issue", Text, Optional("none"))
        .shown("\"etcd-io/etcd#11457\"", "The public report that it reproduces."),
    key(Top, "trials", Integer(1, 100_000), Default("1")).unit("trials")
        .shown("10", "How often each arm is run, each time with a seed of its own."),
    key(Top, "seed", Integer(0, ANY), Optional("drawn anew for each run"))
        .shown("42", "Seed from which schedules and holds are drawn."),
    key(Top, "cluster", Kind::Table(Cluster), Required).shown("[cluster]", "The lock service."),
    key(Top, "workload", Kind::Table(Workload), Required).shown("[workload]", "What its clients do."),
    key(Top, "nemesis", Kind::Table(Nemesis), Optional("no fault is drawn"))
        .shown("[nemesis]", "How faults that have a weight instead of a time are drawn."),
    key(Top, "fault", Kind::Tables(Fault), Optional("no faults"))
        .shown("[[fault]]", "What is done to servers and clients meanwhile."),
    key(Top, "arm", Kind::Tables(Arm), Optional("one arm `default` that expects nothing"))
        .shown("[[arm]]", "A variant of the scenario, and what it must show."),

    key(Cluster, "backend", Name(Registry::Backends), Required)
        .shown("\"etcd\"", "The lock service; `fencepost list` names all."),
    key(Cluster, "version", Text, Optional("the backend's own default"))
        .shown("\"3.5.16\"", "Its version; `fencepost backends` names those that can be had."),
    key(Cluster, "nodes", Integer(1, 99), Default("3")).unit("nodes")
        .shown("5", "Size of the cluster: 1, 3 or 5, as the backend allows."),
    key(Cluster, "network", Word(NetworkKind::NAMES), Default("\"switch\""))
        .shown("\"bridge\"", "What joins the hosts: a switch in user space, which can do every fault on links, or the kernel's \
            bridge, which is faster and can only cut links and lose frames."),
    key(Cluster, "bug", Text, Optional("none"))
        .shown("\"double-grant\"", "A bug to switch on. Only model backends have any: they prove that a check can fail."),
    key(Cluster, "ready_timeout", Millis, Default("\"30s\"")).unit("duration")
        .shown("\"1m\"", "How long the nodes may take until they accept writes."),
    key(Cluster, "tuning", Kind::Table(Tuning), Optional("the backend's own"))
        .shown("{ election = \"1s\" }", "Timing of the cluster's own protocol."),
    key(Cluster, "options", Kind::Table(ClusterOptions), Optional("the backend's own"))
        .shown("[cluster.options]", "Settings that only this backend has."),

    key(Tuning, "heartbeat", Millis, Optional("the backend's own")).unit("duration")
        .shown("\"100ms\"", "Between two heartbeats of the leader."),
    key(Tuning, "election", Millis, Optional("the backend's own")).unit("duration")
        .shown("\"1s\"", "Without a heartbeat until a follower stands for election. Longer than `heartbeat`."),

    key(Workload, "kind", Name(Registry::Workloads), Required)
        .shown("\"guarded-set\"", "What a client does with its lock."),
    key(Workload, "lock", Name(Registry::Locks), Required)
        .shown("\"etcd-v3lock\"", "The lock; it must be one of the backend's."),
    key(Workload, "resource", Name(Registry::Resources), Optional("none"))
        .shown("\"memory\"", "What the lock protects. Required by workloads that write to one, an error with the others."),
    key(Workload, "clients", Integer(1, 10_000), Required).unit("clients")
        .shown("5", "Logical clients that compete."),
    key(Workload, "workers", Integer(1, 200), Optional("the smaller of `clients` and 8")).unit("processes")
        .shown("5", "Client processes, each in a sandbox of its own (`c1`, `c2` …), that the clients are spread over."),
    key(Workload, "locks", Integer(1, 100_000), Default("1")).unit("locks")
        .shown("100", "Named locks, each with a register of its own."),
    key(Workload, "ttl", Millis, Required).unit("duration")
        .shown("\"2s\"", "Time-to-live of a lease, as the client asks for it."),
    key(Workload, "hold", Range, Default("\"0s\"")).unit("duration or range")
        .shown("\"0s..2s\"", "How long a holder works between read and write; a range is drawn from uniformly."),
    key(Workload, "think", Range, Default("\"0s\"")).unit("duration or range")
        .shown("\"10ms\"", "How long a client rests between two rounds."),
    key(Workload, "duration", Duration(1), Required).unit("duration")
        .shown("\"60s\"", "How long the clients go on."),
    key(Workload, "discipline", Word(Discipline::NAMES), Default("\"ignore\""))
        .shown("\"token\"", "How a holder finds out that it is none any more: it never looks, is told by its session, \
            keeps its own deadline, sends its token with each write, or writes in a transaction guarded by its lock."),
    key(Workload, "tokens", Word(TokenPolicy::NAMES), Optional("`enforce` with the discipline `token`, else `record`"))
        .shown("\"record\"", "Whether the resource refuses stale fencing tokens or only notes them."),
    key(Workload, "keep_alive", Bool, Default("true"))
        .shown("false", "Whether clients renew their leases."),
    key(Workload, "acquire_timeout", Duration(1), Default("\"30s\"")).unit("duration")
        .shown("\"10s\"", "How long a client waits for the lock."),
    key(Workload, "request_timeout", Duration(1), Default("\"5s\"")).unit("duration")
        .shown("\"1s\"", "How long a client waits for the answer to any other request."),
    key(Workload, "min_terms", Integer(0, ANY), Default("3")).unit("terms")
        .shown("20", "With fewer completed terms a trial is inconclusive."),
    key(Workload, "rate", Number(0.0, f64::INFINITY), Optional("as fast as it goes")).unit("operations/s")
        .shown("200", "Most operations per second, over all clients."),
    key(Workload, "options", Kind::Table(LockOptions), Optional("the lock's own"))
        .shown("{ recheck = false }", "Settings that only this lock has."),

    key(Nemesis, "every", Range, Required).unit("duration or range")
        .shown("\"2s..6s\"", "Time from one draw to the next, drawn uniformly from a range; the limits below make it longer."),
    key(Nemesis, "at_most_at_once", Integer(1, 100), Default("1")).unit("faults")
        .shown("2", "So many drawn faults may be in force at a time: with 2 a pause may fall into a partition."),
    key(Nemesis, "quiet", Duration(0), Default("\"0s\"")).unit("duration")
        .shown("\"1s\"", "Least time from the last change (a drawn fault that began or was healed) to the next that begins."),
    key(Nemesis, "heal_every", Duration(1), Optional("no heal phases")).unit("duration")
        .shown("\"30s\"", "So often a phase begins in which everything is healed and no fault strikes, whatever its trigger."),
    key(Nemesis, "heal_lasts", Duration(1), Optional("none; goes with `heal_every`")).unit("duration")
        .shown("\"10s\"", "Length of such a phase, shorter than `heal_every`."),
    key(Nemesis, "final_heal", Duration(0), Default("\"0s\"")).unit("duration")
        .shown("\"10s\"", "So long before the end of the workload everything is healed for good."),

    key(Fault, "kind", Name(Registry::Faults), Required).shown("\"pause\"", "What happens."),
    key(Fault, "target", Kind::Target, Required)
        .shown("\"holder\"", "To whom. `one` and `all` are nodes, `clients` is every client host; `node:n1` and `client:c1` name a host."),
    key(Fault, "when", Kind::Table(When), Required)
        .shown("{ every = \"5s\" }", "When: at a time, again and again, on an event, or whenever it is drawn by its weight."),
    key(Fault, "lasts", Kind::Lasts, Optional("for good, where the fault allows it"))
        .shown("\"3s..5s\"", "How long: fixed, drawn uniformly from a range, or with a heavy tail as in garbage collection. \
            For `crash` it is the time until the restart."),

    key(When, "every", Duration(1), Optional("not periodic")).unit("duration")
        .shown("\"5s\"", "Again and again, so far apart."),
    key(When, "first", Duration(0), Optional("`every`")).unit("duration")
        .shown("\"2s\"", "With `every`: the first time."),
    key(When, "at", Duration(0), Optional("not at a fixed time")).unit("duration")
        .shown("\"3s\"", "Once, so long after the start."),
    key(When, "on", Word(TriggerEvent::NAMES), Optional("not on an event"))
        .shown("\"acquired\"", "When this happens."),
    key(When, "weight", Integer(0, 1_000_000), Optional("not drawn"))
        .shown("3", "Whenever `[nemesis]` draws it: how often, against the weights of the others; 0 is never. A fault that \
            cannot apply at that moment (nobody holds, none leads, the target is down) has the weight 0."),
    key(When, "after", Duration(0), Optional("\"0s\"")).unit("duration")
        .shown("\"100ms\"", "With `on`: so long after the event."),
    key(When, "probability", Number(0.0, 1.0), Optional("1.0"))
        .shown("0.3", "With `on`: the chance that an event triggers the fault."),
    key(When, "at_most", Integer(1, 1_000_000), Optional("no limit")).unit("times")
        .shown("5", "With `on`: how often in a trial."),
    key(When, "spacing", Duration(0), Optional("none")).unit("duration")
        .shown("\"1s\"", "With `on`: least time between two."),

    key(Lasts, "gc", Kind::Table(Gc), Required)
        .shown("{ median = \"200ms\", p99 = \"4s\" }", "A log-normal distribution, as pauses for garbage collection have."),

    key(Gc, "median", Duration(1), Required).unit("duration").shown("\"200ms\"", "Half of them are shorter."),
    key(Gc, "p99", Duration(1), Required).unit("duration").shown("\"4s\"", "One in a hundred is longer."),

    key(Arm, "name", Text, Required).shown("\"fenced\"", "Its name; no two arms have the same."),
    key(Arm, "about", Text, Optional("no text")).shown("\"the control\"", "What it is for."),
    key(Arm, "set", Kind::Overrides, Default("{}"))
        .shown("{ \"workload.discipline\" = \"token\", \"faults\" = false }",
            "What differs in it: any key of `cluster`, `workload`, `nemesis` or a fault (`fault.1.lasts`; faults count from 1), \
            and `faults = false` for none."),
    key(Arm, "expect", Kind::Expectations, Default("{}"))
        .shown("{ lost_writes = \"> 0, < 50\" }",
            "What each metric must be: one or more of `>`, `>=`, `<`, `<=`, `==`, `!=` with a number, all of which must hold."),
    key(Arm, "holds_in", Kind::HoldsIn, Default("\"all\""))
        .shown("\"3/10\"", "In how many trials: `all`, `any`, or at least a share, rounded up."),
    key(Arm, "sweep", Text, Optional("in none"))
        .shown("\"ttl 3 s, rate of the holder's clock\"",
            "The sweep that it is a point of. The run's end names the first unsafe point of each sweep, in the order of the \
            file (write them from harmless to harmful): where two clients held one lock at once or a write was lost."),
    key(Arm, "point", Text, Optional("none"))
        .shown("\"0.25x\"", "With `sweep`: the point, as it is to be printed."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_documented() {
        for (index, key) in KEYS.iter().enumerate() {
            let twin = KEYS[..index]
                .iter()
                .find(|other| other.table == key.table && other.name == key.name);
            assert!(
                twin.is_none(),
                "{} twice in {}",
                key.name,
                key.table.title()
            );
            assert!(
                !key.example.is_empty() && key.about.ends_with('.'),
                "{} is not documented",
                key.name
            );
        }
    }
}
