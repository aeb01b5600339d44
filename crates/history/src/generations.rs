//! The automata of one task: three, by age, so that texts come and go without a large one being built again.
//!
//! An automaton cannot forget, and one that requests draft from must not change. So the newest texts are in a *recent*
//! automaton that is small: to add a text it is copied, if a request has it, and the copy takes its place. When it has
//! an eighth of what the *young* one has, its texts are added to that in the same way. So a token is copied about eight
//! times in all, however often texts come, and no text costs a copy of everything. When the young one holds half of what
//! a task may have, it becomes the *old* one, and what was old is dropped: the oldest texts go, and nothing is rebuilt.
//!
//! **Invariant:** an automaton that [`Generations::shared`] gave away never changes; all of them together have at most
//! the tokens that were allowed, and the newest half of these is always among them.

use crate::interaction::Text;
use duet_speculate::suffix_automaton::SuffixAutomaton;
use duet_types::{Bytes, Tokens};
use std::sync::Arc;

/// The automata of one task.
#[derive(Debug)]
pub(crate) struct Generations {
    /// The most that the young and the recent one have together, and the old one alone.
    half: Tokens,
    old: Generation,
    young: Generation,
    recent: Generation,
    /// What the recent one was made of.
    recent_texts: Vec<Text>,
}

#[derive(Debug, Default)]
struct Generation {
    automaton: Arc<SuffixAutomaton>,
    tokens: Tokens,
}

impl Generations {
    /// Without any text. They will have at most `tokens` tokens, and so will no text have more than half of it.
    pub(crate) fn new(tokens: Tokens) -> Self {
        Self {
            half: Tokens(tokens.0 / 2),
            old: Generation::default(),
            young: Generation::default(),
            recent: Generation::default(),
            recent_texts: Vec::new(),
        }
    }

    /// Adds a text to those that may be drafted from already. May copy a small automaton, and now and then a large one.
    pub(crate) fn add(&mut self, text: Text) {
        if self.young.tokens + self.recent.tokens + text.tokens() > self.half {
            self.grow_up();
        }
        self.recent.add(&text);
        self.recent_texts.push(text);
        if self.recent.tokens > RECENT_MIN.max(Tokens(self.young.tokens.0 / YOUNG_PER_RECENT)) {
            self.merge();
        }
    }

    /// Adds a text while nobody drafts from them yet: nothing is copied.
    pub(crate) fn load(&mut self, text: &Text) {
        if self.young.tokens + self.recent.tokens + text.tokens() > self.half {
            self.grow_up();
        }
        self.young.add(text);
    }

    /// The automata as they are now, oldest first.
    pub(crate) fn shared(&self) -> Vec<Arc<SuffixAutomaton>> {
        self.all().filter(|generation| generation.tokens > Tokens::ZERO).map(|one| Arc::clone(&one.automaton)).collect()
    }

    /// Memory that they take.
    pub(crate) fn bytes(&self) -> Bytes {
        let texts = self.recent.tokens.as_usize() * size_of::<u32>() + self.recent_texts.len() * size_of::<Text>();
        Bytes((self.all().map(|one| one.automaton.bytes()).sum::<usize>() + texts) as u64)
    }

    fn all(&self) -> impl Iterator<Item = &Generation> {
        [&self.old, &self.young, &self.recent].into_iter()
    }

    fn merge(&mut self) {
        self.recent_texts.drain(..).for_each(|text| self.young.add(&text));
        self.recent = Generation::default();
    }

    fn grow_up(&mut self) {
        self.merge();
        self.old = std::mem::take(&mut self.young);
    }
}

impl Generation {
    fn add(&mut self, text: &Text) {
        text.add_to(Arc::make_mut(&mut self.automaton));
        self.tokens += text.tokens();
    }
}

/// Copying so few takes a fraction of a millisecond.
const RECENT_MIN: Tokens = Tokens(2048);
/// More would copy the recent one for less; fewer, the young one more often.
const YOUNG_PER_RECENT: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interaction::Interaction;
    use crate::key::{ModelFingerprint, TaskKey, TaskName, UserName};
    use duet_types::TokenId;
    use proptest::prelude::*;

    fn text(tokens: impl IntoIterator<Item = u32>) -> Text {
        let key = TaskKey { user: UserName::default(), task: TaskName::default(), model: ModelFingerprint(0) };
        let tokens: Vec<_> = tokens.into_iter().map(TokenId).collect();
        Interaction::new(key, &[], &tokens).text
    }

    /// Whether some automaton has the whole text.
    fn knows(automata: &[Arc<SuffixAutomaton>], text: &Text) -> bool {
        automata.iter().any(|automaton| {
            let mut place = Default::default();
            text.answer().iter().for_each(|&token| place = automaton.step(place, token));
            place.len == text.tokens().0
        })
    }

    proptest! {
        /// Texts of tokens that no other text has: found for as long as half of the allowance is newer, and gone when all
        /// of it is.
        #[test]
        fn the_newest_half_is_known_and_the_bound_holds(
            lengths in prop::collection::vec(1_u32..=500, 1..60),
            loaded in 0_usize..60,
            allowed in 2000_u32..8000,
        ) {
            let mut generations = Generations::new(Tokens(allowed));
            let texts: Vec<_> = lengths.iter().zip(0..).map(|(len, i)| text(i * 1000..i * 1000 + len)).collect();
            for (index, text) in texts.iter().enumerate() {
                if index < loaded { generations.load(text) } else { generations.add(text.clone()) }
                let tokens: Tokens = generations.all().map(|generation| generation.tokens).sum();
                prop_assert!(tokens.0 <= allowed);
            }
            let (shared, mut newer) = (generations.shared(), 0);
            for text in texts.iter().rev() {
                if newer + text.tokens().0 <= allowed / 2 - 500 {
                    prop_assert!(knows(&shared, text));
                }
                if newer >= allowed {
                    prop_assert!(!knows(&shared, text));
                }
                newer += text.tokens().0;
            }
        }
    }

    #[test]
    fn what_was_given_away_does_not_change() {
        let mut generations = Generations::new(Tokens(100_000));
        let texts: Vec<_> = (0..200).map(|i| text(i * 100..i * 100 + 90)).collect();
        let mut before: Vec<Vec<Arc<SuffixAutomaton>>> = Vec::new();
        for new in &texts {
            before.push(generations.shared());
            generations.add(new.clone());
        }
        for (shared, new) in before.iter().zip(&texts) {
            assert!(!knows(shared, new));
            assert!(shared.len() <= 3);
        }
        assert!(texts.iter().all(|text| knows(&generations.shared(), text)));
    }

    /// What [`Limits`](crate::Limits) reckons with, for texts that repeat nothing and texts that repeat much.
    #[test]
    fn a_token_takes_no_more_memory_than_reckoned() {
        let limits = crate::Limits { index: Bytes(32 << 20), ..crate::Limits::default() };
        for range in [7, 50, 1000, 100_000] {
            let mut generations = Generations::new(limits.indexed());
            let mut state = 1_u32;
            for _ in 0..limits.indexed().0 / 200 {
                generations.load(&text(
                    std::iter::repeat_with(|| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (state >> 8) % range
                    })
                    .take(200),
                ));
                assert!(generations.bytes() <= limits.index, "{range}: {}", generations.bytes());
            }
        }
    }
}
