//! Measured times and how they are printed.

/// Times in nanoseconds.
#[derive(Default)]
pub(super) struct Sample(Vec<u64>);

impl Sample {
    /// Adds one.
    pub(super) fn add(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// Prints a row of the table, in milliseconds.
    pub(super) fn row(mut self, name: &str) {
        self.0.sort_unstable();
        let cell = |share: f64| match self.percentile(share) {
            Some(ns) => format!("{:.3} ms", ns as f64 / 1e6),
            None => "–".to_owned(),
        };
        println!(
            "  {name:<50} {:>12} {:>12}   {} times",
            cell(0.5),
            cell(0.99),
            self.0.len()
        );
    }

    /// Half of the times are at most this long, in milliseconds; 0 when there are none.
    pub(super) fn median_ms(mut self) -> f64 {
        self.0.sort_unstable();
        self.percentile(0.5).unwrap_or(0) as f64 / 1e6
    }

    /// The nearest-rank percentile of the sorted sample.
    fn percentile(&self, share: f64) -> Option<u64> {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied()
    }
}

impl FromIterator<u64> for Sample {
    fn from_iter<I: IntoIterator<Item = u64>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

/// Prints a row with a single figure.
pub(super) fn figure(name: &str, value: &str) {
    println!("  {name:<50} {value:>12}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let sample: Sample = (1..=100).collect();
        assert_eq!(sample.percentile(0.5), Some(50));
        assert_eq!(sample.percentile(0.99), Some(99));
        assert_eq!(Sample::default().percentile(0.5), None);
    }
}
