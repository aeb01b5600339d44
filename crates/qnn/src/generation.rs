//! Generations of the HTP. Graphs are compiled for one of them and run on no other.

use std::fmt;
use std::str::FromStr;

/// A generation, as Qualcomm numbers its architecture: 73 is that of Snapdragon 8 Gen 2 and of X Elite, 75 of 8 Gen 3,
/// 79 of 8 Elite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(u16);

/// Those that the compiler takes.
const KNOWN: [u16; 5] = [68, 73, 75, 79, 81];

impl Generation {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

/// `v73`.
impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// There is no such generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownGeneration;

impl FromStr for Generation {
    type Err = UnknownGeneration;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let number = name.strip_prefix('v').and_then(|number| number.parse().ok());
        number.filter(|number| KNOWN.contains(number)).map(Self).ok_or(UnknownGeneration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_as_they_are_written() {
        for number in KNOWN {
            assert_eq!(Generation(number).to_string().parse(), Ok(Generation(number)));
        }
        for wrong in ["", "v", "73", "v74", "v073x", "V73"] {
            assert_eq!(wrong.parse::<Generation>(), Err(UnknownGeneration), "{wrong}");
        }
    }
}
