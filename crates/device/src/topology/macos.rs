//! macOS's numbers: how many cores there are of each performance level, the fastest level first (`sysctl hw.perflevel0` and on).
//!
//! A thread cannot be bound to a core there: the system puts threads that somebody waits for on fast cores, as long as there
//! are any, and others where it likes. So what counts is how many there are. Apple's efficiency cores have half the vector
//! units of its fast ones or fewer and two thirds of their clock, a third of the speed together: they are for idling. Slower
//! levels that go by another name compute along.

use super::{Core, CoreId, CoreKind, Speed, fastest_first};

/// A performance level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Physical cores that the system has of it.
    pub(crate) physical: usize,
    /// Hardware threads of these.
    pub(crate) logical: usize,
    /// What the system calls it; empty if it does not.
    pub(crate) name: String,
}

/// What the system has under a name, a number or a text.
pub(crate) trait Told {
    /// A number; nothing if there is none.
    fn number(&self, name: &str) -> Option<usize>;
    /// A text, likewise.
    fn text(&self, name: &str) -> Option<String>;
}

/// The levels. A system that knows none has one, with all its cores; nothing if it tells of no cores.
pub(crate) fn levels(told: &impl Told) -> Vec<Level> {
    let count = told.number("hw.nperflevels").unwrap_or(0).min(LEVELS_MAX);
    let level = |prefix: &str| {
        let physical = told.number(&format!("{prefix}.physicalcpu"))?;
        let logical = told.number(&format!("{prefix}.logicalcpu")).unwrap_or(physical);
        Some(Level { physical, logical, name: told.text(&format!("{prefix}.name")).unwrap_or_default() })
    };
    let levels: Vec<Level> = (0..count).filter_map(|index| level(&format!("hw.perflevel{index}"))).collect();
    if levels.is_empty() { level("hw").into_iter().collect() } else { levels }
}

/// More than any machine has.
const LEVELS_MAX: usize = 8;

/// More cores than any machine has.
const CORES_MAX: usize = 1 << 16;

/// The cores of the levels, one for each physical core. Their numbers are those of hardware threads, level by level.
pub(crate) fn cores_of(levels: &[Level]) -> Vec<Core> {
    let (mut cores, mut first) = (Vec::new(), 0);
    for (index, Level { physical, logical, name }) in levels.iter().enumerate() {
        let (kind, speed) = match (index, name.as_str()) {
            (0, _) => (CoreKind::Fast, Speed::FULL),
            (_, "Efficiency" | "") => (CoreKind::LowPower, Speed::OF_ATOM),
            _ => (CoreKind::Slow, Speed::OF_ATOM),
        };
        let (physical, threads) = ((*physical).min(CORES_MAX), logical.checked_div(*physical).unwrap_or(1).max(1));
        cores.extend((0..physical).map(|core| Core { id: CoreId(first + core * threads), kind, speed }));
        first += physical * threads;
    }
    fastest_first(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A machine's answers.
    struct Machine(BTreeMap<&'static str, &'static str>);

    impl Told for Machine {
        fn number(&self, name: &str) -> Option<usize> {
            self.text(name)?.parse().ok()
        }

        fn text(&self, name: &str) -> Option<String> {
            self.0.get(name).map(|&text| text.to_owned())
        }
    }

    fn cores<const N: usize>(told: [(&'static str, &'static str); N]) -> Vec<(usize, CoreKind)> {
        let cores = cores_of(&levels(&Machine(told.into())));
        cores.iter().map(|core| (core.id.0, core.kind)).collect()
    }

    fn all(ids: impl IntoIterator<Item = usize>, kind: CoreKind) -> Vec<(usize, CoreKind)> {
        ids.into_iter().map(|id| (id, kind)).collect()
    }

    /// Eight P cores and four E cores. (M2 Max)
    #[test]
    fn efficiency_cores_are_left_to_the_rest_of_the_machine() {
        let m2_max = [
            ("hw.nperflevels", "2"),
            ("hw.physicalcpu", "12"),
            ("hw.logicalcpu", "12"),
            ("hw.perflevel0.physicalcpu", "8"),
            ("hw.perflevel0.logicalcpu", "8"),
            ("hw.perflevel0.name", "Performance"),
            ("hw.perflevel1.physicalcpu", "4"),
            ("hw.perflevel1.logicalcpu", "4"),
            ("hw.perflevel1.name", "Efficiency"),
        ];
        assert_eq!(cores(m2_max), all(0..8, CoreKind::Fast));
    }

    #[test]
    fn slower_levels_of_another_name_compute_along() {
        let two_kinds_of_large_ones = [
            ("hw.nperflevels", "2"),
            ("hw.perflevel0.physicalcpu", "2"),
            ("hw.perflevel0.name", "Super"),
            ("hw.perflevel1.physicalcpu", "3"),
            ("hw.perflevel1.name", "Performance"),
        ];
        let expected = [all(0..2, CoreKind::Fast), all(2..5, CoreKind::Slow)].concat();
        assert_eq!(cores(two_kinds_of_large_ones), expected);
    }

    /// Six cores of two threads each, and no levels. (An Intel Mac, an old system)
    #[test]
    fn of_two_threads_of_a_core_one_counts() {
        let intel = [("hw.physicalcpu", "6"), ("hw.logicalcpu", "12")];
        assert_eq!(cores(intel), all([0, 2, 4, 6, 8, 10], CoreKind::Fast));
        let one_level =
            [("hw.nperflevels", "1"), ("hw.perflevel0.physicalcpu", "2"), ("hw.perflevel0.logicalcpu", "4")];
        assert_eq!(cores(one_level), all([0, 2], CoreKind::Fast));
    }

    #[test]
    fn answers_that_make_no_sense_are_no_cores() {
        assert_eq!(cores([]), []);
        assert_eq!(cores([("hw.nperflevels", "9999999"), ("hw.physicalcpu", "0")]), []);
        // A virtual machine that was given none of the fast ones.
        let slow = [("hw.nperflevels", "2"), ("hw.perflevel0.physicalcpu", "0"), ("hw.perflevel1.physicalcpu", "2")];
        assert_eq!(cores(slow), all([0, 1], CoreKind::LowPower));
        // Fewer threads than cores.
        assert_eq!(cores([("hw.physicalcpu", "2"), ("hw.logicalcpu", "1")]), all([0, 1], CoreKind::Fast));
    }
}
