//! `duet bench speculate`: its flags.

use super::{DraftArgs, EngineArgs};
use crate::bad_input::BadInput;
use clap::{Args, ValueEnum};
use duet_bench::speculate::Contender;
use duet_engine::{Calibrate, Method, Verify};
use std::path::PathBuf;

/// `duet bench speculate`
#[derive(Debug, Args)]
pub(crate) struct SpeculateArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Prompts, one JSON object a line
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) workload: Vec<PathBuf>,
    /// What to compare [default: all; draft-model and duet+draft with --draft]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = contender)]
    pub(crate) method: Vec<Contender>,
    /// Prompts of each file at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = super::count())]
    pub(crate) limit: usize,
    /// Tokens of an answer at most
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) max_tokens: u32,
    /// Draw answers at this temperature; 0 is greedy, and at 1.5 next to nothing of a draft comes true
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = super::temperature)]
    pub(crate) temperature: f32,
    /// How much of a draft is verified: as much as pays on this machine, or all of it
    #[arg(long, value_name = "ROWS", default_value = "paying")]
    pub(crate) verify: VerifyName,
    /// What is computed of the prompt's rows for calibration: nothing, the prompt's own tokens, or the whole head
    #[arg(long, value_name = "HEAD", default_value = "context")]
    pub(crate) calibrate: CalibrateName,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

impl SpeculateArgs {
    /// What to compare.
    ///
    /// # Errors
    /// If a method needs a draft model and there is none.
    pub(crate) fn contenders(&self) -> Result<Vec<Contender>, BadInput> {
        let has_draft = self.draft.draft_model.is_some();
        if self.method.is_empty() {
            let methods = Method::ALL.into_iter().filter(|method| has_draft || !method.has_model());
            return Ok(methods.map(Contender::Runs).chain([Contender::EagleSimulated]).collect());
        }
        let needs = |contender: &Contender| matches!(contender, Contender::Runs(method) if method.has_model());
        if !has_draft && self.method.iter().any(needs) {
            return Err(BadInput("--method: draft-model and duet+draft need a draft model: --draft MODEL".into()));
        }
        Ok(self.method.clone())
    }
}

/// `duet bench identity`
#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Prompts, one JSON object a line
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) workload: Vec<PathBuf>,
    /// Prompts of each file at most [default: all]
    #[arg(long, value_name = "N", value_parser = super::count())]
    pub(crate) limit: Option<usize>,
    /// Tokens of an answer at most
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) max_tokens: u32,
    /// Draw answers at this temperature; 0 is greedy, and at 1.5 next to nothing of a draft comes true
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = super::temperature)]
    pub(crate) temperature: f32,
    /// How much of a draft is verified: as much as pays on this machine, or all of it
    #[arg(long, value_name = "ROWS", default_value = "all")]
    pub(crate) verify: VerifyName,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// How much of a draft is verified, as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum VerifyName {
    Paying,
    All,
}

/// A head as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CalibrateName {
    Off,
    Context,
    Full,
}

impl From<VerifyName> for Verify {
    fn from(name: VerifyName) -> Self {
        match name {
            VerifyName::Paying => Self::Paying,
            VerifyName::All => Self::All,
        }
    }
}

impl From<CalibrateName> for Calibrate {
    fn from(name: CalibrateName) -> Self {
        match name {
            CalibrateName::Off => Self::Off,
            CalibrateName::Context => Self::Context,
            CalibrateName::Full => Self::Full,
        }
    }
}

fn contender(text: &str) -> Result<Contender, String> {
    match text {
        "eagle-sim" => Ok(Contender::EagleSimulated),
        method => method.parse().map(Contender::Runs).map_err(|error| format!("{error}, eagle-sim")),
    }
}
