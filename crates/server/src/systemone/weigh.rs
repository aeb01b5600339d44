//! How likely each of several answers is, where the model must give one of them.
//!
//! Answers are walked as a tree of tokens. Where they part, one step of the model gives each way its share; where they do
//! not, nothing is asked. A step reports the twenty likeliest tokens and the one it takes, which is made one of those
//! that are wanted; a wanted token that is in neither costs a step of its own.

use crate::error::ApiError;
use crate::running::{Running, Step};
use crate::serve::App;
use duet_engine::{Drafts, GenerateRequest, Remember, SamplingParams, StopConditions};
use duet_types::{Class, TenantId, TokenId, Tokens};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

/// Asks the model behind one prompt.
pub(super) struct Scales<'a> {
    app: &'a Arc<App>,
    tenant: TenantId,
    class: Class,
    prompt: Vec<TokenId>,
    cost: Cost,
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Of the prompt, which is read once.
    pub(super) read: Tokens,
    pub(super) generated: Tokens,
}

/// Answers that begin alike.
struct Branch {
    /// Which.
    members: Vec<usize>,
    /// For so many tokens.
    depth: usize,
    /// How likely one of them is, all together.
    share: f64,
}

impl<'a> Scales<'a> {
    pub(super) fn new(app: &'a Arc<App>, tenant: TenantId, class: Class, prompt: Vec<TokenId>) -> Self {
        let cost = Cost { read: Tokens(u32::try_from(prompt.len()).unwrap_or(u32::MAX)), generated: Tokens::ZERO };
        Self { app, tenant, class, prompt, cost }
    }

    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    /// The shares of these answers, no two of which are equal. They add up to 1.
    pub(super) async fn weigh(&mut self, answers: &[Vec<TokenId>]) -> Result<Vec<f64>, ApiError> {
        let mut shares = vec![0.0; answers.len()];
        let mut open = vec![Branch { members: (0..answers.len()).collect(), depth: 0, share: 1.0 }];
        while let Some(branch) = open.pop() {
            let Branch { members, mut depth, share } = branch;
            if let [only] = members[..] {
                shares[only] = share;
                continue;
            }
            let mut ways = part(answers, &members, depth);
            // Until they part, or all end: texts of the same tokens cannot be told apart.
            while ways.len() == 1 && !ways.contains_key(&None) {
                depth += 1;
                ways = part(answers, &members, depth);
            }
            let before = &answers[members[0]][..depth];
            let weights = self.weights(before, &ways).await?;
            for ((token, members), weight) in ways.into_iter().zip(weights) {
                if token.is_none() {
                    let each = share * weight / members.len() as f64;
                    members.iter().for_each(|member| shares[*member] = each);
                } else {
                    open.push(Branch { members, depth: depth + 1, share: share * weight });
                }
            }
        }
        Ok(shares)
    }

    /// How likely each way is behind the prompt and `before`. They add up to 1.
    async fn weights(
        &mut self,
        before: &[TokenId],
        ways: &BTreeMap<Option<TokenId>, Vec<usize>>,
    ) -> Result<Vec<f64>, ApiError> {
        let wanted: Vec<TokenId> = ways.keys().copied().flatten().collect();
        if wanted.is_empty() {
            return Ok(vec![1.0]);
        }
        let mut known = BTreeMap::new();
        self.step(before, &wanted, &mut known).await?;
        for token in &wanted {
            if !known.contains_key(token) {
                self.step(before, std::slice::from_ref(token), &mut known).await?;
            }
        }
        let likely = |token: &TokenId| known.get(token).map_or(0.0, |logprob| f64::from(*logprob).exp());
        let going_on: f64 = wanted.iter().map(likely).sum();
        // An answer that ends here, where others go on, has whatever does not go on like them.
        let ending = (1.0 - going_on).max(0.0);
        let weights: Vec<f64> = ways.keys().map(|way| way.as_ref().map_or(ending, likely)).collect();
        let all: f64 = weights.iter().sum();
        if all > 0.0 {
            return Ok(weights.into_iter().map(|weight| weight / all).collect());
        }
        Ok(vec![1.0 / weights.len() as f64; weights.len()])
    }

    /// One token behind the prompt and `before`, one of `wanted`: notes the log probabilities that come with it.
    async fn step(
        &mut self,
        before: &[TokenId],
        wanted: &[TokenId],
        known: &mut BTreeMap<TokenId, f32>,
    ) -> Result<(), ApiError> {
        let request = GenerateRequest {
            prompt: [&self.prompt, before].concat(),
            // The model's own probabilities are reported, whatever is added to its logits.
            sampling: SamplingParams {
                logit_bias: wanted.iter().map(|token| (*token, BIAS)).collect(),
                ..SamplingParams::default()
            },
            stop: StopConditions { max_tokens: Some(Tokens(1)), ..StopConditions::default() },
            class: self.class,
            logprobs: Some(ALTERNATIVES),
            tenant: self.tenant,
            user: self.app.config.keys.user(self.tenant),
            remember: Remember::Nothing,
            drafts: Drafts::None,
            ..GenerateRequest::default()
        };
        let events = self.app.backend.submit(request).map_err(|error| ApiError::Engine { error, prompt: "state" })?;
        let id = self.app.ids.next("systemone-");
        let mut running = Running::new(events, self.app.phase.subscribe(), "state", id, self.cost.read);
        loop {
            match running.next().await? {
                Step::Reading { .. } | Step::Prompt(_) | Step::Embedding(_) => {}
                Step::Piece { scored, .. } => {
                    self.cost.generated += Tokens(1);
                    let Some(scored) = scored else { continue };
                    let top = scored.logprobs.top.into_iter();
                    for (token, logprob) in top.chain([(scored.token, scored.logprobs.chosen)]) {
                        if wanted.contains(&token) {
                            known.insert(token, logprob);
                        }
                    }
                }
                Step::End { .. } => return Ok(()),
            }
        }
    }
}

/// The ways in which answers go on; none where one ends.
fn part(answers: &[Vec<TokenId>], members: &[usize], depth: usize) -> BTreeMap<Option<TokenId>, Vec<usize>> {
    let mut ways: BTreeMap<Option<TokenId>, Vec<usize>> = BTreeMap::new();
    for &member in members {
        ways.entry(answers[member].get(depth).copied()).or_default().push(member);
    }
    ways
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.generated += other.generated;
    }
}

/// The engine's bound.
const ALTERNATIVES: u8 = 20;
/// More than what lies between any two logits.
const BIAS: f32 = 100.0;
