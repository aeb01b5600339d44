//! Answers that were given before: drafts of a real model, replayed in virtual time.
//!
//! A trace says of each step what was drafted, how likely each row was thought to be, and which rows were right. How many
//! rows are verified is for the scheduler to say, for the machine at hand. If it verifies fewer than were right, the rest
//! of that draft is what is offered next, with chances given what is known by then; rows of other branches, which a
//! drafter would have dropped, stay in it.
//!
//! **Invariant:** an answer comes to as many tokens as it had, however many rows are verified.

use crate::answers::Answers;
use duet_scheduler::{Chance, Generated, Member, Offer, PassId, Yields};
use duet_types::{FinishReason, Tokens};

/// One step of an answer: a draft, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftStep {
    /// Of each row that was drafted, best first.
    pub chances: Vec<Chance>,
    /// The rows that were right, in the order of the answer, which is the order of the draft.
    pub right: Vec<usize>,
}

/// Answers by their steps.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// By request: the steps after the one that the prompt's last row brings.
    requests: Vec<Steps>,
}

#[derive(Clone, Debug)]
struct Steps {
    /// What is offered now.
    now: Option<DraftStep>,
    later: std::vec::IntoIter<DraftStep>,
}

impl DraftStep {
    /// Rows of its pass: the last token, and the draft.
    #[must_use]
    pub fn rows(&self) -> Tokens {
        Tokens(1 + self.chances.len() as u32)
    }

    /// Tokens that it brought: those that were right, and the one after them.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens(1 + self.right.len() as u32)
    }

    /// The same answer when no more than `drafted` rows of a draft are verified.
    #[must_use]
    pub fn cut(steps: &[Self], drafted: usize) -> Vec<Self> {
        let mut cut = Vec::with_capacity(steps.len());
        for step in steps {
            let mut now = Some(step.clone());
            while let Some(step) = now.take() {
                let drafted = drafted.min(step.chances.len());
                let mut verified = step.clone();
                verified.chances.truncate(drafted);
                verified.right.retain(|&row| row < drafted);
                cut.push(verified);
                now = step.verify(drafted).1;
            }
        }
        cut
    }

    fn offer(&self) -> Offer {
        Offer::new(self.chances.clone())
    }

    /// What is left of it when its first `drafted` rows were verified, and what they brought.
    fn verify(mut self, drafted: usize) -> (Tokens, Option<Self>) {
        let accepted = self.right.iter().take_while(|&&row| row < drafted).count();
        // The token after them is certain now, drafted or not.
        let tokens = Tokens(accepted as u32 + 1);
        let Some(&certain) = self.right.get(accepted) else { return (tokens, None) };
        let known = self.chances[certain].tokens().max(f64::MIN_POSITIVE);
        let given = |chance: &Chance| Chance::new((chance.tokens() / known) as f32);
        let chances = self.chances[certain + 1..].iter().map(given).collect();
        let right = self.right.split_off(accepted + 1).into_iter().map(|row| row - certain - 1).collect();
        (tokens, Some(Self { chances, right }))
    }
}

impl Replayed {
    /// One list of steps for each client.
    #[must_use]
    pub fn new(answers: impl IntoIterator<Item = Vec<DraftStep>>) -> Self {
        let requests = answers.into_iter().map(|steps| Steps { now: None, later: steps.into_iter() });
        Self { requests: requests.collect() }
    }
}

impl Answers for Replayed {
    fn complete(&mut self, _: PassId, members: &[Member]) -> Vec<Generated> {
        let yielding = members.iter().filter(|member| member.yields == Yields::Token);
        let generated = yielding.map(|member| {
            let steps = &mut self.requests[member.request.0 as usize];
            let drafted = member.token_rows().as_usize().saturating_sub(1);
            // The prompt's last row brings the first token, which is in no step.
            let (tokens, rest) = steps.now.take().map_or((Tokens(1), None), |step| step.verify(drafted));
            steps.now = rest.or_else(|| steps.later.next());
            let offer = steps.now.as_ref().map_or(Offer::NONE, DraftStep::offer);
            let finished = steps.now.is_none().then_some(FinishReason::Stop);
            Generated { tokens, finished, offer, ..Generated::one(member.request, None) }
        });
        generated.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_scheduler::HeadRows;
    use duet_types::{Class, Net, RequestId, Stage};

    fn step(chances: &[f32], right: &[usize]) -> DraftStep {
        DraftStep { chances: chances.iter().map(|&chance| Chance::new(chance)).collect(), right: right.to_vec() }
    }

    fn member(drafted: u32) -> Member {
        let stage = if drafted == 0 { Stage::Decode } else { Stage::Verify };
        let rows = Tokens(10)..Tokens(11 + drafted);
        Member {
            request: RequestId(0),
            class: Class::Reactive,
            stage,
            rows,
            yields: Yields::Token,
            head: HeadRows::Last,
            net: Net::Decoder,
        }
    }

    /// Tokens of each pass that verifies at most `most` rows of what is offered.
    fn passes(steps: Vec<DraftStep>, most: u32) -> Vec<u32> {
        let mut answers = Replayed::new([steps]);
        let (mut offered, mut tokens) = (0, Vec::new());
        loop {
            let done = answers.complete(PassId(0), &[member(most.min(offered))]).remove(0);
            tokens.push(done.tokens.0);
            if done.finished.is_some() {
                return tokens;
            }
            offered = done.offer.len().0;
        }
    }

    fn steps() -> Vec<DraftStep> {
        vec![step(&[0.9, 0.6, 0.5, 0.1], &[0, 2]), step(&[], &[]), step(&[0.5], &[])]
    }

    #[test]
    fn all_rows_bring_what_they_brought() {
        assert_eq!(passes(steps(), 31), [1, 3, 1, 1]);
    }

    #[test]
    fn fewer_rows_bring_the_same_answer_in_more_passes() {
        // Row 2 is right but was not verified: it is certain now, and row 3 is offered.
        assert_eq!(passes(steps(), 2), [1, 2, 1, 1, 1]);
        assert_eq!(passes(steps(), 0), [1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn steps_are_cut_as_they_are_replayed() {
        for most in [0, 1, 2, 3, 31] {
            let cut = DraftStep::cut(&steps(), most as usize);
            assert!(cut.iter().all(|step| step.rows().0 <= 1 + most));
            let tokens: Vec<u32> = cut.iter().map(|step| step.tokens().0).collect();
            assert_eq!(tokens, passes(steps(), most)[1..], "at most {most}");
        }
        assert_eq!(DraftStep::cut(&steps(), 31), steps());
    }

    #[test]
    fn what_is_left_of_a_draft_is_likelier_by_then() {
        let (tokens, rest) = step(&[0.8, 0.4, 0.2], &[0, 1]).verify(0);
        assert_eq!((tokens, rest), (Tokens(1), Some(step(&[0.5, 0.25], &[0]))));
    }
}
