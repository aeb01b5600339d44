//! Linux's files: siblings, kinds and capacities of cores under `/sys/devices`.

use super::{Core, CoreId, CoreKind, Speed, fastest_first};
use std::path::Path;

/// The physical cores behind the hardware threads `allowed`, by the files under `devices` (`/sys/devices`): the fastest kind
/// first, and those for idling only where there are no others.
pub(crate) fn cores_of(allowed: &[CoreId], devices: &Path) -> Vec<Core> {
    let kinds = Kinds::read(allowed, devices);
    let mut cores: Vec<Core> = Vec::new();
    let mut seen: Vec<CoreId> = Vec::new();
    for &id in allowed {
        if !seen.contains(&id) {
            seen.extend(siblings(id, devices));
            cores.push(kinds.of(id));
        }
    }
    fastest_first(cores)
}

/// The hardware threads of a core, itself among them or not.
fn siblings(id: CoreId, devices: &Path) -> Vec<CoreId> {
    let topology = devices.join(format!("system/cpu/cpu{}/topology", id.0));
    let lists = ["core_cpus_list", "thread_siblings_list"].map(|name| listed(&topology.join(name)));
    lists.into_iter().flatten().next().unwrap_or_default()
}

/// What Linux tells of the kinds of cores.
struct Kinds {
    /// Intel's E cores.
    atoms: Vec<CoreId>,
    /// Cores that have no third cache though others have one.
    apart: Vec<CoreId>,
    /// Each core's speed, in parts of the fastest one's, where it is told.
    capacities: Vec<(CoreId, f64)>,
}

/// Of the fastest core's speed: less is a slow core, or one for idling. ARM's smallest have a quarter to two fifths of it,
/// its middle ones two thirds and more of the largest's.
const SLOW_BELOW: f64 = 0.8;
const LOW_POWER_BELOW: f64 = 0.45;

impl Kinds {
    fn read(allowed: &[CoreId], devices: &Path) -> Self {
        let cpu = |id: CoreId, file: &str| devices.join(format!("system/cpu/cpu{}/{file}", id.0));
        let (with, without): (Vec<CoreId>, Vec<CoreId>) =
            allowed.iter().partition(|&&id| cpu(id, "cache/index3").exists());
        let told = |&id: &CoreId| Some((id, number(&cpu(id, "cpu_capacity"))?));
        let mut capacities: Vec<(CoreId, f64)> = allowed.iter().filter_map(told).collect();
        let fastest = capacities.iter().map(|(_, capacity)| *capacity).fold(1.0, f64::max);
        capacities.iter_mut().for_each(|(_, capacity)| *capacity /= fastest);
        Self {
            atoms: listed(&devices.join("cpu_atom/cpus")).unwrap_or_default(),
            apart: if with.is_empty() { Vec::new() } else { without },
            capacities,
        }
    }

    fn of(&self, id: CoreId) -> Core {
        let capacity = self.capacities.iter().find(|(core, _)| *core == id).map(|(_, capacity)| *capacity);
        let is_atom = self.atoms.contains(&id);
        let told = capacity.unwrap_or(1.0);
        let kind = match () {
            () if is_atom && self.apart.contains(&id) => CoreKind::LowPower,
            () if is_atom => CoreKind::Slow,
            () if told < LOW_POWER_BELOW => CoreKind::LowPower,
            () if told < SLOW_BELOW => CoreKind::Slow,
            () => CoreKind::Fast,
        };
        let speed = match kind {
            CoreKind::Fast => Speed::FULL,
            // A capacity that tells nothing of them.
            _ if told >= SLOW_BELOW => Speed::OF_ATOM,
            _ => Speed(((told * f64::from(Speed::FULL.0)) as u32).max(1)),
        };
        Core { id, kind, speed }
    }
}

/// A file's number; nothing if it is not there, or no number.
fn number(file: &Path) -> Option<f64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A file's list of cores, as Linux writes it: `0-3,8,10-11`. Nothing if it is not there, or no such list.
fn listed(file: &Path) -> Option<Vec<CoreId>> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut cores = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CORES_MAX {
            return None;
        }
        cores.extend((first..=last).map(CoreId));
    }
    Some(cores)
}

/// More than any machine has.
const CORES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    /// A machine's files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn with(self, path: &str, text: &str) -> Self {
            let file = self.0.path().join(path);
            create_dir_all(file.parent().unwrap()).unwrap();
            write(file, text).unwrap();
            self
        }

        /// Hardware threads of one core.
        fn core(mut self, threads: &[usize]) -> Self {
            let list = threads.iter().map(ToString::to_string).collect::<Vec<_>>().join(",") + "\n";
            for thread in threads {
                self = self.with(&format!("system/cpu/cpu{thread}/topology/core_cpus_list"), &list);
            }
            self
        }

        fn cores(&self, threads: usize) -> Vec<(usize, CoreKind)> {
            self.cores_among(&(0..threads).collect::<Vec<_>>())
        }

        fn cores_among(&self, allowed: &[usize]) -> Vec<(usize, CoreKind)> {
            let allowed: Vec<CoreId> = allowed.iter().copied().map(CoreId).collect();
            cores_of(&allowed, self.0.path()).into_iter().map(|core| (core.id.0, core.kind)).collect()
        }
    }

    fn fast(ids: &[usize]) -> Vec<(usize, CoreKind)> {
        ids.iter().map(|&id| (id, CoreKind::Fast)).collect()
    }

    #[test]
    fn of_two_threads_of_a_core_one_counts() {
        let ryzen = (0..4).fold(Machine::new(), |machine, core| machine.core(&[core, core + 4]));
        assert_eq!(ryzen.cores(8), fast(&[0, 1, 2, 3]));
        // Bound to one core's threads and another's second one.
        assert_eq!(ryzen.cores_among(&[1, 5, 6]), fast(&[1, 6]));
    }

    /// Two P cores of two threads, four E cores, two LP-E cores. (Meteor Lake's like)
    #[test]
    fn e_cores_come_after_p_cores_and_lp_e_cores_are_left_alone() {
        let mut intel = Machine::new().core(&[0, 1]).core(&[2, 3]).with("cpu_atom/cpus", "4-9\n");
        for thread in 0..10 {
            intel = if thread < 4 { intel } else { intel.core(&[thread]) };
            if thread < 8 {
                intel = intel.with(&format!("system/cpu/cpu{thread}/cache/index3/size"), "24576K\n");
            }
        }
        let slow = (4..8).map(|id| (id, CoreKind::Slow));
        assert_eq!(intel.cores(10), [fast(&[0, 2]), slow.collect()].concat());
        // Where a process may use no others, they are as good as any.
        assert_eq!(intel.cores_among(&[8, 9]), [(8, CoreKind::Slow), (9, CoreKind::Slow)]);
    }

    /// Four P cores of two threads, eight E cores, two LP-E cores, numbered as Linux does: the LP-E cores last, in a list of
    /// E cores, and without the cache that all others share. (Core Ultra 5 125H)
    #[test]
    fn meteor_lake_has_three_kinds() {
        let mut intel = Machine::new().with("cpu_core/cpus", "0-7\n").with("cpu_atom/cpus", "8-17\n");
        for core in 0..4 {
            intel = intel.core(&[2 * core, 2 * core + 1]);
        }
        for thread in 0..18 {
            intel = if thread < 8 { intel } else { intel.core(&[thread]) };
            if thread < 16 {
                intel = intel.with(&format!("system/cpu/cpu{thread}/cache/index3/shared_cpu_list"), "0-15\n");
            }
        }
        let slow = (8..16).map(|id| (id, CoreKind::Slow)).collect();
        assert_eq!(intel.cores(18), [fast(&[0, 2, 4, 6]), slow].concat());
        // A container that may use one thread of each of two P cores and an LP-E core.
        assert_eq!(intel.cores_among(&[1, 2, 16]), fast(&[1, 2]));
    }

    /// Four P cores with a third cache, four E cores beside it, no second threads. (Core Ultra 200V)
    #[test]
    fn lunar_lake_s_e_cores_are_for_idling() {
        let mut intel = Machine::new().with("cpu_core/cpus", "0-3\n").with("cpu_atom/cpus", "4-7\n");
        for thread in 0..8 {
            intel = intel.core(&[thread]);
            if thread < 4 {
                intel = intel.with(&format!("system/cpu/cpu{thread}/cache/index3/size"), "12288K\n");
            }
        }
        assert_eq!(intel.cores(8), fast(&[0, 1, 2, 3]));
    }

    /// Twelve cores in three clusters, of one capacity, no third cache. (Snapdragon X)
    #[test]
    fn clusters_of_equal_cores_are_equal() {
        let mut arm = Machine::new();
        for core in 0..12 {
            let (capacity, cluster) = (format!("system/cpu/cpu{core}/cpu_capacity"), core / 4 * 4);
            let siblings = format!("system/cpu/cpu{core}/topology/cluster_cpus_list");
            arm = arm.core(&[core]).with(&capacity, "1024\n").with(&siblings, &format!("{cluster}-{}\n", cluster + 3));
        }
        assert_eq!(arm.cores(12), fast(&(0..12).collect::<Vec<_>>()), "a cluster is no core");
    }

    /// One core is the largest, five are nearly as large, two small. (Snapdragon 8 Gen 3's like)
    #[test]
    fn one_prime_core_does_not_make_the_others_slow_that_are_nearly_as_fast() {
        let mut phone = Machine::new();
        for (core, capacity) in [330, 330, 850, 850, 850, 900, 900, 1024].iter().enumerate() {
            phone = phone.core(&[core]).with(&format!("system/cpu/cpu{core}/cpu_capacity"), &format!("{capacity}\n"));
        }
        assert_eq!(phone.cores(8), fast(&[2, 3, 4, 5, 6, 7]));
    }

    /// The small cores have the small numbers. (RK3588's and phones' like)
    #[test]
    fn arm_s_cores_are_told_apart_by_their_capacity() {
        let mut arm = Machine::new();
        for (core, capacity) in [250, 250, 690, 690, 1024].iter().enumerate() {
            arm = arm.with(&format!("system/cpu/cpu{core}/cpu_capacity"), &format!("{capacity}\n"));
        }
        assert_eq!(arm.cores(5), [(4, CoreKind::Fast), (2, CoreKind::Slow), (3, CoreKind::Slow)]);
        let speeds = cores_of(&[CoreId(2), CoreId(4)], arm.0.path()).into_iter().map(|core| core.speed);
        assert_eq!(speeds.collect::<Vec<_>>(), [Speed::FULL, Speed(673)]);
    }

    #[test]
    fn what_is_not_told_or_makes_no_sense_counts_as_equal() {
        assert_eq!(Machine::new().cores(3), fast(&[0, 1, 2]));
        let odd = Machine::new()
            .with("cpu_atom/cpus", "1-x")
            .with("system/cpu/cpu0/topology/core_cpus_list", "0-99999999999")
            .with("system/cpu/cpu1/cpu_capacity", "fast");
        assert_eq!(odd.cores(2), fast(&[0, 1]));
    }
}
