//! How the server behaves.

use crate::guard::Hosts;
use crate::keys::ApiKeys;
use duet_types::Class;
use std::time::Duration;

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Largest request body in bytes; a longer one is answered 413.
    pub body_bytes_max: usize,
    /// Bytes that large bodies may hold together, until their prompts are tokens; what has no room is answered 429.
    pub intake_bytes_max: usize,
    /// Connections at once. Below the usual limit of 1024 open files, with room for the engine's.
    pub connections_max: usize,
    /// How long clients may keep the server waiting.
    pub times: Times,
    /// Further names by which clients may ask for the loaded model.
    pub aliases: Vec<String>,
    /// Who may ask; with no keys, everyone.
    pub keys: ApiKeys,
    /// The class of requests that do not say theirs.
    pub class_default: Class,
    /// What becomes of lines that clients write anew with every request.
    pub prefix: KeepPrefix,
    /// The class of requests that clients send behind an answer, if they do not say theirs.
    pub behind_answers: BehindAnswers,
    /// The listener is bound to loopback: whoever asks is on this machine.
    pub loopback_only: bool,
    /// The names by which clients may address the server.
    pub hosts: Hosts,
    /// After the shutdown signal, how long generations under way may still run.
    pub shutdown_grace: Duration,
}

/// Requests for titles, tags and suggestions that clients send behind an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BehindAnswers {
    /// They are background work, unless their clients say otherwise.
    #[default]
    Background,
    /// They are as all other requests.
    AsSaid,
}

/// What becomes of lines of instructions that clients write anew with every request: clocks, billing headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepPrefix {
    /// They are moved or left out, so that a conversation that goes on is found again.
    #[default]
    Kept,
    /// They stay where they are.
    AsSent,
}

/// How long clients may keep the server waiting before it closes their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until the head of a request is whole, from when the connection is free for one; so idle ones end after it, too.
    pub head: Duration,
    /// For the next bytes of a body.
    pub body_pause: Duration,
    /// Until a body is whole.
    pub body: Duration,
    /// Until more of a response is taken.
    pub write: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: 10 << 20,
            intake_bytes_max: 48 << 20,
            connections_max: 512,
            times: Times::default(),
            aliases: Vec::new(),
            keys: ApiKeys::default(),
            class_default: Class::Reactive,
            prefix: KeepPrefix::default(),
            behind_answers: BehindAnswers::default(),
            loopback_only: false,
            hosts: Hosts::default(),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl Default for Times {
    /// Longer than any client or network that works takes.
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            body_pause: Duration::from_secs(10),
            body: Duration::from_secs(120),
            write: Duration::from_secs(30),
        }
    }
}
