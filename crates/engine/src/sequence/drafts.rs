//! What a sequence drafts, and what it learns from the rows of a pass.

use super::Sequence;
use crate::backend::Backend;
use crate::calibration::Vocabulary;
use crate::draft_model::Guest;
use crate::sampling::Candidate;
use crate::thought::ClosingGuide;
use duet_scheduler::Offer;
use duet_speculate::guide::Unguided;
use duet_speculate::{Draft, ROWS_MAX};
use duet_types::{TokenId, Tokens};
use std::time::Duration;

impl<B: Backend> Sequence<B> {
    /// Its first pass begins: what rows of its prompt are calibrated with, and the mask of its first token.
    pub(super) fn prepare_drafts(&mut self, backend: &B) {
        if let Some(constrained) = &mut self.constrained {
            constrained.begin();
        }
        let Some(speculation) = &self.speculation else { return };
        let prompt = &self.tokens[..self.prompt_len];
        self.vocabulary = Vocabulary::new(backend, speculation.calibrate_from_prompt(), prompt);
    }

    /// A pass with its rows up to `end` begins: drafters read its prompt as far. Chunk by chunk, since nobody is let in
    /// meanwhile; what was found of it is read at once.
    pub(super) fn read_for_drafts(&mut self, end: usize) {
        let unread = self.drafters_read..end.min(self.prompt_len);
        if let Some(speculation) = self.speculation.as_mut().filter(|_| !unread.is_empty()) {
            self.drafters_read = unread.end;
            speculation.read(&self.tokens[unread]);
        }
    }

    /// Whether a draft model may be asked of what follows.
    pub(crate) fn asks_model(&self) -> bool {
        self.speculation.as_ref().is_some_and(|speculation| speculation.asks_model())
    }

    /// What a draft model has to know of it. A draft has at most `rows` rows.
    pub(crate) fn guest(&mut self, rows: Tokens) -> Option<Guest<'_>> {
        let left = self.len_max - self.tokens.len();
        let speculation = self.speculation.as_mut().filter(|speculation| speculation.asks_model())?;
        Some(Guest {
            tenant: self.tenant,
            tokens: &self.tokens,
            generated: self.tokens.len() - self.prompt_len,
            left,
            room: left.saturating_sub(1).min(rows.as_usize()).min(ROWS_MAX),
            speculation,
        })
    }

    /// Tokens that it makes in a pass lately.
    pub(crate) fn pace(&self) -> f64 {
        self.speculation.as_ref().map_or(1.0, |speculation| speculation.pace())
    }

    /// What may follow, after a draft model was asked.
    pub(crate) fn draft_at_last(&mut self) -> Offer {
        let begun = self.times.clock.now();
        let offer = self.draft();
        let took = self.times.clock.now() - begun;
        if let Some(speculation) = &mut self.speculation {
            speculation.took(Duration::from_nanos(took.0));
        }
        offer
    }

    /// What may follow, as far as there is room for it.
    pub(super) fn draft(&mut self) -> Offer {
        // The last token that may come needs no row.
        let room = Tokens((self.len_max - self.tokens.len()).saturating_sub(1) as u32);
        let closing = self.thought.as_ref().map_or(&[][..], |thought| thought.to_close());
        let Some(constrained) = &mut self.constrained else {
            let Some(speculation) = &mut self.speculation else { return Offer::NONE };
            return speculation.draft_guided(room, &mut ClosingGuide::new(closing, &mut Unguided));
        };
        let mut offer = Offer::NONE;
        constrained.guiding(|guide| match &mut self.speculation {
            None => Draft::default(),
            Some(speculation) => {
                offer = speculation.draft_guided(room, &mut ClosingGuide::new(closing, guide));
                speculation.latest().clone()
            }
        });
        offer
    }

    /// Learns from the rows of a pass: `before` tokens were known before it, and the rows of `path` were right.
    pub(super) fn learn(&mut self, before: usize, path: &[usize], likeliest: &[Vec<Candidate>]) {
        let Some(speculation) = &mut self.speculation else { return };
        let drafted = likeliest.len() - 1;
        speculation.verified(path, drafted);
        let [earlier, last] = [before.saturating_sub(2), before - 1].map(|at| self.tokens[at]);
        if speculation.learns().answer {
            for &at in path {
                let context = speculation.context(at, last, earlier);
                speculation.said(context, &tokens_of(&likeliest[at]));
            }
        }
        if speculation.learns().rejected && path.len() <= drafted {
            let rejected = speculation.latest().rejected(path, drafted);
            let mut predicted = vec![self.tokens[self.tokens.len() - 1]];
            let model = |&at: &usize| likeliest[at].first().map_or(last, |&(token, _)| TokenId(token));
            predicted.extend(rejected.iter().map(model));
            speculation.rejected(&rejected, &predicted);
        }
    }
}

fn tokens_of(likeliest: &[Candidate]) -> Vec<(TokenId, f32)> {
    likeliest.iter().map(|&(token, logit)| (TokenId(token), logit)).collect()
}
