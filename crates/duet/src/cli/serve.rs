//! `duet serve`: its flags.

use super::{ClassName, DeviceArgs, DraftArgs, EngineArgs, HistoryArgs, SchedulingArgs, count, policy};
use clap::{Args, ValueEnum};
use duet_engine::PolicyName;
use duet_server::{BehindAnswers, KeepPrefix};
use std::net::IpAddr;
use std::path::PathBuf;

/// `duet serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// A model for embeddings or for ranking (BERT, Qwen3-Embedding) that serves /v1/embeddings and /v1/rerank beside it
    #[arg(long, value_name = "MODEL")]
    pub(crate) embeddings: Option<String>,
    /// Address to listen on; 0.0.0.0 lets other machines in
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// Answer clients that address the server by this name, too, and pages of it or of this origin (several times; `*`:
    /// any). Addresses and `localhost` are always answered; a name that a web page brings along is not, so that no page can
    /// reach the server
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Answer requests for a model of this name, too (several times): for clients that ask for one by a name of their own
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Vec<String>,
    /// Connections at once; one more takes the place of one that says nothing
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count())]
    pub(crate) connections: usize,
    /// Let in holders of these API keys only: `name:key` on each line, `admin name:key` for one that sees all flows;
    /// DUET_API_KEY may hold one more
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Whether a person waits for requests that do not say so
    #[arg(long, value_name = "CLASS", default_value = "reactive")]
    pub(crate) default_class: ClassName,
    /// Clocks and billing headers that clients write into instructions anew with every request: `keep` the prefix behind
    /// them by moving or leaving them out, or serve them `as-sent`
    #[arg(long, value_name = "HOW", default_value = "keep")]
    pub(crate) volatile_prefix: VolatilePrefix,
    /// Requests for titles, tags and suggestions that clients send behind an answer, if they do not say their class:
    /// `background`, or `as-said`, as all others
    #[arg(long, value_name = "CLASS", default_value = "background")]
    pub(crate) behind_answers: BehindAnswersName,
    /// What decides; `duet` is the best, the others are for comparison
    #[arg(long, value_name = "NAME", default_value = "duet", value_parser = policy)]
    pub(crate) policy: PolicyName,
    /// Who goes first.
    #[command(flatten)]
    pub(crate) scheduling: SchedulingArgs,
    /// What is kept.
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
    /// Print the lanes at the start, with what they can do and how fast they were measured, a JSON object each
    #[arg(long)]
    pub(crate) lanes: bool,
    /// Where matrix products are done.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// What drafts.
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// What becomes of volatile lines, as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum VolatilePrefix {
    Keep,
    AsSent,
}

impl From<VolatilePrefix> for KeepPrefix {
    fn from(name: VolatilePrefix) -> Self {
        match name {
            VolatilePrefix::Keep => Self::Kept,
            VolatilePrefix::AsSent => Self::AsSent,
        }
    }
}

/// The class of requests behind answers, as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BehindAnswersName {
    Background,
    AsSaid,
}

impl From<BehindAnswersName> for BehindAnswers {
    fn from(name: BehindAnswersName) -> Self {
        match name {
            BehindAnswersName::Background => Self::Background,
            BehindAnswersName::AsSaid => Self::AsSaid,
        }
    }
}
