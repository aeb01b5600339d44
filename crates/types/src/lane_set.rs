//! Sets of lanes: the team that runs one kernel, or the lanes that have nothing to do.

use crate::LaneId;
use std::fmt;

/// A set of lanes. The lane with the smallest number leads: it runs rank 0 of a team and reports completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaneSet(u64);

impl LaneSet {
    /// No lane.
    pub const EMPTY: Self = Self(0);
    /// Lanes are numbered below this: a set is one machine word, and a machine has a handful of queues.
    pub const LANES_MAX: u8 = 64;

    /// Lanes `0..count`.
    ///
    /// # Panics
    /// If there are more than [`Self::LANES_MAX`].
    #[must_use]
    pub fn first(count: u8) -> Self {
        (0..count).map(LaneId).collect()
    }

    /// How many lanes it holds.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it holds no lane.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `lane` is in it.
    #[must_use]
    pub fn contains(self, lane: LaneId) -> bool {
        lane.0 < Self::LANES_MAX && self.0 & (1 << lane.0) != 0
    }

    /// Whether every lane of `other` is in it.
    #[must_use]
    pub fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The lanes of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The lanes that `other` does not hold.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The lane that leads the team.
    #[must_use]
    pub fn leader(self) -> Option<LaneId> {
        self.iter().next()
    }

    /// The lanes, smallest first.
    pub fn iter(self) -> impl Iterator<Item = LaneId> {
        (0..Self::LANES_MAX).map(LaneId).filter(move |&lane| self.contains(lane))
    }
}

impl FromIterator<LaneId> for LaneSet {
    fn from_iter<I: IntoIterator<Item = LaneId>>(lanes: I) -> Self {
        let mut set = Self::EMPTY;
        for lane in lanes {
            assert!(lane.0 < Self::LANES_MAX, "lane {lane} is beyond the {} a set can hold", Self::LANES_MAX);
            set.0 |= 1 << lane.0;
        }
        set
    }
}

/// `0+1` for a team, `-` for none.
impl fmt::Display for LaneSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        let names: Vec<String> = self.iter().map(|lane| lane.to_string()).collect();
        f.write_str(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_led_by_its_smallest_lane() {
        let team: LaneSet = [LaneId(3), LaneId(1)].into_iter().collect();
        assert_eq!(team.leader(), Some(LaneId(1)));
        assert_eq!(team.to_string(), "1+3");
        assert_eq!(team.len(), 2);
        assert_eq!(LaneSet::EMPTY.leader(), None);
    }

    #[test]
    fn difference_and_union_are_those_of_sets() {
        let all = LaneSet::first(3);
        let one = LaneSet::from_iter([LaneId(1)]);
        assert_eq!(all.without(one).to_string(), "0+2");
        assert_eq!(all.without(one).union(one), all);
        assert!(all.contains_all(one));
        assert!(!one.contains_all(all));
        assert_eq!(LaneSet::first(64).len(), 64);
    }
}
