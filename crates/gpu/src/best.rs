//! The best logits of rows, found where the logits are: what comes back is a few tokens in place of a whole vocabulary.
//!
//! Two launches: blocks of a row's logits bring their best, and of those the row's are chosen. Which ones, and in which order, is
//! [`duet_model::forward::BestOfRow`]'s to say; there is nothing to round, so they are the same on every adapter.

use crate::error::GpuError;
use crate::nodes::{Launcher, whole};
use crate::prepared::Groups;
use crate::recording::Recording;
use crate::shader::BEST;
use duet_model::forward::BestOfRow;
use duet_types::TokenId;

/// The most that are looked for of a row: what people draw from is rarely more, and each one takes a round.
pub(crate) const BEST_MAX: usize = 64;

/// Logits of a workgroup, a few of each thread.
const BLOCK: usize = 4096;
/// Words of a logit and its token.
const PAIR: usize = 2;

/// Blocks of a row.
pub(crate) fn blocks(vocabulary: usize) -> usize {
    vocabulary.div_ceil(BLOCK)
}

/// Words of the best of so many blocks.
pub(crate) fn words(blocks: usize) -> usize {
    blocks * BEST_MAX * PAIR
}

impl Launcher<'_> {
    /// The best logits of rows whose logits there are, at most [`BEST_MAX`] of each.
    pub(crate) fn best(
        &self,
        to: &mut Recording<'_>,
        vocabulary: usize,
        rows: usize,
        count: usize,
    ) -> Result<(), GpuError> {
        let (room, blocks, count) = (self.room, blocks(vocabulary), count.min(BEST_MAX));
        let of_logits = self.gpu.pipeline(&BEST, 1, &[("LOGITS", 1)])?;
        let told = [vocabulary, BLOCK, blocks, count].map(|number| number as u32);
        to.launch(&of_logits, &[&room.logits, &room.best_of_blocks].map(whole), &told, Groups(blocks, rows));
        let of_pairs = self.gpu.pipeline(&BEST, 1, &[("LOGITS", 0)])?;
        let all = blocks * count;
        let told = [all, all, 1, count].map(|number| number as u32);
        to.launch(&of_pairs, &[&room.best_of_blocks, &room.best].map(whole), &told, Groups(1, rows));
        Ok(())
    }
}

/// Words of the best of rows, at most [`BEST_MAX`] of each.
pub(crate) fn words_of(rows: usize, count: usize) -> usize {
    rows * count.min(BEST_MAX) * PAIR
}

/// Of each row, what was found of `count` each; where there are fewer, the last ones have no token.
pub(crate) fn of_rows(words: &[f32], count: usize) -> impl Iterator<Item = BestOfRow> {
    words.chunks_exact((count * PAIR).max(PAIR)).map(|row| {
        let pairs = row.as_chunks::<PAIR>().0.iter().map(|&[logit, token]| (TokenId(token.to_bits()), logit));
        pairs.take_while(|&(token, _)| token != NO_TOKEN).collect()
    })
}

const NO_TOKEN: TokenId = TokenId(u32::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;
    use crate::products::Method;
    use crate::room::{HEAD_ROWS, Room, Widths};
    use crate::self_test::{Numbers, opened};
    use crate::staging::Staging;

    /// The rule, written plainly.
    fn expected(logits: &[f32], count: usize) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        all.retain(|(_, logit)| *logit > f32::NEG_INFINITY);
        // A stable sort: equal ones stay in the order of their tokens.
        all.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap());
        all.iter().take(count).map(|&(token, logit)| (token, logit.to_bits())).collect()
    }

    fn found(gpu: &Gpu, logits: &[f32], vocabulary: usize, count: usize) -> Vec<Vec<(u32, u32)>> {
        let widths = Widths { hidden: 32, qkv: 0, queries: 0, ffn: 0, vocabulary, has_floats: false, experts: None };
        let room = Room::new(gpu, widths, 1).unwrap();
        gpu.queue.write_buffer(&room.logits, 0, bytemuck::cast_slice(logits));
        let launcher = Launcher { gpu, room: &room, method: Method::FIRST };
        let mut recording = Recording::new(gpu);
        let rows = logits.len() / vocabulary;
        launcher.best(&mut recording, vocabulary, rows, count).unwrap();
        let mut words = vec![0.0; words_of(rows, count)];
        Staging::default().read_after(gpu, recording, &[(&room.best, words.len())], &mut words).unwrap();
        let bits = |row: BestOfRow| row.into_iter().map(|(token, logit)| (token.0, logit.to_bits())).collect();
        of_rows(&words, count).map(bits).collect()
    }

    fn check(gpu: &Gpu, logits: &[f32], vocabulary: usize, count: usize) {
        let found = found(gpu, logits, vocabulary, count);
        assert_eq!(found.len(), logits.len() / vocabulary);
        for (row, (logits, found)) in logits.chunks_exact(vocabulary).zip(found).enumerate() {
            assert_eq!(found, expected(logits, count), "row {row} of {vocabulary} logits, {count} of them");
        }
    }

    /// Few distinct values, so that there are ties at every border; and what is no number, or none that can be chosen.
    #[test]
    fn the_best_are_those_that_a_full_sort_finds() {
        let Some(gpu) = opened() else { return };
        let mut numbers = Numbers(11);
        let strange = [f32::NAN, -f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0, f32::MIN, 1e-40, -1e-40];
        for (vocabulary, rows, count) in [
            (1, 1, 1),
            (7, 3, 4),
            (127, HEAD_ROWS, 20),
            (BLOCK, 2, BEST_MAX),
            (BLOCK + 1, 3, 4),
            (10_007, 5, 1),
            (10_007, 2, BEST_MAX),
            (151_936, 2, 4),
        ] {
            for distinct in [2, 40, 1 << 20] {
                let logit = |numbers: &mut Numbers| match numbers.below(50) {
                    at @ 0..9 => strange[at as usize],
                    _ => numbers.below(distinct) as f32 / 8.0 - 1.0,
                };
                let logits: Vec<f32> = (0..rows * vocabulary).map(|_| logit(&mut numbers)).collect();
                check(&gpu, &logits, vocabulary, count);
            }
        }
    }

    #[test]
    fn where_nothing_can_be_chosen_nothing_is_found() {
        let Some(gpu) = opened() else { return };
        let mut logits = vec![f32::NAN; 2 * 5000];
        logits[4999] = f32::NEG_INFINITY;
        // One of the second row's.
        logits[9999] = -3.0;
        check(&gpu, &logits, 5000, 4);
    }

    #[test]
    fn both_zeros_are_equal_and_come_back_as_they_are() {
        let Some(gpu) = opened() else { return };
        let found = found(&gpu, &[-0.0, 0.0, -1.0, 0.0, -0.0], 5, 4);
        let zeros = [(0, (-0.0_f32).to_bits()), (1, 0), (3, 0), (4, (-0.0_f32).to_bits())];
        assert_eq!(found, [zeros]);
    }
}
