//! Windows' records: cores with their class of efficiency, and caches with the hardware threads that share them
//! (`GetLogicalProcessorInformationEx`).
//!
//! A higher class is a faster core. Two threads of a core are one record with two bits. Of three classes the lowest is for
//! idling, and so are slow cores without a third cache where others have one (Intel's LP-E cores). Numbers of hardware threads
//! are those within their group of at most 64, plus 64 for each group before.

use super::{Core, CoreId, CoreKind, Speed, fastest_first};

/// Hardware threads of a group.
pub(crate) const GROUP: usize = 64;

/// `RelationProcessorCore`.
const CORE: u32 = 0;
/// `RelationCache`.
const CACHE: u32 = 2;

/// The cores in records one behind another, of each one hardware thread that `allowed` takes. Records of other kinds are
/// passed over; what is cut off or makes no sense ends the list.
pub(crate) fn cores_of(records: &[u8], allowed: impl Fn(CoreId) -> bool) -> Vec<Core> {
    let (mut cores, mut with_third_cache) = (Vec::new(), Vec::new());
    for record in Records(records) {
        match record.relation {
            CORE => {
                let class = record.bytes.get(9).copied().unwrap_or(0);
                if let Some(id) = record.threads(30, 32).into_iter().find(|id| allowed(*id)) {
                    cores.push((id, class));
                }
            }
            CACHE if record.bytes.get(8) == Some(&3) => with_third_cache.extend(record.threads(38, 40)),
            _ => {}
        }
    }
    let mut classes: Vec<u8> = cores.iter().map(|(_, class)| *class).collect();
    classes.sort_unstable();
    classes.dedup();
    let apart = |id: CoreId| !with_third_cache.is_empty() && !with_third_cache.contains(&id);
    let kind = |id: CoreId, class: u8| match classes.as_slice() {
        [.., fastest] if class == *fastest => CoreKind::Fast,
        [lowest, _, _, ..] if class == *lowest => CoreKind::LowPower,
        _ if apart(id) => CoreKind::LowPower,
        _ => CoreKind::Slow,
    };
    let core = |(id, class): (CoreId, u8)| match kind(id, class) {
        CoreKind::Fast => Core::fast(id),
        kind => Core { id, kind, speed: Speed::OF_ATOM },
    };
    fastest_first(cores.into_iter().map(core).collect())
}

/// One record: what it is about, and its bytes, headed by that and their number.
struct Record<'a> {
    relation: u32,
    bytes: &'a [u8],
}

impl Record<'_> {
    /// The hardware threads that the record is about: `u16` groups at `count`, of each a mask, its number and some padding, 16
    /// bytes, from `masks` on. Older systems wrote one mask for a cache, and zero for the number.
    fn threads(&self, count: usize, masks: usize) -> Vec<CoreId> {
        let count =
            self.bytes.get(count..count + 2).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
        let mut threads = Vec::new();
        for affinity in self.bytes.get(masks..).unwrap_or_default().chunks_exact(16).take(count.max(1)) {
            let (mask, rest) = affinity.split_first_chunk::<8>().unwrap_or((&[0; 8], &[0; 8]));
            let group = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
            let mask = u64::from_le_bytes(*mask);
            threads.extend((0..GROUP).filter(|bit| mask >> bit & 1 == 1).map(|bit| CoreId(group * GROUP + bit)));
        }
        threads
    }
}

/// Records one behind another.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let number = |at: usize| Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?));
        let (relation, length) = (number(0)?, number(4)? as usize);
        if length < 8 {
            return None;
        }
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Record { relation, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a core, as the system's headers lay it out.
    fn core(class: u8, group: u16, mask: u64) -> Vec<u8> {
        let mut record = vec![0; 48];
        record[0..4].copy_from_slice(&CORE.to_le_bytes());
        record[4..8].copy_from_slice(&48_u32.to_le_bytes());
        // LTP_PC_SMT.
        record[8] = u8::from(mask.count_ones() > 1);
        record[9] = class;
        record[30..32].copy_from_slice(&1_u16.to_le_bytes());
        record[32..40].copy_from_slice(&mask.to_le_bytes());
        record[40..42].copy_from_slice(&group.to_le_bytes());
        record
    }

    /// A record of a cache, with so many groups; older systems say none.
    fn cache(level: u8, groups: u16, mask: u64) -> Vec<u8> {
        let mut record = vec![0; 56];
        record[0..4].copy_from_slice(&CACHE.to_le_bytes());
        record[4..8].copy_from_slice(&56_u32.to_le_bytes());
        record[8] = level;
        record[38..40].copy_from_slice(&groups.to_le_bytes());
        record[40..48].copy_from_slice(&mask.to_le_bytes());
        record
    }

    fn cores(records: &[Vec<u8>]) -> Vec<(usize, CoreKind)> {
        cores_of(&records.concat(), |_| true).iter().map(|core| (core.id.0, core.kind)).collect()
    }

    fn all(ids: impl IntoIterator<Item = usize>, kind: CoreKind) -> Vec<(usize, CoreKind)> {
        ids.into_iter().map(|id| (id, kind)).collect()
    }

    #[test]
    fn of_two_threads_of_a_core_one_counts() {
        let ryzen: Vec<_> = (0..8).map(|index| core(0, 0, 3 << (2 * index))).collect();
        assert_eq!(cores(&ryzen), all((0..16).step_by(2), CoreKind::Fast));
        let bound = cores_of(&ryzen.concat(), |id| id.0 == 1 || id.0 >= 14);
        assert_eq!(bound.iter().map(|core| core.id.0).collect::<Vec<_>>(), [1, 14]);
    }

    /// Four P cores of two threads, eight E cores, two LP-E cores beside the others' third cache. (Core Ultra 5 125H)
    #[test]
    fn e_cores_come_after_p_cores_and_lp_e_cores_are_left_alone() {
        let p_and_e = || {
            let mut records = vec![cache(2, 1, 3), cache(3, 1, 0xFFFF)];
            records.extend((0..8).map(|index| core(0, 0, 1 << (8 + index))));
            records.extend((0..4).map(|index| core(1, 0, 3 << (2 * index))));
            records
        };
        let expected = [all([0, 2, 4, 6], CoreKind::Fast), all(8..16, CoreKind::Slow)].concat();
        let mut same_class = p_and_e();
        same_class.extend([core(0, 0, 1 << 16), core(0, 0, 1 << 17)]);
        assert_eq!(cores(&same_class), expected);
        // The same on a system that gives them a class of their own, and tells of no third cache.
        let mut three: Vec<_> = (0..2).map(|index| core(0, 0, 1 << (16 + index))).collect();
        three.extend((0..8).map(|index| core(1, 0, 1 << (8 + index))));
        three.extend((0..4).map(|index| core(2, 0, 3 << (2 * index))));
        assert_eq!(cores(&three), expected);
    }

    /// Four P cores with a third cache and four E cores without one, all without second threads. (Core Ultra 200V)
    #[test]
    fn lunar_lake_s_e_cores_share_no_cache_with_the_others() {
        let mut lunar = vec![cache(3, 0, 0x0F)];
        lunar.extend((0..4).map(|index| core(1, 0, 1 << index)));
        lunar.extend((4..8).map(|index| core(0, 0, 1 << index)));
        assert_eq!(cores(&lunar), all(0..4, CoreKind::Fast));
    }

    /// Twelve cores of one class without a third cache. (Snapdragon X)
    #[test]
    fn cores_of_one_class_are_equal() {
        let snapdragon: Vec<_> = (0..12).map(|index| core(0, 0, 1 << index)).collect();
        assert_eq!(cores(&snapdragon), all(0..12, CoreKind::Fast));
    }

    #[test]
    fn groups_are_counted_through() {
        let threadripper: Vec<_> = (0..96).map(|index| core(0, index / 32, 3 << (index % 32 * 2))).collect();
        let ids: Vec<_> = cores(&threadripper).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, (0..192).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_cut_off_or_makes_no_sense_ends_the_list() {
        let whole = [core(0, 0, 1), core(0, 0, 2)].concat();
        for length in 0..whole.len() {
            assert_eq!(cores_of(&whole[..length], |_| true).len(), length / 48, "{length}");
        }
        assert!(cores_of(&[0; 64], |_| true).is_empty(), "a record of no length");
        let mut short = core(0, 0, 1);
        short[4] = 8;
        assert!(cores_of(&short, |_| true).is_empty(), "a record that ends before its masks");
        assert_eq!(cores(&[core(0, 0, 0), core(0, 0, 4)]), all([2], CoreKind::Fast), "a core without threads");
    }
}
