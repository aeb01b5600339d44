//! In-context distribution calibration: drafts from what the *model* would say, where the context says something else.
//! (CoordGen §3.3, sd.npu §4.3)
//!
//! *Sample*: of the rows of logits that a pass computes anyway, the likeliest few successors are kept, under the tokens
//! that they follow. *Search*: a successor is looked up in its turn, so a draft goes depth-first through what the model
//! preferred at each token's last occurrence: `Clinton → arrived → at`, though the text says `Clinton's security
//! detail has arrived at`. The tree is not built in advance: it is walked when it is wanted.
//!
//! Ours: rows of decode and verify passes calibrate as well as those of the prompt (the answer's own successors are what
//! comes next most often), those of a draft as far as it was right; and successors are kept under two tokens as well as under one,
//! of which the longer goes first.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place};
use crate::successors::Successors;
use duet_types::TokenId;
use hashbrown::HashTable;

/// Drafts from the model's preferences.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    pairs: Table,
    singles: Table,
    end: Place,
}

/// Successors under one or two tokens, the latest of each.
#[derive(Clone, Debug, Default)]
struct Table {
    entries: Vec<(u64, Successors)>,
    index: HashTable<u32>,
}

impl Table {
    fn get(&self, key: u64) -> Option<&Successors> {
        let entry = self.index.find(hash(key), |&entry| self.entries[entry as usize].0 == key)?;
        Some(&self.entries[*entry as usize].1)
    }

    fn set(&mut self, key: u64, successors: &Successors) {
        let entries = &mut self.entries;
        if let Some(&entry) = self.index.find(hash(key), |&entry| entries[entry as usize].0 == key) {
            entries[entry as usize].1 = *successors;
            return;
        }
        entries.push((key, *successors));
        let rehash = |&entry: &u32| hash(entries[entry as usize].0);
        self.index.insert_unique(hash(key), entries.len() as u32 - 1, rehash);
    }

    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u64, Successors)>() + self.index.allocation_size()
    }
}

fn hash(key: u64) -> u64 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Two tokens as one key.
pub(crate) fn pair(before: u32, token: u32) -> u64 {
    u64::from(before) << 32 | u64::from(token)
}

impl Drafter for Calibration {
    fn kind(&self) -> Kind {
        Kind::Calibrated
    }

    fn observe(&mut self, token: TokenId) {
        self.end = self.step(self.end, token);
    }

    fn end(&self) -> Place {
        self.end
    }

    /// The last two tokens.
    fn step(&self, Place(_, before): Place, token: TokenId) -> Place {
        Place(before, token.0)
    }

    fn propose(&self, Place(before, token): Place, candidates: &mut Vec<Candidate>) {
        propose(self.pairs.get(pair(before, token)), self.singles.get(u64::from(token)), candidates);
    }

    fn calibrate(&mut self, [before, token]: [TokenId; 2], successors: &Successors) {
        self.pairs.set(pair(before.0, token.0), successors);
        self.singles.set(u64::from(token.0), successors);
    }

    fn bytes(&self) -> usize {
        self.pairs.bytes() + self.singles.bytes()
    }
}

/// The successors of a place's last two tokens, then those of the last one alone.
pub(crate) fn propose(of_two: Option<&Successors>, of_one: Option<&Successors>, candidates: &mut Vec<Candidate>) {
    let begin = candidates.len();
    for (successors, level) in [(of_two, 0), (of_one, LEVEL)] {
        let Some(successors) = successors else { continue };
        for (rank, (token, below)) in successors.iter().enumerate() {
            if candidates[begin..].iter().all(|candidate| candidate.token != token) {
                candidates.push(Candidate { token, evidence: evidence(level, rank, below, successors) });
            }
        }
    }
}

/// Evidence of one token comes after that of two.
const LEVEL: u8 = 16;

/// The first by its lead over the second, the others by how far they are behind.
fn evidence(level: u8, rank: usize, below: f32, successors: &Successors) -> Evidence {
    let lead = successors.iter().nth(1).map_or(f32::INFINITY, |(_, below)| below);
    let grade = |gap: f32| match gap {
        gap if gap < 0.5 => 0,
        gap if gap < 1.0 => 1,
        gap if gap < 2.0 => 2,
        gap if gap < 4.0 => 3,
        _ => 4,
    };
    let within = match rank {
        0 => grade(lead),
        1 => 5 + grade(below),
        _ => 10 + grade(below),
    };
    Evidence(1 + level + within)
}
