//! How long a fault lasts: fixed, uniform, or with the heavy tail of garbage collection pauses.

use serde::{Deserialize, Serialize};

use crate::draw::Draws;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874_040_841;

/// A pause drawn by [`Lasts::Gc`] is at most this many times its 99th percentile.
pub const GC_LONGEST_IN_P99: u64 = 10;

/// How long a fault lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Lasts {
    /// Always the same.
    Fixed {
        /// The length.
        ns: u64,
    },
    /// Each length from the shortest to the longest is as likely.
    Uniform {
        /// The shortest.
        min_ns: u64,
        /// The longest.
        max_ns: u64,
    },
    /// Log-normal, as stop-the-world pauses roughly are: mostly short, now and then very long. Cut off
    /// at [`GC_LONGEST_IN_P99`] times the 99th percentile, which one draw in a million or fewer
    /// reaches unless the tail is very heavy.
    Gc {
        /// Half of the draws are shorter.
        median_ns: u64,
        /// One draw in a hundred is longer.
        p99_ns: u64,
    },
}

impl Lasts {
    /// Says what is wrong with the figures, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        match *self {
            Self::Fixed { ns: 0 } => Err("it lasts 0 ns; give it a length".to_owned()),
            Self::Uniform { min_ns, max_ns } if min_ns > max_ns => Err(format!(
                "its shortest length ({min_ns} ns) is longer than its longest ({max_ns} ns); swap them"
            )),
            Self::Uniform { max_ns: 0, .. } => {
                Err("it lasts 0 ns at most; give it a length".to_owned())
            }
            Self::Gc { median_ns: 0, .. } => {
                Err("its median length is 0 ns; give it a length".to_owned())
            }
            Self::Gc { median_ns, p99_ns } if p99_ns < median_ns => Err(format!(
                "its 99th percentile ({p99_ns} ns) is below its median ({median_ns} ns); swap them"
            )),
            _ => Ok(()),
        }
    }

    /// Draws one length in nanoseconds.
    pub(crate) fn draw(&self, draws: &mut Draws) -> u64 {
        match *self {
            Self::Fixed { ns } => ns,
            Self::Uniform { min_ns, max_ns } => draws.between(min_ns, max_ns),
            Self::Gc { median_ns, p99_ns } => {
                let sigma = (p99_ns as f64 / median_ns as f64).ln() / NORMAL_P99;
                let length_ns = median_ns as f64 * (sigma * draws.normal()).exp();
                let longest_ns = p99_ns.saturating_mul(GC_LONGEST_IN_P99);
                // Whole microseconds: the last bits of ln and exp differ between C libraries.
                let rounded_ns = (length_ns / 1e3).round() as u64 * 1000;
                rounded_ns.clamp(1000, longest_ns.max(1000))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_lengths_have_the_median_and_the_tail_that_were_asked_for() {
        let lasts = Lasts::Gc {
            median_ns: 50_000_000,
            p99_ns: 4_000_000_000,
        };
        let mut draws = Draws::new(11, 0);
        let mut lengths: Vec<u64> = (0..20_000).map(|_| lasts.draw(&mut draws)).collect();
        lengths.sort_unstable();
        let (median_ns, p99_ns) = (lengths[10_000], lengths[19_800]);
        assert!(
            (47_000_000..53_000_000).contains(&median_ns),
            "median {median_ns}"
        );
        assert!(
            (3_300_000_000..4_700_000_000).contains(&p99_ns),
            "p99 {p99_ns}"
        );
        assert!(*lengths.last().expect("not empty") <= 40_000_000_000);
    }

    #[test]
    fn uniform_reaches_both_ends_and_nothing_else() {
        let lasts = Lasts::Uniform {
            min_ns: 5,
            max_ns: 7,
        };
        let mut draws = Draws::new(3, 1);
        let mut seen = [0; 3];
        for _ in 0..300 {
            let length_ns = lasts.draw(&mut draws);
            seen[usize::try_from(length_ns - 5).expect("small")] += 1;
        }
        assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for (bad, word) in [
            (Lasts::Fixed { ns: 0 }, "0 ns"),
            (
                Lasts::Uniform {
                    min_ns: 2,
                    max_ns: 1,
                },
                "swap",
            ),
            (
                Lasts::Uniform {
                    min_ns: 0,
                    max_ns: 0,
                },
                "0 ns at most",
            ),
            (
                Lasts::Gc {
                    median_ns: 0,
                    p99_ns: 1,
                },
                "median",
            ),
            (
                Lasts::Gc {
                    median_ns: 2,
                    p99_ns: 1,
                },
                "below its median",
            ),
        ] {
            let why = bad.check().expect_err("refused");
            assert!(why.contains(word), "{why}");
        }
    }
}
