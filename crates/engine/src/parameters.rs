//! Checking a request before any work is done. Ranges are OpenAI's where OpenAI has the parameter.

use crate::backend::Shape;
use crate::request::{EngineError, GenerateRequest};
use duet_types::{TokenId, Tokens};
use std::fmt::Display;

/// Refuses a request that cannot be served.
pub(crate) fn validate(request: &GenerateRequest, shape: &Shape) -> Result<(), EngineError> {
    let GenerateRequest { prompt, sampling, stop, logprobs, prompt_logprobs, predicted, thought, .. } = request;
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
    if let Some(token) = predicted.iter().find(|token| !known(token)) {
        return refuse("prediction", "tokens of the model's vocabulary", token);
    }
    if let Some(token) = thought.iter().flat_map(|thought| &thought.closing).find(|token| !known(token)) {
        return refuse("thought", "closed by tokens of the model's vocabulary", token);
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
    if let Some(alternatives) = prompt_logprobs.filter(|&alternatives| alternatives > LOGPROBS_MAX) {
        return refuse("prompt_logprobs", "between 0 and 20", alternatives);
    }
    if stop.max_tokens == Some(Tokens::ZERO) && prompt_logprobs.is_none() {
        return refuse("max_tokens", "at least 1", 0);
    }
    if stop.stop.len() > STOPS_MAX {
        return refuse("stop", "at most 16 strings", stop.stop.len());
    }
    if stop.stop.iter().any(String::is_empty) {
        return refuse("stop", "strings that are not empty", "\"\"");
    }
    if let Some(long) = stop.stop.iter().find(|stop| stop.len() > STOP_BYTES_MAX) {
        return refuse("stop", "strings of at most 1024 bytes", format_args!("one of {}", long.len()));
    }
    let answer = answer_max(Tokens(prompt.len() as u32), stop.max_tokens, shape.context);
    if predicted.len() > predicted_max(answer).as_usize() {
        return refuse("prediction", "at most a few times as long as the answer may be", predicted.len());
    }
    Ok(())
}

/// How long an answer to a prompt of so many tokens can be.
#[must_use]
pub fn answer_max(prompt: Tokens, max_tokens: Option<Tokens>, context: Tokens) -> Tokens {
    let room = Tokens(context.0.saturating_sub(prompt.0));
    max_tokens.map_or(room, |max| max.min(room))
}

/// How many tokens may be expected of an answer that is at most so long ([`GenerateRequest::predicted`]): whatever is
/// beyond that could hardly come true.
#[must_use]
pub fn predicted_max(answer: Tokens) -> Tokens {
    Tokens(answer.0.saturating_mul(PREDICTED_PER_TOKEN)).max(PREDICTED_MIN).min(PREDICTED_MAX)
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
/// Text that may be the beginning of a stop string is held back from the client, so long ones would stop a stream.
pub const STOP_BYTES_MAX: usize = 1024;
/// An answer that changes a text in places has parts of it, and the text may be some times as long as these parts.
const PREDICTED_PER_TOKEN: u32 = 4;
/// A short answer may be a part of a longer text. Costs nothing to speak of.
const PREDICTED_MIN: Tokens = Tokens(1024);
/// With 120 bytes a token of the drafter's automaton these are 8 MB a request.
const PREDICTED_MAX: Tokens = Tokens(65_536);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{SamplingParams, StopConditions};
    use crate::thought::ThoughtBound;
    use duet_agents::{Begins, ReasoningFormat};
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
        let shape = Shape { context: Tokens(8), vocabulary: 10, hidden: 4 };
        let result = validate(&request, &shape).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert_eq!(result, expected);
    }

    #[test]
    fn as_much_is_expected_as_an_answer_could_use() {
        let max =
            |prompt, max_tokens, context| predicted_max(answer_max(Tokens(prompt), max_tokens, Tokens(context))).0;
        assert_eq!(max(100, None, 8192), 4 * 8092);
        assert_eq!(max(100, Some(Tokens(2000)), 8192), 8000);
        assert_eq!(max(100, Some(Tokens(16)), 8192), 1024);
        assert_eq!(max(9000, None, 8192), 1024);
        assert_eq!(max(0, None, u32::MAX), 65_536);
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
        check(|r| r.prompt_logprobs = Some(21), "prompt_logprobs must be between 0 and 20, got 21");
        check(|r| r.stop.max_tokens = Some(Tokens(0)), "max_tokens must be at least 1, got 0");
        check(|r| (r.stop.max_tokens, r.prompt_logprobs) = (Some(Tokens(0)), Some(0)), "ok");
        check(|r| r.stop.stop = vec![String::new()], "stop must be strings that are not empty, got \"\"");
        check(|r| r.stop.stop = vec!["x".repeat(1024); 16], "ok");
        check(|r| r.stop.stop = vec!["x".repeat(1025)], "stop must be strings of at most 1024 bytes, got one of 1025");
        check(|r| r.predicted = vec![TokenId(1); 1024], "ok");
        check(
            |r| r.predicted = vec![TokenId(1); 1025],
            "prediction must be at most a few times as long as the answer may be, got 1025",
        );
        let bound = |token| {
            let (format, begins) = (ReasoningFormat::Think, Begins::Inside);
            Some(ThoughtBound { format, begins, max: Tokens(1), closing: vec![TokenId(token)] })
        };
        check(|r| r.thought = bound(9), "ok");
        check(|r| r.thought = bound(10), "thought must be closed by tokens of the model's vocabulary, got 10");
        check(|r| r.predicted = vec![TokenId(10)], "prediction must be tokens of the model's vocabulary, got 10");
    }
}
