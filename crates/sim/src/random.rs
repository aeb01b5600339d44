//! A small seeded source of numbers (splitmix64): the same on every machine and in every version.

/// Numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Begins at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In `0..1`, evenly.
    pub fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// In `low..high`, evenly.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + (self.share() * f64::from(high - low)) as u32
    }

    /// The gap to the next of some arrivals that come independently, `mean` apart.
    pub fn gap(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}
