//! Checking a request before any work is done. Ranges are OpenAI's where OpenAI has the parameter.

use crate::backend::Shape;
use crate::request::{EngineError, GenerateRequest};
use duet_types::{TokenId, Tokens};
use std::fmt::Display;

/// Refuses a request that cannot be served.
pub(crate) fn validate(request: &GenerateRequest, shape: &Shape) -> Result<(), EngineError> {
    let GenerateRequest { prompt, sampling, stop, logprobs, .. } = request;
    let known = |token: &TokenId| (token.0 as usize) < shape.vocabulary;
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    // At least one token must fit behind it.
    if prompt.len() >= shape.context.as_usize() {
        let prompt = Tokens(u32::try_from(prompt.len()).unwrap_or(u32::MAX));
        return Err(EngineError::PromptTooLong { prompt, context: shape.context });
    }
    if let Some(token) = prompt.iter().find(|token| !known(token)) {
        return refuse("prompt", "tokens of the model's vocabulary", token);
    }
    within("temperature", "between 0 and 2", sampling.temperature, 0.0, 2.0)?;
    within("top_p", "between 0 and 1", sampling.top_p, 0.0, 1.0)?;
    within("min_p", "between 0 and 1", sampling.min_p, 0.0, 1.0)?;
    within("presence_penalty", "between -2 and 2", sampling.presence_penalty, -2.0, 2.0)?;
    within("frequency_penalty", "between -2 and 2", sampling.frequency_penalty, -2.0, 2.0)?;
    if !(sampling.repetition_penalty > 0.0 && sampling.repetition_penalty <= REPETITION_PENALTY_MAX) {
        return refuse("repetition_penalty", "above 0 and at most 10", sampling.repetition_penalty);
    }
    for &(token, bias) in &sampling.logit_bias {
        within("logit_bias", "between -100 and 100", bias, -100.0, 100.0)?;
        if !known(&token) {
            return refuse("logit_bias", "for tokens of the model's vocabulary", token);
        }
    }
    if let Some(alternatives) = logprobs.filter(|&alternatives| alternatives > LOGPROBS_MAX) {
        return refuse("top_logprobs", "between 0 and 20", alternatives);
    }
    if stop.max_tokens == Some(Tokens::ZERO) {
        return refuse("max_tokens", "at least 1", 0);
    }
    if stop.stop.len() > STOPS_MAX {
        return refuse("stop", "at most 16 strings", stop.stop.len());
    }
    if stop.stop.iter().any(String::is_empty) {
        return refuse("stop", "strings that are not empty", "\"\"");
    }
    Ok(())
}

fn within(name: &'static str, expected: &'static str, value: f32, min: f32, max: f32) -> Result<(), EngineError> {
    // Also refuses NaN.
    if (min..=max).contains(&value) { Ok(()) } else { refuse(name, expected, value) }
}

fn refuse(name: &'static str, expected: &'static str, value: impl Display) -> Result<(), EngineError> {
    Err(EngineError::Parameter { name, expected, value: value.to_string() })
}

/// Beyond this nothing that was seen can come again, and a division would only lose precision.
const REPETITION_PENALTY_MAX: f32 = 10.0;
/// OpenAI's.
const LOGPROBS_MAX: u8 = 20;
/// Each costs a search per token. OpenAI allows 4.
const STOPS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{SamplingParams, StopConditions};
    use duet_types::Class;

    fn check(change: impl FnOnce(&mut GenerateRequest), expected: &str) {
        let mut request = GenerateRequest {
            prompt: vec![TokenId(1); 7],
            sampling: SamplingParams::default(),
            stop: StopConditions::default(),
            class: Class::Reactive,
            ..GenerateRequest::default()
        };
        change(&mut request);
        let shape = Shape { context: Tokens(8), vocabulary: 10 };
        let result = validate(&request, &shape).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert_eq!(result, expected);
    }

    #[test]
    fn parameters_are_checked_against_their_ranges() {
        check(|_| (), "ok");
        check(|request| request.prompt.clear(), "the prompt is empty");
        check(|r| r.prompt.push(TokenId(1)), "the prompt of 8 tokens does not fit the context of 8");
        check(|r| r.prompt[2] = TokenId(10), "prompt must be tokens of the model's vocabulary, got 10");
        check(|r| r.sampling.temperature = -1.0, "temperature must be between 0 and 2, got -1");
        check(|r| r.sampling.temperature = f32::NAN, "temperature must be between 0 and 2, got NaN");
        check(|r| r.sampling.top_p = 1.01, "top_p must be between 0 and 1, got 1.01");
        check(|r| r.sampling.presence_penalty = -2.5, "presence_penalty must be between -2 and 2, got -2.5");
        check(|r| r.sampling.repetition_penalty = 0.0, "repetition_penalty must be above 0 and at most 10, got 0");
        check(
            |r| r.sampling.logit_bias = vec![(TokenId(1), 101.0)],
            "logit_bias must be between -100 and 100, got 101",
        );
        check(|r| r.logprobs = Some(21), "top_logprobs must be between 0 and 20, got 21");
        check(|r| r.stop.max_tokens = Some(Tokens(0)), "max_tokens must be at least 1, got 0");
        check(|r| r.stop.stop = vec![String::new()], "stop must be strings that are not empty, got \"\"");
    }
}
