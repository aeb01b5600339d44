//! How an engine runs.

use crate::calibration::Calibrate;
use crate::executors::{Device, Fallback};
use crate::profile::FirstProfile;
use duet_history::HistoryStore;
use duet_model::Model;
use duet_model::encoder::Encoder;
use duet_model::kv::KvFormat;
use duet_scheduler::machine::RowsTaken;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Limits, Mechanisms, Verify};
use duet_speculate::Method;
use duet_types::{Bytes, Nanos, Tokens};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to run.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Threads; absent: one per core that is made for work.
    pub threads: Option<usize>,
    /// How keys and values are stored.
    pub kv_format: KvFormat,
    /// Memory for KV pages; absent: chosen from the model and the machine.
    pub kv_bytes: Option<Bytes>,
    /// Disk for KV pages under memory pressure; absent: twice the memory; zero: none.
    pub spill_bytes: Option<Bytes>,
    /// Where that is; absent: the system's folder for temporary files.
    pub spill_folder: Option<PathBuf>,
    /// Longest context; absent: the model's, or what KV memory holds if that is less.
    pub context: Option<Tokens>,
    /// Requests of each class that may wait; one more is refused as busy.
    pub queue_max: usize,
    /// Tokens that open requests may hold, in prompts and expected answers; a request beyond that is refused as busy.
    pub queue_tokens_max: Tokens,
    /// Who goes first.
    pub policy: PolicyName,
    /// What the policy may do.
    pub mechanisms: Mechanisms,
    /// Prompt tokens in a pass.
    pub chunk: Tokens,
    /// Requests that decode together at most.
    pub batch: usize,
    /// Longest that background work may keep a reactive request waiting.
    pub preempt: Duration,
    /// Longest gap between two tokens of a stream that work of its own class may cause.
    pub decode_stall: Duration,
    /// A proactive request that is older is overdue.
    pub proactive_age: Duration,
    /// How answers are drafted.
    pub speculate: Method,
    /// The model that drafts, for methods that have one. Its keys and values get an eighth of the memory for KV pages.
    pub draft: Option<Arc<Model>>,
    /// Rows of a draft that a request of a class may have in a pass at most, reactive and proactive.
    pub draft_rows: [Tokens; 2],
    /// How much of a draft is verified.
    pub verify: Verify,
    /// Whether prompts calibrate drafts, for methods that learn from them.
    pub calibrate: Calibrate,
    /// Where profiles of the machine are kept; absent: it is measured at every start.
    pub profile_folder: Option<PathBuf>,
    /// What is predicted with if none is there.
    pub first_profile: FirstProfile,
    /// Where it is kept how far drafters can be trusted; absent: every start learns it anew.
    pub learned_folder: Option<PathBuf>,
    /// Devices beside the cores, each a lane of its own.
    pub devices: Vec<Device>,
    /// What happens to work that a device does not do.
    pub fallback: Fallback,
    /// Shares of lanes, by their names, that may be used at most; `cpu` is all lanes of cores. The rest is left to the
    /// display or to other programs.
    pub occupancy: Vec<(String, f64)>,
    /// Watts of lanes while they work, by their names; `cpu` is each lane of cores. Nothing is decided by them: a log carries
    /// them, and what they come to is told.
    pub watts: Vec<(String, f64)>,
    /// Memory for graphs that a device of fixed shapes makes for exactly a prompt's rows; absent: an eighth of what the
    /// machine has left. With less than one takes, there are none.
    pub graph_bytes: Option<Bytes>,
    /// A timeline of kernels is written here, for Perfetto.
    pub trace: Option<PathBuf>,
    /// Events and commands of the scheduler are written here, for `duet replay`.
    pub event_log: Option<PathBuf>,
    /// A model beside the one that answers, for vectors or scores of texts.
    pub encoder: Option<Arc<Encoder>>,
    /// Answers are kept in it, to draft from; absent: they are not.
    pub history: Option<Arc<HistoryStore>>,
}

impl EngineConfig {
    /// The bounds that the scheduler of an engine with this configuration and context has.
    #[must_use]
    pub fn limits(&self, context: Tokens) -> Limits {
        let whole = self.devices.iter().any(|device| device.rows == RowsTaken::Chunk);
        let (chunk, batch) = (self.chunk.max(Tokens(1)), self.batch.max(1));
        Limits {
            chunk,
            batch,
            // The paper reads whole prompts layer by layer, and so does everybody on a device in its role; else duet and
            // the baselines read chunks through all layers, with the decode rows that ride along.
            prefill_rows: match self.policy {
                _ if whole => PREFILL_BUFFER.min(context).max(chunk),
                PolicyName::AgentXpu => PREFILL_BUFFER.min(context).max(chunk),
                _ => chunk + Tokens(batch as u32),
            },
            draft: self.draft_rows,
            verify: self.verify,
            preempt: Nanos::from(self.preempt),
            decode_stall: Nanos::from(self.decode_stall),
            age: Nanos::from(self.proactive_age),
            ..Limits::default()
        }
    }
}

/// The paper's prefill buffer. (Agent.xpu §4.1)
const PREFILL_BUFFER: Tokens = Tokens(4096);

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            threads: None,
            kv_format: KvFormat::default(),
            kv_bytes: None,
            spill_bytes: None,
            spill_folder: None,
            context: None,
            queue_max: 1024,
            queue_tokens_max: QUEUE_TOKENS_MAX,
            policy: PolicyName::default(),
            mechanisms: Mechanisms::ALL,
            chunk: Tokens(256),
            batch: 32,
            preempt: Duration::from_millis(10),
            decode_stall: Duration::from_millis(200),
            proactive_age: Duration::from_secs(30),
            speculate: Method::default(),
            draft: None,
            draft_rows: [Tokens(32); 2],
            verify: Verify::default(),
            calibrate: Calibrate::default(),
            profile_folder: None,
            first_profile: FirstProfile::default(),
            learned_folder: None,
            devices: Vec::new(),
            fallback: Fallback::default(),
            occupancy: Vec::new(),
            watts: Vec::new(),
            graph_bytes: None,
            trace: None,
            event_log: None,
            encoder: None,
            history: None,
        }
    }
}

/// 64 MB of token ids.
const QUEUE_TOKENS_MAX: Tokens = Tokens(16 << 20);
