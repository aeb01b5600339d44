//! A step's things, dealt out while it runs: each member's own share first, then what is left of the others'.

use super::Worker;
use std::ops::Range;

/// What a member computes of a step, piece by piece ([`Worker::pieces`]).
#[derive(Debug)]
pub struct Pieces<'a> {
    worker: Worker<'a>,
    items: usize,
    least: usize,
    /// How many shares are used up, from the member's own on.
    done: usize,
}

/// Pieces that a share has: a member that falls behind keeps the others waiting for this part of its time at most. More of
/// them cost more than waiting does, where steps take some microseconds.
const PIECES: usize = 8;

impl<'a> Pieces<'a> {
    pub(super) fn new(worker: Worker<'a>, items: usize, least: usize) -> Self {
        Self { worker, items, least: least.max(1), done: 0 }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let size = self.worker.size();
        while self.done < size {
            let rank = (self.worker.rank() + self.done) % size;
            let share = self.worker.share_of(rank, self.items);
            if size == 1 {
                self.done = 1;
                return (!share.is_empty()).then_some(share);
            }
            let piece = (share.len() / PIECES).next_multiple_of(self.least).max(self.least);
            let [piece, len] = [piece, share.len()].map(|things| u32::try_from(things).expect("a step has few things"));
            if let Some(first) = self.worker.barrier.take(rank, self.worker.call, piece, len) {
                return Some(share.start + first as usize..share.start + len.min(first.saturating_add(piece)) as usize);
            }
            self.done += 1;
        }
        None
    }
}
