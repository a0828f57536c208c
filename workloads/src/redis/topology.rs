//! How the servers of a Redis cluster stand to each other: what a lock on them must know, and whoever starts them.

use crate::option::{OptionKind, OptionSpec, Options};

/// The backend's option.
pub const TOPOLOGY: OptionSpec = OptionSpec {
    name: "topology",
    kind: OptionKind::Word(&["single", "sentinel", "independent"]),
    default: "sentinel",
    about: "One primary alone; a primary with replicas and three Sentinels that replace it; or primaries that know \
            nothing of each other, as Redlock wants them.",
};

/// How the servers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One primary alone.
    Single,
    /// A primary, its replicas, and Sentinels.
    Sentinel,
    /// Primaries only.
    Independent,
}

impl Topology {
    /// What a cluster's options say.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        match options.text(&TOPOLOGY) {
            "single" => Self::Single,
            "independent" => Self::Independent,
            _ => Self::Sentinel,
        }
    }

    /// Says what was expected when a lock that lives on one primary cannot live here.
    pub(crate) fn has_one_primary(self) -> Result<(), String> {
        if self == Self::Independent {
            return Err(
                "cluster.options.topology to be \"single\" or \"sentinel\" (of independent primaries each worker \
                 would have a lock of its own), or lock = \"redlock\""
                    .to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_meaning() {
        let of = |word: &str| {
            let pair = ("topology".to_owned(), word.to_owned());
            Topology::of(&Options([pair].into()))
        };
        assert_eq!(Topology::of(&Options::default()), Topology::Sentinel);
        let OptionKind::Word(words) = TOPOLOGY.kind else {
            panic!("a word");
        };
        let all = words.iter().map(|word| of(word));
        assert!(all.eq([Topology::Single, Topology::Sentinel, Topology::Independent]));
    }
}
