//! Small exact statistics: percentiles and intervals for proportions.

/// The `percent`-th percentile of sorted values by nearest rank: the smallest value that at least
/// `percent` per cent of all values do not exceed. `None` when there is no value.
#[must_use]
pub fn percentile(sorted: &[u64], percent: u64) -> Option<u64> {
    let rank = (sorted.len() as u128 * u128::from(percent)).div_ceil(100);
    let place = usize::try_from(rank).ok()?.saturating_sub(1);
    sorted.get(place).copied()
}

/// Two-sided 95 % quantile of the normal distribution.
pub const Z_95: f64 = 1.959_963_984_540_054;

/// Wilson's score interval for a proportion (E. B. Wilson, JASA 22, 1927), as `(low, high)`.
/// Unlike the textbook interval it is honest for few trials and for 0 or all successes.
/// Nothing is known without trials: `(0, 1)`.
#[must_use]
pub fn wilson(successes: u64, trials: u64, z: f64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let n = trials as f64;
    let p = successes as f64 / n;
    let z2 = z * z;
    let centre = p + z2 / (2.0 * n);
    let spread = z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    (
        ((centre - spread) / scale).max(0.0),
        ((centre + spread) / scale).min(1.0),
    )
}

/// Nanoseconds as milliseconds, to the microsecond, so that they print the same everywhere.
#[must_use]
pub fn ms(ns: u64) -> f64 {
    let us = ns / 1000 + u64::from(ns % 1000 >= 500);
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50), Some(50));
        assert_eq!(percentile(&values, 99), Some(99));
        assert_eq!(percentile(&values, 100), Some(100));
        assert_eq!(percentile(&values, 0), Some(1));
        assert_eq!(percentile(&[7], 50), Some(7));
        assert_eq!(percentile(&[1, 2, 3], 50), Some(2));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn wilson_agrees_with_published_values() {
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3 (Wilson without correction).
        for (successes, trials, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (l, h) = wilson(successes, trials, Z_95);
            assert!((l - low).abs() < 5e-5, "{successes}/{trials}: {l}");
            assert!((h - high).abs() < 5e-5, "{successes}/{trials}: {h}");
        }
        assert_eq!(wilson(0, 0, Z_95), (0.0, 1.0));
    }

    #[test]
    fn milliseconds_are_rounded_to_the_microsecond() {
        assert_eq!(ms(1_234_567), 1.235);
        assert_eq!(ms(499), 0.0);
        assert_eq!(ms(500), 0.001);
    }
}
