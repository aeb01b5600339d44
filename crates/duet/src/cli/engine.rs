//! How the engine of a command runs: its flags.

use super::bytes;
use clap::{Args, ValueEnum};
use duet_engine::{EngineConfig, Method};
use duet_model::kv::KvFormat;
use duet_types::{Bytes, Tokens};
use std::path::PathBuf;

/// How the engine runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// Threads to compute with [default: one per core that is made for work, however many threads a core has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Longest conversation in tokens [default: the model's]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ctx: Option<u32>,
    /// How keys and values are stored; f16 takes twice the memory, int4 a fifth less
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) kv: Kv,
    /// Memory for keys and values [default: a quarter of what is available]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) kv_memory: Option<Bytes>,
    /// Disk for keys and values that memory has no room for; 0 for none [default: twice the memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) spill: Option<Bytes>,
    /// Draft answers and verify several tokens at once, which changes no token: on, off, or a method of `bench speculate`
    #[arg(long, value_name = "METHOD", default_value = "on", value_parser = speculate)]
    pub(crate) speculate: Method,
    /// Disk for packed weights, of all models, which later starts map instead of packing them; 0 for none [default: 32G]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) weight_cache: Option<Bytes>,
    /// Memory for the experts of a mixture; those that it has no room for stay on disk, in the packed weights, and are read
    /// when a token goes to them [default: all are in memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) expert_memory: Option<Bytes>,
}

fn speculate(text: &str) -> Result<Method, String> {
    match text {
        "on" => Ok(Method::default()),
        "off" => Ok(Method::None),
        method => method.parse().map_err(|error| format!("{error}, on and off")),
    }
}

impl EngineArgs {
    /// For a command that measures plain prompts and answers: no drafts, and nothing goes to disk.
    pub(crate) fn to_measure(threads: Option<usize>, expert_memory: Option<Bytes>) -> Self {
        Self {
            threads: threads.map(|threads| u16::try_from(threads).unwrap_or(u16::MAX)),
            ctx: None,
            kv: Kv::default(),
            kv_memory: None,
            spill: Some(Bytes(0)),
            speculate: Method::None,
            weight_cache: None,
            expert_memory,
        }
    }

    /// As the engine wants it.
    pub(crate) fn config(&self) -> EngineConfig {
        EngineConfig {
            threads: self.threads.map(usize::from),
            kv_format: self.kv.format(),
            context: self.ctx.map(Tokens),
            kv_bytes: self.kv_memory,
            spill_bytes: self.spill,
            speculate: self.speculate,
            spill_folder: folder("spill"),
            profile_folder: folder("profiles"),
            ..EngineConfig::default()
        }
    }
}

/// A KV cache format as it is written. Variants without help of their own keep the help page short.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kv {
    F16,
    Int8,
    Int4,
}

impl Default for Kv {
    fn default() -> Self {
        match KvFormat::default() {
            KvFormat::F16 => Self::F16,
            KvFormat::Int8 => Self::Int8,
            KvFormat::Int4 => Self::Int4,
        }
    }
}

impl Kv {
    /// As the model wants it.
    pub(crate) fn format(self) -> KvFormat {
        match self {
            Self::F16 => KvFormat::F16,
            Self::Int8 => KvFormat::Int8,
            Self::Int4 => KvFormat::Int4,
        }
    }
}

/// A folder of the cache; absent if this machine has no place for one.
fn folder(name: &str) -> Option<PathBuf> {
    crate::models::cache_folder(name).ok()
}
