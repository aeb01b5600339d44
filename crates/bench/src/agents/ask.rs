//! Asking a server.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

/// A client of a server.
pub(super) struct Asker {
    agent: ureq::Agent,
    url: String,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) text: String,
    /// `{"name": …, "arguments": "…"}` each.
    pub(super) calls: Vec<Value>,
    /// Generated.
    pub(super) tokens: u32,
    /// Of these, those that had to come; absent where the server does not tell.
    pub(super) forced: Option<u32>,
    pub(super) took: Duration,
}

impl Said {
    /// Tokens a second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.tokens) / self.took.as_secs_f64().max(1e-9)
    }
}

impl Asker {
    pub(super) fn new(url: &str) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
        Self { agent: config.into(), url: format!("{}/v1/chat/completions", url.trim_end_matches('/')) }
    }

    /// A whole answer; what went wrong, in words.
    pub(super) fn ask(&self, body: &Value) -> Result<Said, String> {
        let start = Instant::now();
        let mut response = self.send(body)?;
        let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
        let took = start.elapsed();
        let answer: Value = serde_json::from_str(&text).map_err(|error| format!("its answer is no JSON: {error}"))?;
        let (message, usage) = (&answer["choices"][0]["message"], &answer["usage"]);
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let forced = &usage["completion_tokens_details"]["forced_tokens"];
        Ok(Said {
            text: message["content"].as_str().unwrap_or_default().to_owned(),
            calls: calls.into_iter().map(|call| call["function"].clone()).collect(),
            tokens: usage["completion_tokens"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
            forced: forced.as_u64().and_then(|count| u32::try_from(count).ok()),
            took,
        })
    }

    /// Seconds to the first token of a streamed answer.
    pub(super) fn first_token(&self, body: &Value) -> Result<f64, String> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let start = Instant::now();
        let response = self.send(&body)?;
        let mut first = None;
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.map_err(|error| error.to_string())?;
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            let chunk: Value = serde_json::from_str(data).unwrap_or_default();
            let delta = &chunk["choices"][0]["delta"];
            let says = |name: &str| delta[name].as_str().is_some_and(|text| !text.is_empty());
            // The stream is read to its end, so that the next request finds an idle server.
            if first.is_none() && (says("content") || delta["tool_calls"].is_array()) {
                first = Some(start.elapsed().as_secs_f64());
            }
        }
        first.ok_or_else(|| "a streamed answer had no token".to_owned())
    }

    fn send(&self, body: &Value) -> Result<ureq::http::Response<ureq::Body>, String> {
        let request = self.agent.post(&self.url).content_type("application/json");
        let mut response = request.send(body.to_string()).map_err(|error| error.to_string())?;
        if response.status() == 200 {
            return Ok(response);
        }
        let text = response.body_mut().read_to_string().unwrap_or_default();
        let start: String = text.chars().take(ERROR_SHOWN).collect();
        Err(format!("{} {start}", response.status().as_u16()))
    }
}

/// Small models on small machines read 3,000 tokens in half a minute.
const PATIENCE: Duration = Duration::from_secs(600);
/// Characters of an error.
const ERROR_SHOWN: usize = 300;
