//! After the end of a pass: a draft model is asked what its members may say next, and they draft.
//!
//! Their tokens are out, and their tables are theirs again. Who rides in a person's pass is not asked for: the person would
//! wait for it.

use super::rows::{Rows, message};
use crate::backend::Backend;
use crate::draft_model::{DraftModel, Terms};
use crate::executors::Site;
use crate::people::People;
use crate::request::EngineError;
use crate::sequence::Sequence;
use duet_scheduler::{Generated, Kernel, Member, SchedulerConfig, Yields, decode_share, row_share};
use duet_types::{Class, FinishReason, Nanos};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What passes draft with beside their sequences.
pub(crate) struct Drafters<'a, B: Backend> {
    pub(crate) model: Option<&'a DraftModel<B>>,
    pub(crate) people: &'a People,
    pub(crate) config: &'a SchedulerConfig,
}

/// A member that drafts when the model was asked.
struct Drafts<'a, B: Backend> {
    sequence: &'a mut Sequence<B>,
    member: &'a Member,
    generated: &'a mut Generated,
}

impl<B: Backend> Rows<B> {
    /// Drafts what may follow, of every member that has waited for the model with it.
    pub(super) fn draft_at_last(
        &mut self,
        kernel: &Kernel,
        generated: &mut [Generated],
        drafters: &Drafters<'_, B>,
        backend: &B,
        site: Site<'_>,
    ) {
        let yields = |member: &Member| member.yields == Yields::Token;
        let tokens = self.members.iter().zip(&kernel.members).filter(|(_, member)| yields(member));
        let tokens = tokens.map(|((_, sequence), _)| sequence.pace()).sum();
        let yielding = self.members.iter_mut().zip(&kernel.members).filter(|(_, member)| yields(member));
        let all =
            yielding.zip(generated).map(|(((_, sequence), member), generated)| Drafts { sequence, member, generated });
        let asks = |drafts: &Drafts<'_, B>| drafts.generated.finished.is_none() && drafts.sequence.asks_model();
        let mut drafts: Vec<Drafts<'_, B>> = all.filter(asks).collect();
        if drafts.is_empty() {
            return;
        }
        let took = match drafters.model {
            // A thread that waits for a device computes slowly.
            Some(model) if !backend.device_lanes().contains_all(site.lanes) => {
                let terms = Terms {
                    pass: self.spent.as_secs_f64() * decode_share(drafters.config, &kernel.members, site.lanes),
                    drafting: 0.0,
                    tokens,
                    row_share: row_share(drafters.config, &kernel.members, site.lanes),
                    verify: drafters.config.limits.verify,
                };
                ask(model, &mut drafts, (kernel, drafters), terms, site)
            }
            _ => Nanos::ZERO,
        };
        let share = Nanos(took.0 / drafts.len() as u64);
        for Drafts { sequence, generated, .. } in drafts {
            generated.drafting = share;
            match catch_unwind(AssertUnwindSafe(|| sequence.draft_at_last())) {
                Ok(offer) => generated.offer = offer,
                // Its token is out, so it must not be run again.
                Err(panic) => {
                    sequence.fail(EngineError::Internal(message(&*panic)));
                    generated.finished = Some(FinishReason::Stop);
                }
            }
        }
    }
}

/// Asks the model of those whose pass it was.
fn ask<B: Backend>(
    model: &DraftModel<B>,
    drafts: &mut [Drafts<'_, B>],
    (kernel, drafters): (&Kernel, &Drafters<'_, B>),
    terms: Terms,
    site: Site<'_>,
) -> Nanos {
    let class = kernel.class();
    let rows = drafters.config.limits.draft[class as usize];
    let of_class = drafts.iter_mut().filter(|drafts| drafts.member.class == class);
    let mut guests: Vec<_> = of_class.filter_map(|drafts| drafts.sequence.guest(rows)).collect();
    let drafting = guests.iter().map(|guest| guest.speculation.model_seconds()).sum();
    let with_people = kernel.members.iter().filter(|member| member.class == Class::Reactive).count();
    let goes_on = || drafters.people.count() <= with_people;
    model.round(&mut guests, &Terms { drafting, ..terms }, site, &goes_on)
}
