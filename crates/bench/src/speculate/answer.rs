//! One answer and what it took.

use crate::load::LoadError;
use duet_engine::{Drafts, Engine, GenerateRequest, GenerationEvent, SamplingParams, StopConditions, Usage};
use duet_types::{TenantId, TokenId, Tokens};

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) tokens: Vec<TokenId>,
    pub(super) usage: Usage,
    /// Rows that verify passes had room for and did not have, in all.
    pub(super) unused_rows: u64,
}

impl Answer {
    /// Seconds from the first token to the end.
    pub(super) fn decode_s(&self) -> f64 {
        self.usage.total.saturating_sub(self.usage.time_to_first_token).as_secs_f64()
    }

    /// Tokens after the first, which the prompt's pass brings.
    pub(super) fn decoded(&self) -> u64 {
        u64::from(self.usage.generated.0.saturating_sub(1))
    }

    /// Passes after the prompt's: each brings one token that was not drafted.
    pub(super) fn steps(&self) -> u64 {
        self.decoded().saturating_sub(self.usage.drafts.accepted.0.into())
    }
}

/// How an answer is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Tokens of it at most.
    pub(super) output: Tokens,
    /// 0 is greedy; drawn answers are drawn alike, whoever draws.
    pub(super) temperature: f32,
    /// Whether it is drafted.
    pub(super) drafts: Drafts,
    /// Who asks: nobody has the KV of another's prompts.
    pub(super) tenant: TenantId,
}

/// Asks for an answer and waits for its end.
pub(super) fn ask(engine: &Engine, prompt: &[TokenId], asked: Asked) -> Result<Answer, LoadError> {
    let Asked { output, temperature, drafts, tenant } = asked;
    let before = unused_rows(engine);
    let mut generation = engine.submit(GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams { temperature, seed: Some(SEED), ..SamplingParams::default() },
        stop: StopConditions { max_tokens: Some(output), ..StopConditions::default() },
        drafts,
        tenant,
        ..GenerateRequest::default()
    })?;
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Finished { usage, .. } => {
                let unused_rows = unused_rows(engine).saturating_sub(before);
                return Ok(Answer { tokens, usage, unused_rows });
            }
            GenerationEvent::Failed(error) => return Err(error.into()),
        }
    }
    Err(duet_engine::EngineError::ShuttingDown.into())
}

/// Of drawn answers; any will do.
const SEED: u64 = 1;

/// As the engine counts it.
fn unused_rows(engine: &Engine) -> u64 {
    let text = engine.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix(r#"duet_verify_rows_total{use="underutilised"} "#));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}
