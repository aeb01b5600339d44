//! In-context distribution calibration: drafts from what the *model* would say, where the context says something else.
//! (CoordGen §3.3, sd.npu §4.3)
//!
//! *Sample*: of the rows of logits that a pass computes anyway, the likeliest few successors are kept, under the tokens
//! that they follow. *Search*: a successor is looked up in its turn, so a draft goes depth-first through what the model
//! preferred at each token's last occurrence: `Clinton → arrived → at`, though the text says `Clinton's security
//! detail has arrived at`.
//!
//! Ours: rows of decode and verify passes calibrate as well as those of the prompt (the answer's own successors are what
//! comes next most often), those of a draft as far as it was right; and successors are kept under two tokens as well as under one,
//! of which the longer goes first.

use crate::drafter::Kind;
use crate::preferences::{Preferences, Remembers, pair};
use crate::successors::Successors;
use duet_types::TokenId;
use hashbrown::HashTable;

/// Drafts from the model's preferences in the request.
pub(crate) type Calibration = Preferences<Calibrated>;

/// What the request's rows said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibrated {
    pairs: Table,
    singles: Table,
}

impl Remembers for Calibrated {
    const KIND: Kind = Kind::Calibrated;

    fn successors(&self, before: u32, token: u32) -> [Option<&Successors>; 2] {
        [self.pairs.get(pair(before, token)), self.singles.get(u64::from(token))]
    }

    fn learn(&mut self, [before, token]: [TokenId; 2], successors: &Successors) {
        self.pairs.set(pair(before.0, token.0), successors);
        self.singles.set(u64::from(token.0), successors);
    }

    fn bytes(&self) -> usize {
        self.pairs.bytes() + self.singles.bytes()
    }
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
