//! Speed of an engine as it serves: prompts and answers by whatever its scheduler chooses among cores and devices, and what each
//! of them did. [`crate::throughput`] measures the kernels of cores alone, without an engine.

use crate::samples::median;
use crate::throughput::{DECODE_CONTEXT, tokens};
use duet_engine::{
    Drafts, Engine, EngineError, GenerateRequest, GenerationEvent, LinearWork, Remember, StopConditions,
};
use duet_types::{TenantId, TokenId, Tokens};
use serde::Serialize;
use std::cell::Cell;
use std::thread;
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Prompt tokens.
    pub prompt: usize,
    /// Tokens of each answer.
    pub generate: usize,
    /// Sequences decoded together.
    pub batches: Vec<usize>,
    /// Samples of each figure.
    pub samples: usize,
}

/// What was measured, medians of samples.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// The model.
    pub model: String,
    /// As set.
    pub prompt: usize,
    /// As set.
    #[serde(rename = "gen")]
    pub generate: usize,
    /// Samples of each figure.
    pub n: usize,
    /// Prompt tokens a second, from submission to the first token of the answer.
    pub prefill_tok_s: f64,
    /// Who read the prompts.
    pub shares: Vec<Share>,
    /// By batch, behind prompts of [`DECODE_CONTEXT`] tokens.
    pub decode: Vec<Decode>,
}

/// Decode speed of a batch.
#[derive(Clone, Debug, Serialize)]
pub struct Decode {
    /// Sequences together.
    pub batch: usize,
    /// Tokens a second of all, while all are under way.
    pub tok_s: f64,
    /// Who computed, the prompts included.
    pub shares: Vec<Share>,
}

/// What one executor did.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// A device's name, or `cpu`.
    pub of: String,
    /// Of the multiply-accumulates of linear layers.
    pub share: f64,
}

/// Measures `engine`, which serves nobody else.
///
/// # Errors
/// Whatever ends a request.
pub fn run(engine: &Engine, settings: &Settings, progress: impl Fn(&str)) -> Result<Served, EngineError> {
    let bench = Bench { engine, tenants: Cell::new(0) };
    progress("prefill");
    let (prefill_tok_s, shares) = bench.sampled(settings.samples, || bench.prefill(settings.prompt))?;
    progress("decode");
    let decode = |&batch: &usize| {
        let (tok_s, shares) = bench.sampled(settings.samples, || bench.decode(batch, settings.generate))?;
        Ok(Decode { batch, tok_s, shares })
    };
    Ok(Served {
        model: engine.model().config().name.clone(),
        prompt: settings.prompt,
        generate: settings.generate,
        n: settings.samples,
        prefill_tok_s,
        shares,
        decode: settings.batches.iter().map(decode).collect::<Result<_, EngineError>>()?,
    })
}

struct Bench<'a> {
    engine: &'a Engine,
    /// Each sequence has a tenant of its own: nobody goes on from another's keys and values.
    tenants: Cell<u32>,
}

impl Bench<'_> {
    /// The median of some samples, and who computed meanwhile. What comes first is not counted: graphs may be made for it.
    fn sampled(
        &self,
        samples: usize,
        sample: impl Fn() -> Result<f64, EngineError>,
    ) -> Result<(f64, Vec<Share>), EngineError> {
        sample()?;
        let before = self.engine.linear_work();
        let values: Vec<f64> = (0..samples).map(|_| sample()).collect::<Result<_, _>>()?;
        Ok((median(values).unwrap_or(0.0), shares(&before, &self.engine.linear_work())))
    }

    fn prefill(&self, prompt: usize) -> Result<f64, EngineError> {
        let begun = Instant::now();
        let first = self.sequence(prompt, 1).answer(self.engine)?[0];
        Ok(prompt as f64 / (first - begun).as_secs_f64())
    }

    fn decode(&self, batch: usize, generate: usize) -> Result<f64, EngineError> {
        let sequences: Vec<Sequence> = (0..batch).map(|_| self.sequence(DECODE_CONTEXT, generate + 1)).collect();
        thread::scope(|scope| {
            let answers: Vec<_> =
                sequences.iter().map(|sequence| scope.spawn(|| sequence.answer(self.engine))).collect();
            let answers = answers.into_iter().map(|answer| answer.join().unwrap_or(Err(EngineError::ShuttingDown)));
            Ok(speed_together(&answers.collect::<Result<Vec<_>, _>>()?))
        })
    }

    fn sequence(&self, prompt: usize, output: usize) -> Sequence {
        let number = self.tenants.get();
        self.tenants.set(number + 1);
        let vocabulary = self.engine.model().config().vocabulary;
        Sequence { tenant: TenantId(number), prompt: tokens(vocabulary, prompt, number as usize), output }
    }
}

/// A prompt, and how many tokens are to follow.
struct Sequence {
    tenant: TenantId,
    prompt: Vec<TokenId>,
    output: usize,
}

impl Sequence {
    /// When each of its tokens came: one at least.
    fn answer(&self, engine: &Engine) -> Result<Vec<Instant>, EngineError> {
        let max_tokens = Some(Tokens(self.output as u32));
        let mut generation = engine.submit(GenerateRequest {
            prompt: self.prompt.clone(),
            stop: StopConditions { max_tokens, ignore_eos: true, ..StopConditions::default() },
            tenant: self.tenant,
            drafts: Drafts::None,
            remember: Remember::Nothing,
            ..GenerateRequest::default()
        })?;
        let mut times = Vec::with_capacity(self.output);
        while let Some(event) = generation.next_blocking() {
            match event {
                GenerationEvent::Token { .. } => times.push(Instant::now()),
                GenerationEvent::Failed(error) => return Err(error),
                _ => {}
            }
        }
        if times.is_empty() { Err(EngineError::ShuttingDown) } else { Ok(times) }
    }
}

/// Tokens a second of all sequences from when the last has begun until the first has ended.
fn speed_together(answers: &[Vec<Instant>]) -> f64 {
    let begun = answers.iter().filter_map(|times| times.first()).max();
    let ended = answers.iter().filter_map(|times| times.last()).min();
    let (Some(&begun), Some(&ended)) = (begun, ended) else { return 0.0 };
    let tokens = answers.iter().flatten().filter(|&&time| begun < time && time <= ended).count();
    let took = ended.saturating_duration_since(begun).as_secs_f64();
    if took > 0.0 { tokens as f64 / took } else { 0.0 }
}

/// What each executor did between two times.
fn shares(before: &LinearWork, after: &LinearWork) -> Vec<Share> {
    let earlier = |name: &str| before.devices.iter().find(|device| device.name == name).map_or(0, |device| device.macs);
    let devices = after.devices.iter().map(|device| (device.name.clone(), device.macs - earlier(&device.name)));
    let all: Vec<(String, u64)> = devices.chain([("cpu".to_owned(), after.on_crew - before.on_crew)]).collect();
    let sum: u64 = all.iter().map(|(_, macs)| macs).sum();
    all.into_iter().map(|(of, macs)| Share { of, share: macs as f64 / sum.max(1) as f64 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn speed_is_that_of_all_together() {
        let start = Instant::now();
        let times = |milliseconds: &[u64]| -> Vec<Instant> {
            milliseconds.iter().map(|&time| start + Duration::from_millis(time)).collect()
        };
        // Between 20 and 40 ms come three tokens of either.
        let answers = [times(&[0, 10, 20, 30, 35, 40]), times(&[20, 25, 30, 38, 50])];
        assert!((speed_together(&answers) - 300.0).abs() < 1e-6);
        assert_eq!(speed_together(&[times(&[0]), times(&[10, 20])]), 0.0, "they were never together");
    }
}
