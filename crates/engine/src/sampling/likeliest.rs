//! The likeliest tokens of every row of a pass, found by the crew together.
//!
//! Each member looks at the part of the vocabulary whose logits it has just computed: they are in its own caches, and
//! fetching them from another core takes longer than looking at them.

use super::candidates::{Candidate, better_first, top};
use duet_kernels::crew::Crew;
use std::sync::{Mutex, PoisonError};

/// For each row of `vocabulary` logits its `count` likeliest tokens, likeliest first, whoever looks.
#[must_use]
pub fn likeliest(logits: &[f32], vocabulary: usize, count: usize, crew: &dyn Crew) -> Vec<Vec<Candidate>> {
    let parts: Vec<Mutex<Vec<Vec<Candidate>>>> = (0..crew.size()).map(|_| Mutex::default()).collect();
    crew.run(&|worker| {
        let share = worker.share(vocabulary);
        let of = |row: &[f32]| {
            let mut candidates = Vec::new();
            top(&row[share.clone()], count, &mut candidates);
            candidates.iter_mut().for_each(|(token, _)| *token += share.start as u32);
            candidates
        };
        let part = logits.chunks_exact(vocabulary).map(of).collect();
        *parts[worker.rank()].lock().unwrap_or_else(PoisonError::into_inner) = part;
    });
    let mut parts = parts.into_iter().map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner));
    let mut rows = parts.next().unwrap_or_default();
    for part in parts {
        rows.iter_mut().zip(part).for_each(|(row, part)| row.extend(part));
    }
    for row in &mut rows {
        row.sort_unstable_by(better_first);
        row.truncate(count);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_kernels::crew::Scoped;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_does_not_matter_who_looks(values in prop::collection::vec(0..20_u8, 0..600), count in 0..5_usize, threads in 1..4_usize) {
            const VOCABULARY: usize = 60;
            let logits: Vec<f32> = values.iter().map(|&value| f32::from(value)).collect();
            let found = likeliest(&logits, VOCABULARY, count, &Scoped { threads });
            prop_assert_eq!(found.len(), logits.len() / VOCABULARY);
            for (row, found) in logits.chunks_exact(VOCABULARY).zip(found) {
                let mut alone = Vec::new();
                top(row, count, &mut alone);
                prop_assert_eq!(found, alone);
            }
        }
    }
}
