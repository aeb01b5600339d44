//! What a verify pass was used for: valid, wasted and underutilised rows. (sd.npu §3.2)
//!
//! A pass costs about the same up to some number of rows, where the device saturates. Of these, rows that yielded a token
//! are *valid*, rows that were rejected *wasted*, and rows that were not there *underutilised*. Rows beyond saturation
//! count like all others.

use std::ops::AddAssign;

/// Rows by what they were used for, of one pass or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utilisation {
    /// They yielded a token.
    pub valid: u64,
    /// They were computed for nothing.
    pub wasted: u64,
    /// The pass had room for them.
    pub underutilised: u64,
}

impl Utilisation {
    /// Of a pass of `rows` rows that brought `tokens` tokens, on a device that `saturating` rows saturate.
    #[must_use]
    pub fn of(tokens: u64, rows: u64, saturating: u64) -> Self {
        Self { valid: tokens, wasted: rows.saturating_sub(tokens), underutilised: saturating.saturating_sub(rows) }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.valid + self.wasted + self.underutilised
    }
}

impl AddAssign for Utilisation {
    fn add_assign(&mut self, other: Self) {
        self.valid += other.valid;
        self.wasted += other.wasted;
        self.underutilised += other.underutilised;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_divided_by_what_came_of_its_rows() {
        assert_eq!(Utilisation::of(3, 8, 32), Utilisation { valid: 3, wasted: 5, underutilised: 24 });
        assert_eq!(Utilisation::of(2, 40, 32), Utilisation { valid: 2, wasted: 38, underutilised: 0 });
        assert_eq!(Utilisation::of(3, 8, 32).total(), 32);
    }
}
