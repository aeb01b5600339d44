//! Any OpenAI-compatible server, over HTTP with server-sent events.
//!
//! The body is that of `tools` like this everywhere: streamed, greedy, of a fixed length. A piece of text is taken for a
//! token, since that is all a client sees.

use super::job::{Answer, Counts, Ending, Job, Tier};
use super::target::{SendError, Target};
use duet_engine::EngineSamples;
use duet_types::{Class, Tokens};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A server that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What tables call it.
    pub name: String,
    /// `http://HOST:PORT`, without `/v1`.
    pub url: String,
    /// Whether it is told who waits.
    pub classes: Classes,
}

/// Whether a server is told the class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classes {
    /// By `service_tier`, `priority` or `flex`.
    ServiceTier,
    /// Not at all.
    Untold,
}

pub(crate) struct HttpTarget {
    agent: ureq::Agent,
    url: String,
    classes: Classes,
    closed: AtomicBool,
}

impl HttpTarget {
    pub(crate) fn new(server: &Server) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        Self {
            agent: config.into(),
            url: format!("{}/v1/chat/completions", server.url.trim_end_matches('/')),
            classes: server.classes,
            closed: AtomicBool::new(false),
        }
    }

    fn stream(&self, job: &Job, left: Duration, answer: &mut Answer) -> Result<(), SendError> {
        let request = self.agent.post(&self.url).config().timeout_global(Some(left)).build();
        let body = body(job, self.classes).to_string();
        let mut response = request.content_type("application/json").send(body).map_err(failed)?;
        if response.status() != 200 {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            let start: String = text.chars().take(ERROR_SHOWN).collect();
            return Err(SendError::Failed(format!("{} {start}", response.status().as_u16())));
        }
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.map_err(failed)?;
            if self.closed.load(Ordering::Relaxed) {
                return Err(SendError::Closed);
            }
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            if data == "[DONE]" {
                break;
            }
            read_event(data, answer)?;
        }
        answer.end = Some(Instant::now());
        Ok(())
    }
}

impl Target for HttpTarget {
    fn send(&self, job: &Job, deadline: Instant, answer: &mut Answer) -> Result<(), SendError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || self.closed.load(Ordering::Relaxed) {
            return Err(SendError::Closed);
        }
        let sent = self.stream(job, left, answer);
        let over = self.closed.load(Ordering::Relaxed) || Instant::now() >= deadline;
        if over && sent.is_err() { Err(SendError::Closed) } else { sent }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn take_samples(&self) -> Option<EngineSamples> {
        None
    }
}

fn body(job: &Job, classes: Classes) -> Value {
    let mut body = json!({
        "model": "default",
        "messages": &job.messages[..],
        "max_tokens": job.output.0,
        "temperature": 0,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if job.ending == Ending::AllTokens {
        body["ignore_eos"] = json!(true);
    }
    if (classes, job.tier) == (Classes::ServiceTier, Tier::Declared) {
        body["service_tier"] = match job.class {
            Class::Reactive => json!("priority"),
            Class::Proactive => json!("flex"),
        };
    }
    body
}

fn read_event(data: &str, answer: &mut Answer) -> Result<(), SendError> {
    let event: Value = serde_json::from_str(data).map_err(failed)?;
    if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
        return Err(SendError::Failed(error.to_string()));
    }
    if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
        let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok()).map(Tokens);
        answer.counts = Some(Counts {
            prompt: count(&usage["prompt_tokens"]).unwrap_or_default(),
            cached: count(&usage["prompt_tokens_details"]["cached_tokens"]),
            output: count(&usage["completion_tokens"]).unwrap_or(Tokens(answer.tokens.len() as u32)),
        });
    }
    let choices = event.get("choices").and_then(Value::as_array);
    for choice in choices.into_iter().flatten() {
        if let Some(text) = choice["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
            answer.token(text, Instant::now());
        }
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> SendError {
    SendError::Failed(error.to_string())
}

/// Characters of an error's body that are shown.
const ERROR_SHOWN: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::job::{Message, Role};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn job(tier: Tier, ending: Ending) -> Job {
        let messages = [Message::new(Role::User, "hi")].into();
        Job { class: Class::Proactive, index: 0, tier, messages, output: Tokens(9), ending }
    }

    #[test]
    fn a_body_says_the_class_only_where_it_is_to_be_said() {
        let told = body(&job(Tier::Declared, Ending::AllTokens), Classes::ServiceTier);
        assert_eq!(told["service_tier"], "flex");
        assert_eq!(told["messages"], json!([{"role": "user", "content": "hi"}]));
        assert_eq!((&told["max_tokens"], &told["ignore_eos"]), (&json!(9), &json!(true)));
        for (tier, classes) in [(Tier::Unsaid, Classes::ServiceTier), (Tier::Declared, Classes::Untold)] {
            let untold = body(&job(tier, Ending::EndOfTurn), classes);
            assert!(untold.get("service_tier").is_none() && untold.get("ignore_eos").is_none());
        }
    }

    /// A server that sends `response` to one request.
    fn answer_of(response: &'static str) -> (Result<(), SendError>, Answer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = String::new();
            while !seen.contains("ignore_eos") {
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).unwrap();
                seen += std::str::from_utf8(&bytes[..count]).unwrap();
            }
            stream.write_all(response.as_bytes()).unwrap();
        });
        let target = HttpTarget::new(&Server { name: "x".into(), url, classes: Classes::Untold });
        let mut answer = Answer::default();
        let deadline = Instant::now() + Duration::from_secs(20);
        let sent = target.send(&job(Tier::Declared, Ending::AllTokens), deadline, &mut answer);
        server.join().unwrap();
        (sent, answer)
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let (sent, answer) = answer_of(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
             data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}],\"usage\":null}\n\n\
             : comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
             data: [DONE]\n\n",
        );
        assert_eq!(sent, Ok(()));
        assert_eq!((answer.text.as_str(), answer.tokens.len()), ("abc", 2));
        let counts = Counts { prompt: Tokens(7), cached: Some(Tokens(4)), output: Tokens(3) };
        assert_eq!(answer.counts, Some(counts));
    }

    #[test]
    fn a_refusal_is_an_error_with_the_servers_words() {
        let (sent, _) = answer_of("HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy");
        assert_eq!(sent, Err(SendError::Failed("429 busy".to_owned())));
    }
}
