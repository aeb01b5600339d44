//! How products of few rows fetch the weights that they read, which no cache holds.
//!
//! Such a product waits for its weights. Which cache they should be fetched to, and whether a tile should read its two panels one
//! by one or side by side, differs from processor to processor, and no specification says it: so it is tried on a model's own
//! weights, where that is worth the time, and kept ([`ReadAhead::tried`]; an engine's profile does both).
//!
//! **Invariant:** no bit depends on it.

pub use crate::fetch_to::FetchTo;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// One of the ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Where weights of quants are fetched to by a tile that has them for itself, and keys and values by attention.
    pub to: FetchTo,
    /// In which order a tile of few rows reads its panels.
    pub panels: Panels,
}

/// In which order a tile of few rows reads its panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panels {
    /// One whole, then the next: one stream through memory.
    OneByOne,
    /// Both at once.
    SideBySide,
}

impl ReadAhead {
    /// All there are.
    pub const ALL: [Self; 4] = [
        Self { to: FetchTo::FirstCache, panels: Panels::OneByOne },
        Self { to: FetchTo::SecondCache, panels: Panels::OneByOne },
        Self { to: FetchTo::FirstCache, panels: Panels::SideBySide },
        Self { to: FetchTo::SecondCache, panels: Panels::SideBySide },
    ];

    /// What is known of this processor, or assumed.
    ///
    /// Zen 4's first cache waits for few lines at a time (24: by their latency some 12 GB/s a core, which is what was seen), its
    /// second for more: products of one to six rows that fetched to the first were 10 to 30 % slower. With Zen 5 it is the other
    /// way round: to the first, one row is 7 to 16 % faster while memory is fast. Others are taken to be like Zen 4. Panels are
    /// read one by one, which was measured on Zen 5 alone. (`examples/reading`)
    #[must_use]
    pub fn of_processor() -> Self {
        let to = if is_zen_5_or_later() { FetchTo::FirstCache } else { FetchTo::SecondCache };
        Self { to, panels: Panels::OneByOne }
    }

    /// The one that kernels follow.
    #[must_use]
    #[inline(always)]
    pub fn current() -> Self {
        Self::ALL.get(usize::from(CURRENT.load(Ordering::Relaxed))).copied().unwrap_or_else(Self::begin)
    }

    /// Makes all kernels of the process follow it, soon also those under way: of several engines the one that started last decides.
    pub fn choose(self) {
        // It orders nothing else: whoever still sees the one before reads the same.
        CURRENT.store(self.index(), Ordering::Relaxed);
    }

    /// The fastest way of doing something, by how many seconds `time` says that it takes. Ways take turns, as often as a fifth
    /// of a second allows and seven times at least, and this processor's own is kept unless another one is clearly faster, so
    /// that chance seldom changes it. Leaves it chosen. One trial runs at a time.
    ///
    /// # Errors
    /// The first of `time`'s; then the processor's own is chosen.
    pub fn tried<E>(mut time: impl FnMut() -> Result<f64, E>) -> Result<Self, E> {
        static TRIAL: Mutex<()> = Mutex::new(());
        let _alone = TRIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Self::of_processor();
        let rounds = Self::rounds(own, &mut time).inspect_err(|_| own.choose())?;
        let fastest = Self::ALL[fastest(&rounds, usize::from(own.index()))];
        fastest.choose();
        Ok(fastest)
    }

    /// How long each way takes, again and again.
    fn rounds<E>(own: Self, time: &mut impl FnMut() -> Result<f64, E>) -> Result<Vec<[f64; Self::ALL.len()]>, E> {
        own.choose();
        // What only the first does is not counted.
        time()?;
        let mut rounds = Vec::new();
        for round in 0..turns(time()?) {
            let mut times = [0.0; Self::ALL.len()];
            for turn in 0..times.len() {
                // To and fro, so that what one leaves in caches is not always there for the same other one.
                let way = if round % 2 == 0 { turn } else { times.len() - 1 - turn };
                Self::ALL[way].choose();
                times[way] = time()?;
            }
            rounds.push(times);
        }
        Ok(rounds)
    }

    fn index(self) -> u8 {
        let index = Self::ALL.iter().position(|way| *way == self);
        index.map_or(0, |index| index as u8)
    }

    #[cold]
    fn begin() -> Self {
        let own = Self::of_processor();
        // Unless somebody chose meanwhile.
        let _ = CURRENT.compare_exchange(NONE, own.index(), Ordering::Relaxed, Ordering::Relaxed);
        own
    }
}

/// Which of [`ReadAhead::ALL`] kernels follow. The process has one, as it has one processor.
static CURRENT: AtomicU8 = AtomicU8::new(NONE);

/// Nobody has asked yet.
const NONE: u8 = u8::MAX;

/// How often each way has its turn, where one takes so many seconds.
fn turns(seconds: f64) -> usize {
    const ALLOWED: f64 = 0.2;
    (ALLOWED / (seconds * ReadAhead::ALL.len() as f64)).clamp(7.0, 31.0) as usize
}

/// How long another way may take beside the processor's own to count as clearly faster.
const CLEARLY: f64 = 0.97;

/// Which of several ways is clearly faster than `own`, or `own`, by times in turns.
fn fastest<const N: usize>(rounds: &[[f64; N]], own: usize) -> usize {
    let beside_own = |way: usize| {
        let mut ratios: Vec<f64> = rounds.iter().map(|times| times[way] / times[own]).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(1.0)
    };
    let best = (0..N).map(|way| (way, beside_own(way))).min_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|(_, ratio)| *ratio < CLEARLY).map_or(own, |(way, _)| way)
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let panels = match self.panels {
            Panels::OneByOne => "panels one by one",
            Panels::SideBySide => "panels side by side",
        };
        let to = match self.to {
            FetchTo::FirstCache => "to the first cache",
            FetchTo::SecondCache => "to the second cache",
        };
        write!(f, "{panels}, {to}")
    }
}

/// A text that names no way of reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no way of reading weights: {0:?}")]
pub struct NoReadAhead(String);

impl FromStr for ReadAhead {
    type Err = NoReadAhead;

    /// What [`Self`] is displayed as.
    fn from_str(text: &str) -> Result<Self, NoReadAhead> {
        Self::ALL.into_iter().find(|way| way.to_string() == text).ok_or_else(|| NoReadAhead(text.to_owned()))
    }
}

/// Whether this is a processor of AMD's of family 1Ah or a later one.
fn is_zen_5_or_later() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        let vendor = __cpuid(0);
        let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        is_amd_since(ZEN_5, vendor.as_flattened(), __cpuid(1).eax)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The family of Zen 5.
#[cfg(target_arch = "x86_64")]
const ZEN_5: u32 = 0x1A;

/// Whether what `cpuid` calls a processor's vendor and signature are AMD's, of this family or a later one.
#[cfg(target_arch = "x86_64")]
fn is_amd_since(first: u32, vendor: &[u8], signature: u32) -> bool {
    vendor == b"AuthenticAMD" && family(signature) >= first
}

/// The family that `cpuid` names in EAX of leaf 1. (AMD APM volume 3, CPUID Fn0000_0001)
#[cfg(target_arch = "x86_64")]
fn family(signature: u32) -> u32 {
    let (base, extended) = (signature >> 8 & 0xF, signature >> 20 & 0xFF);
    if base == 0xF { base + extended } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn processors_are_told_apart() {
        // Zen 4 (Genoa), Zen 5 (Turin), Zen (Naples), Golden Cove.
        let families = [0x00A1_0F11, 0x00B0_0F21, 0x0080_0F12, 0x0009_0672].map(family);
        assert_eq!(families, [0x19, 0x1A, 0x17, 6]);
        let zen_5 = |vendor: &[u8; 12], signature| is_amd_since(ZEN_5, vendor, signature);
        assert!(zen_5(b"AuthenticAMD", 0x00B0_0F21) && !zen_5(b"AuthenticAMD", 0x00A1_0F11));
        assert!(!zen_5(b"GenuineIntel", 0x00B0_0F21) && !zen_5(b"HygonGenuine", 0x00B0_0F21));
    }

    #[test]
    fn each_way_is_named_and_found_by_its_name() {
        for way in ReadAhead::ALL {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert!("panels".parse::<ReadAhead>().is_err());
    }

    #[test]
    fn the_processors_own_way_stays_unless_another_is_clearly_faster() {
        assert_eq!(fastest(&[[1.0, 0.98, 2.0]; 7], 0), 0);
        assert_eq!(fastest(&[[1.0, 0.9, 2.0]; 7], 0), 1);
        assert_eq!(fastest(&[[1.0, 0.9, 0.8]; 7], 0), 2);
        assert_eq!(fastest(&[[1.0, 0.9, 0.8]; 7], 2), 2);
        // A machine that becomes slower from round to round, and one round that somebody disturbed.
        let drifting = [1.0, 2.0, 3.0, 4.0, 5.0].map(|slower| [slower, 0.9 * slower]);
        assert_eq!(fastest(&drifting, 0), 1);
        assert_eq!(fastest(&[[1.0, 1.0], [9.0, 1.0], [1.0, 1.0]], 0), 0);
        assert_eq!(fastest::<2>(&[], 1), 1);
        assert_eq!(fastest(&[[0.0, 0.0]; 3], 1), 1);
    }

    proptest! {
        /// What is chosen is never slower than the processor's own in more than half of the rounds.
        #[test]
        fn nothing_slower_is_chosen(
            rounds in prop::collection::vec(prop::array::uniform4(0.1_f64..10.0), 0..9),
            own in 0_usize..4,
        ) {
            let chosen = fastest(&rounds, own);
            let slower = rounds.iter().filter(|times| times[chosen] > times[own]).count();
            prop_assert!(2 * slower <= rounds.len());
        }
    }

    #[test]
    fn what_is_quick_has_more_turns() {
        let all = [0.0, 1e-4, 0.002, 0.006, 0.02, f64::INFINITY].map(turns);
        assert_eq!(all, [31, 31, 25, 8, 7, 7]);
    }

    /// All that chooses is in one test, since a process has one choice.
    #[test]
    fn kernels_follow_what_is_chosen_and_a_trial_leaves_what_it_found() {
        for way in ReadAhead::ALL {
            way.choose();
            assert_eq!(ReadAhead::current(), way);
        }
        let mut calls = 0;
        let found = ReadAhead::tried(|| {
            calls += 1;
            Ok::<f64, ()>(if ReadAhead::current() == ReadAhead::ALL[2] { 0.5 } else { 1.0 })
        });
        assert_eq!((found, calls), (Ok(ReadAhead::ALL[2]), 2 + 7 * ReadAhead::ALL.len()));
        assert_eq!(ReadAhead::current(), ReadAhead::ALL[2]);
        let mut left = 10;
        let failed = ReadAhead::tried(|| {
            left -= 1;
            if left > 0 { Ok(1.0) } else { Err("a pass failed") }
        });
        assert_eq!((failed, ReadAhead::current()), (Err("a pass failed"), ReadAhead::of_processor()));
    }
}
