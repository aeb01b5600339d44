//! What passes come to: where the tokens of a virtual world come from.
//!
//! The world knows positions: which rows are computed, which KV is kept. Whether there is anything *in* the rows is for
//! its [`Answers`] to say. [`KnownLengths`] counts tokens, for which nothing has to be computed; another one runs a real
//! model, so that tokens are real while time is virtual. The world tells it of everything that happens to KV, in the
//! order in which it happens, and checks the commands itself: answers may rely on what is promised at each method.

use crate::client::Client;
use crate::drafting;
use duet_scheduler::{Chance, Generated, Kernel, Member, Offer, PassId, Source, Yields};
use duet_types::{FinishReason, Nanos, RequestId, Tokens};

/// What is computed in a virtual world. A request ends with [`Answers::kept`] or [`Answers::dropped`]; it may never have
/// been [placed](Answers::placed), and what it left may be dropped later.
pub trait Answers {
    /// The ended request whose kept tokens `request` begins with, and how many of them. It may say more than is kept or
    /// than the prompt has. Without contents it is what the client says.
    fn shared(&self, _: RequestId, client: &Client) -> Option<(RequestId, Tokens)> {
        let continues = client.continues?;
        Some((RequestId(continues.client as u64), continues.shared))
    }

    /// `cached` leading positions of a request are in place: a beginning of what another had left, or, without a
    /// `source`, its own, which it had before, or none.
    fn placed(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) {
        let _ = (request, cached, source);
    }

    /// A pass begins. The rows of each member follow the positions that it has, and no member is in another pass.
    fn begins(&mut self, pass: PassId, members: &[Member]) {
        let _ = (pass, members);
    }

    /// A kernel came to its end, in the order of the nodes of its pass. The pass may have been undone while it ran.
    fn ran(&mut self, kernel: &Kernel) {
        let _ = kernel;
    }

    /// A pass is complete: its members have its rows. Returns what comes of each that yields a token, in their order.
    fn complete(&mut self, pass: PassId, members: &[Member]) -> Vec<Generated>;

    /// A pass is given up: its members have what they had before it.
    fn undone(&mut self, pass: PassId) {
        let _ = pass;
    }

    /// A live request has no position any more; it keeps the tokens that it has generated, and begins again.
    fn discarded(&mut self, request: RequestId) {
        let _ = request;
    }

    /// A request ended, and the positions that it has are kept, if there are any.
    fn kept(&mut self, request: RequestId) {
        let _ = request;
    }

    /// Nothing of an ended request is kept, or not any longer. It may be gone already.
    fn dropped(&mut self, request: RequestId) {
        let _ = request;
    }
}

/// Answers of which only the length is known: timing alone.
#[derive(Clone, Debug)]
pub struct KnownLengths {
    /// By request.
    answers: Vec<KnownLength>,
}

#[derive(Clone, Copy, Debug)]
struct KnownLength {
    /// Tokens that are still to come.
    left: Tokens,
    drafts: Option<Chance>,
    masks: Nanos,
}

impl KnownLengths {
    /// The answers that these clients expect.
    #[must_use]
    pub fn of(clients: &[Client]) -> Self {
        let answer = |client: &Client| KnownLength { left: client.output, drafts: client.drafts, masks: client.masks };
        Self { answers: clients.iter().map(answer).collect() }
    }
}

impl Answers for KnownLengths {
    fn complete(&mut self, _: PassId, members: &[Member]) -> Vec<Generated> {
        let yielding = members.iter().filter(|member| member.yields == Yields::Token);
        let generated = yielding.map(|member| {
            let KnownLength { left, drafts, masks } = &mut self.answers[member.request.0 as usize];
            let tokens = drafts.map_or(Tokens(1), |chance| drafting::accepted(chance, member, *left));
            *left = left.saturating_sub(tokens);
            let offer = drafts.map_or(Offer::NONE, |chance| drafting::offer(chance, *left));
            let finished = (*left == Tokens::ZERO).then_some(FinishReason::Stop);
            Generated { tokens, finished, offer, masks: *masks, ..Generated::one(member.request, None) }
        });
        generated.collect()
    }
}
