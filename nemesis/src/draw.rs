//! Random draws that are the same on every machine and with every version of our dependencies.
//!
//! Only the raw 64-bit words of ChaCha8 are used; how they become numbers is written down here and not
//! left to a library's distributions, whose values may change between releases. Nothing else in this
//! crate draws.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};

/// One independent stream of draws.
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    /// The stream of that number under that seed. Streams of one seed are independent, so a fault that
    /// is added to a scenario does not change what happens to the others.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..24].copy_from_slice(b"fencepost/faults");
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(stream);
        Self(rng)
    }

    /// The stream that decides on the frames of one directed link under one fault. `draw` is the fault's
    /// own draw from the seed, the ports are the link's ends.
    pub(crate) fn frames(draw: u64, from_port: u16, to_port: u16) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&draw.to_le_bytes());
        key[8..24].copy_from_slice(b"fencepost/frames");
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(u64::from(from_port) << 16 | u64::from(to_port));
        Self(rng)
    }

    /// The stream that decides what a disk had written when its power went. `draw` is the fault's own draw
    /// from the seed.
    pub(crate) fn torn(draw: u64, host: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&draw.to_le_bytes());
        key[8..22].copy_from_slice(b"fencepost/torn");
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(host);
        Self(rng)
    }

    /// Uniform in 0 ≤ x < 1, with 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        /// 2⁻⁵³, the distance between two values.
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * STEP
    }

    /// Uniform in `low ..= high`. The bias of the multiplication is below 2⁻⁶⁴ times the range.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high, "an empty range: {low}..={high}");
        let range = u128::from(high - low) + 1;
        let scaled = (u128::from(self.0.next_u64()) * range) >> 64;
        low + u64::try_from(scaled).expect("less than the range")
    }

    /// A selector among targets. Below 2³², so that every JSON reader sees it exactly.
    pub(crate) fn pick(&mut self) -> u64 {
        self.0.next_u64() >> 32
    }

    /// Standard normal: Marsaglia's polar method (Marsaglia & Bray, SIAM Review 6, 1964).
    pub(crate) fn normal(&mut self) -> f64 {
        loop {
            let x = 2.0 * self.unit() - 1.0;
            let y = 2.0 * self.unit() - 1.0;
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }
}
