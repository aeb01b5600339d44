//! A grammar as a guide of drafts.

use duet_agents::Automaton;
use duet_speculate::Guide;
use duet_types::TokenId;

/// Follows paths of a draft in the grammar. The automaton is where it was when this is dropped.
#[derive(Debug)]
pub(crate) struct GrammarGuide<'a> {
    automaton: &'a mut Automaton,
    /// The drafted tokens that the automaton has taken.
    path: Vec<TokenId>,
    /// What must follow each place of the path, the root's first.
    forced: Vec<Vec<TokenId>>,
}

impl<'a> GrammarGuide<'a> {
    /// `forced` is what must come next.
    pub(super) fn new(automaton: &'a mut Automaton, forced: &[TokenId]) -> Self {
        Self { automaton, path: Vec::new(), forced: vec![forced.to_vec()] }
    }

    /// Goes to the end of a path, as far as the grammar lets it. Whether it got there.
    fn go(&mut self, path: &[TokenId]) -> bool {
        let common = self.path.iter().zip(path).take_while(|(one, other)| one == other).count();
        self.back(common);
        for &token in &path[common..] {
            let rest = match self.forced.last().map(Vec::as_slice) {
                Some([first, rest @ ..]) if *first == token => Some(rest.to_vec()),
                _ => None,
            };
            if self.automaton.commit(token).is_err() {
                return false;
            }
            self.path.push(token);
            // What is left of a run is what must follow; behind its end the grammar is asked anew.
            let forced = rest.filter(|rest| !rest.is_empty()).unwrap_or_else(|| self.automaton.forced());
            self.forced.push(forced);
        }
        true
    }

    /// Back to the first tokens of its path.
    fn back(&mut self, len: usize) {
        // It can only fail where nothing more is allowed in any case.
        let _ = self.automaton.rollback(self.path.len() - len);
        self.path.truncate(len);
        self.forced.truncate(len + 1);
    }
}

impl Guide for GrammarGuide<'_> {
    fn rule(&mut self, path: &dyn Fn() -> Vec<TokenId>, chances: &mut Vec<(TokenId, f32)>) {
        if !self.go(&path()) || self.automaton.is_stopped() {
            return chances.clear();
        }
        if let Some([first, ..]) = self.forced.last().map(Vec::as_slice) {
            chances.clear();
            chances.push((*first, 1.0));
            return;
        }
        chances.retain(|(token, _)| self.automaton.accepts(&[*token]) == 1);
    }
}

impl Drop for GrammarGuide<'_> {
    fn drop(&mut self) {
        self.back(0);
    }
}
