//! Who goes first: the flags of everything that schedules.

use super::number;
use clap::Args;
use duet_engine::{EngineConfig, Mechanism, Mechanisms};
use duet_types::Tokens;
use std::path::PathBuf;
use std::time::Duration;

/// Who goes first, and what is remembered.
#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulingArgs {
    /// Longest that background work under way may keep a person waiting
    #[arg(long, value_name = "MS", default_value = "10", value_parser = milliseconds)]
    pub(crate) preempt_ms: Duration,
    /// Longest gap between two tokens of an answer that other prompts of its class may cause
    #[arg(long, value_name = "MS", default_value = "200", value_parser = milliseconds)]
    pub(crate) decode_stall_ms: Duration,
    /// Background requests that are older get a share of the machine, whatever else is asked of it
    #[arg(long, value_name = "S", default_value = "30", value_parser = age)]
    pub(crate) proactive_age: Duration,
    /// Drafted tokens that a request may have verified in a pass at most: one that a person waits for, and one of the
    /// background
    #[arg(long, value_name = "N,N", default_value = "32,32", value_parser = draft_rows)]
    pub(crate) draft_rows: DraftRows,
    /// Prompt tokens that are read in one pass
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) chunk: u32,
    /// Requests that decode together at most
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) batch: u16,
    /// Switch mechanisms of the policy off, to see what they are worth
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = mechanism, hide = true)]
    pub(crate) without: Vec<Mechanism>,
    /// Write a timeline of every kernel, for Perfetto (ui.perfetto.dev), which reads it too if it ends early
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Write what happened and what was decided, for `duet replay`; of a killed server it is read as far as it goes
    #[arg(long, value_name = "FILE")]
    pub(crate) event_log: Option<PathBuf>,
}

impl SchedulingArgs {
    /// As the engine wants it.
    pub(crate) fn apply(&self, config: EngineConfig) -> EngineConfig {
        EngineConfig {
            draft_rows: self.draft_rows.0,
            chunk: Tokens(self.chunk),
            batch: self.batch.into(),
            preempt: self.preempt_ms,
            decode_stall: self.decode_stall_ms,
            proactive_age: self.proactive_age,
            mechanisms: self.without.iter().fold(Mechanisms::ALL, |all, &mechanism| all.without(mechanism)),
            trace: self.trace.clone(),
            event_log: self.event_log.clone(),
            ..config
        }
    }
}

/// Of each class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftRows([Tokens; 2]);

fn draft_rows(text: &str) -> Result<DraftRows, String> {
    let number = |text: &str| text.trim().parse().ok().filter(|&rows| rows <= DRAFT_ROWS_MAX).map(Tokens);
    let both = text.split_once(',').and_then(|(one, other)| Some([number(one)?, number(other)?]));
    both.map(DraftRows).ok_or_else(|| format!("expected two numbers up to {DRAFT_ROWS_MAX}, like 32,8"))
}

/// A draft is never longer.
const DRAFT_ROWS_MAX: u32 = 32;

fn milliseconds(text: &str) -> Result<Duration, String> {
    number(text, 0.1..=60_000.0, "milliseconds, from 0.1 to 60000").map(|ms| Duration::from_secs_f64(ms / 1e3))
}

fn age(text: &str) -> Result<Duration, String> {
    number(text, 0.0..=86_400.0, "seconds, from 0 to 86400").map(Duration::from_secs_f64)
}

pub(super) fn mechanism(text: &str) -> Result<Mechanism, String> {
    text.parse()
}
