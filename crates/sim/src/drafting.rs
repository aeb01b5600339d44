//! Drafts in a world without tokens: every row is right with the same chance, if all before it are.
//!
//! Which ones are, is a function of the request and of how far its answer has come, so it does not depend on when or how
//! often it is asked.

use crate::random::Random;
use duet_scheduler::{Chance, Member, Offer};
use duet_types::{RequestId, Tokens};

/// Rows that are drafted at most.
const ROWS: u32 = 32;

/// What is offered for an answer with `left` tokens to come.
pub(crate) fn offer(chance: Chance, left: Tokens) -> Offer {
    let rows = left.0.saturating_sub(1).min(ROWS);
    let worth = (1..=rows).map(|row| Chance::new((chance.tokens() as f32).powi(row as i32)));
    Offer::new(worth.collect())
}

/// The tokens that the rows of a member bring, of `left` that are to come.
pub(crate) fn accepted(chance: Chance, member: &Member, left: Tokens) -> Tokens {
    let drafted = member.token_rows().0.saturating_sub(1);
    let is_right = |row: &u32| share(member.request, left.0.saturating_sub(*row)) < chance.tokens();
    Tokens(1 + (0..drafted).take_while(is_right).count() as u32).min(left)
}

fn share(request: RequestId, left: u32) -> f64 {
    Random::new((request.0 << 32) ^ u64::from(left)).share()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_scheduler::{HeadRows, Yields};
    use duet_types::{Class, Net, Stage};

    fn verify(rows: u32) -> Member {
        let rows = Tokens(10)..Tokens(10 + rows);
        let request = RequestId(7);
        Member {
            request,
            class: Class::Reactive,
            stage: Stage::Verify,
            rows,
            yields: Yields::Token,
            head: HeadRows::Last,
            net: Net::Decoder,
        }
    }

    #[test]
    fn longer_drafts_bring_the_same_tokens_and_more() {
        let brought: Vec<u32> = (1..20).map(|rows| accepted(Chance::new(0.8), &verify(rows), Tokens(100)).0).collect();
        assert!(
            brought.is_sorted() && brought[0] == 1 && brought.iter().zip(1..).all(|(&tokens, rows)| tokens <= rows)
        );
    }

    #[test]
    fn an_answer_is_not_exceeded() {
        assert_eq!(accepted(Chance::new(1.0), &verify(9), Tokens(4)), Tokens(4));
        assert_eq!(offer(Chance::new(1.0), Tokens(4)).len(), Tokens(3));
    }
}
