//! The closing mark of a bounded reasoning as a guide of drafts: once it is written for the model, what is left of it must
//! come, and is verified in one pass.

use duet_speculate::Guide;
use duet_types::TokenId;

/// Drafts a run that must come, and what another guide lets follow.
#[derive(Debug)]
pub(crate) struct ClosingGuide<'a, G: ?Sized> {
    /// What must come, from the root of the draft on; often nothing.
    run: &'a [TokenId],
    /// It has the last word: where it lets a token of the run not come, none is forced.
    other: &'a mut G,
}

impl<'a, G: Guide + ?Sized> ClosingGuide<'a, G> {
    pub(crate) fn new(run: &'a [TokenId], other: &'a mut G) -> Self {
        Self { run, other }
    }
}

impl<G: Guide + ?Sized> Guide for ClosingGuide<'_, G> {
    fn rule(&mut self, path: &dyn Fn() -> Vec<TokenId>, chances: &mut Vec<(TokenId, f32)>) {
        if !self.run.is_empty()
            && let Some([next, ..]) = self.run.strip_prefix(path().as_slice())
        {
            chances.clear();
            chances.push((*next, 1.0));
        }
        self.other.rule(path, chances);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_speculate::guide::Unguided;

    /// Lets no token come but those below 10.
    #[derive(Debug)]
    struct Small;

    impl Guide for Small {
        fn rule(&mut self, _: &dyn Fn() -> Vec<TokenId>, chances: &mut Vec<(TokenId, f32)>) {
            chances.retain(|(token, _)| token.0 < 10);
        }
    }

    fn ruled(guide: &mut dyn Guide, path: &[u32]) -> Vec<u32> {
        let mut chances = vec![(TokenId(7), 0.4), (TokenId(20), 0.2)];
        guide.rule(&|| path.iter().copied().map(TokenId).collect(), &mut chances);
        chances.into_iter().map(|(token, _)| token.0).collect()
    }

    #[test]
    fn the_run_comes_first_and_the_other_guide_has_the_last_word() {
        let run = [TokenId(1), TokenId(20), TokenId(3)];
        let paths: [&[u32]; 4] = [&[], &[1], &[1, 20], &[1, 20, 3]];
        let all = |guide: &mut dyn Guide| paths.map(|path| ruled(guide, path));
        let run_then_all: [Vec<u32>; 4] = [vec![1], vec![20], vec![3], vec![7, 20]];
        assert_eq!(all(&mut ClosingGuide::new(&run, &mut Unguided)), run_then_all);
        assert_eq!(all(&mut ClosingGuide::new(&run, &mut Small)), [vec![1], vec![], vec![3], vec![7]]);
        assert_eq!(all(&mut ClosingGuide::new(&[], &mut Unguided)), [(); 4].map(|()| vec![7, 20]));
    }
}
