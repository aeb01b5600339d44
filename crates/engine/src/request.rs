//! What a client asks of the engine, and what comes back.

use crate::constraint::Constraint;
use crate::draft_counts::DraftCounts;
use crate::thought::ThoughtBound;
use duet_history::{TaskName, UserName};
use duet_model::ExpertReads;
use duet_model::forward::FateCounts;
use duet_types::{Class, FinishReason, TenantId, TokenId, Tokens};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How the next token is chosen. The default is greedy with nothing penalised.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of this probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest; 0 drops none.
    pub min_p: f32,
    /// Divide positive (multiply negative) logits of seen tokens by this; 1 is off. As in llama.cpp and CTRL.
    pub repetition_penalty: f32,
    /// Subtract from the logits of tokens that were generated; OpenAI's.
    pub presence_penalty: f32,
    /// Subtract once per occurrence among the generated tokens; OpenAI's.
    pub frequency_penalty: f32,
    /// Added to these tokens' logits, -100 to 100.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Same seed, same text. Absent: chosen at random by the engine.
    pub seed: Option<u64>,
}

/// When to stop.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StopConditions {
    /// At most this many generated tokens; absent: to the end of the context. None at all is for those that want to know of
    /// the prompt only: it is read, and nothing of it is kept.
    pub max_tokens: Option<Tokens>,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Go on past the model's end-of-turn tokens.
    pub ignore_eos: bool,
}

/// One generation. The default is greedy, and nobody's in particular.
#[derive(Clone, Debug, Default)]
pub struct GenerateRequest {
    /// The prompt, special tokens included.
    pub prompt: Vec<TokenId>,
    /// How to choose tokens.
    pub sampling: SamplingParams,
    /// When to stop.
    pub stop: StopConditions,
    /// Who waits for it.
    pub class: Class,
    /// How many alternatives to report with each token; absent: no log probabilities.
    pub logprobs: Option<u8>,
    /// How many alternatives to report with each token of the prompt; absent: no log probabilities of it. All of the prompt
    /// is read then: nothing that is kept stands in for a part of it.
    pub prompt_logprobs: Option<u8>,
    /// The flow it is of; absent: the one whose kept KV its prompt continues, or a new one.
    pub flow: Option<FlowKey>,
    /// Whose it is. Nothing that is cached for one tenant is used for another.
    pub tenant: TenantId,
    /// What the client expects as an answer, to be drafted; it changes no token. (OpenAI: predicted outputs)
    pub predicted: Vec<TokenId>,
    /// What the tenant is called in the history, which outlives its number.
    pub user: UserName,
    /// What it is for: answers to the same user's requests of this task may be like it.
    pub task: TaskName,
    /// Whether later answers may be drafted from this one.
    pub remember: Remember,
    /// Whether it is drafted.
    pub drafts: Drafts,
    /// What the answer is held to; absent: nothing.
    pub constraint: Option<Constraint>,
    /// How long it may reason before its answer; absent: as long as it likes.
    pub thought: Option<ThoughtBound>,
    /// Whether the client hears how far its prompt was read.
    pub progress: Progress,
    /// Special tokens that are written out in the text, by their names: whoever reads calls out of it needs their marks.
    pub marks: Vec<TokenId>,
    /// What is wanted of it.
    pub output: Output,
}

/// What comes of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// An answer.
    #[default]
    Answer,
    /// Nothing but that the prompt is read, and kept for the requests that begin with it. How tokens are chosen and when to
    /// stop is checked, and of no matter.
    KeptPrompt,
    /// The prompt's embedding, and no token: all of the prompt is read, nothing that is kept stands in for a part of it, and
    /// nothing of it is kept. How tokens are chosen and when to stop is of no matter then.
    Embedding,
}

/// Whether a client hears how far its prompt was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It hears of tokens only.
    #[default]
    Untold,
    /// It does, after each chunk.
    Told,
}

/// Whether an answer is drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drafts {
    /// By the engine's method.
    #[default]
    ByMethod,
    /// It is not: token by token.
    None,
}

/// Whether an answer is kept in the history, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remember {
    /// It is.
    #[default]
    Answer,
    /// It is not. It may still be drafted from others.
    Nothing,
}

/// What a client calls a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub Arc<str>);

/// What a generation yields, in order: any number of `Reading`s and `Prompt`s if asked for, any number of `Token`s or one
/// `Embedding`, then exactly one `Finished` or `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// A part of the prompt was read.
    Reading {
        /// Positions that were computed or were there.
        read: Tokens,
        /// Of these, those that were there.
        cached: Tokens,
    },
    /// The next tokens of the prompt, if their log probabilities were asked for: all of them come, each once, from the first
    /// one on.
    Prompt(Vec<PromptToken>),
    /// One token was generated. `text` never ends within a character and never holds a part of a stop string;
    /// it may be empty while bytes are held back.
    Token {
        /// The token.
        token: TokenId,
        /// Text that became certain with it.
        text: String,
        /// Present if asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// What the prompt is as a vector ([`Output::Embedding`]): the mean of the final hidden states of its tokens, behind the
    /// final norm, at a length of 1.
    Embedding(Vec<f32>),
    /// The end. `text` is what had been held back and is certain now.
    Finished {
        /// The last text, often empty.
        text: String,
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
    /// The engine could not go on.
    Failed(EngineError),
}

/// A token of a prompt, and how likely it is after those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptToken {
    /// The token.
    pub token: TokenId,
    /// Absent of the first one, before which there is nothing.
    pub logprobs: Option<TokenLogprobs>,
}

/// Log probabilities of one step, by the model's own logits: before temperature, penalties, biases and grammars.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// The likeliest tokens, best first.
    pub top: Vec<(TokenId, f32)>,
}

/// What a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: Tokens,
    /// Of these, read from a flow's KV instead of computed.
    pub cached: Tokens,
    /// Generated tokens (an end-of-turn token counts).
    pub generated: Tokens,
    /// Of these, tokens that the answer's grammar left no choice for.
    pub forced: Tokens,
    /// What came of drafts of them.
    pub drafts: DraftCounts,
    /// Where its tokens' experts were computed, if a device computes some.
    pub experts: FateCounts,
    /// Experts that were not in memory when its passes asked for them, if some are on disk. What they asked for other requests
    /// counts for it, too.
    pub expert_reads: ExpertReads,
    /// The stop string that ended it, by its place among the request's; none if it ended otherwise.
    pub stopped_by: Option<usize>,
    /// From submission to the first token.
    pub time_to_first_token: Duration,
    /// From submission to the end.
    pub total: Duration,
}

/// Why a request was refused or ended early.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// Nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Prompt longer than the context.
    #[error("the prompt of {prompt} tokens does not fit the context of {context}")]
    PromptTooLong {
        /// Its length.
        prompt: Tokens,
        /// The limit.
        context: Tokens,
    },
    /// A parameter out of range.
    #[error("{name} must be {expected}, got {value}")]
    Parameter {
        /// The OpenAI name of the parameter.
        name: &'static str,
        /// The allowed range, in words.
        expected: &'static str,
        /// What came.
        value: String,
    },
    /// Too many requests wait.
    #[error("{queued} requests are waiting; try again later")]
    Busy {
        /// How many requests of the class wait already.
        queued: usize,
    },
    /// KV memory ran out.
    #[error("out of KV cache memory: {0}")]
    OutOfMemory(String),
    /// What an answer is held to became too large, or nothing that the model can write fits it.
    #[error(
        "the answer cannot be held to its form any further: its grammar or schema became too large here, or no token fits \
         it; make it simpler"
    )]
    FormLost,
    /// A file that the engine was to write.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: String,
    },
    /// Settings that cannot be together, or that name what there is not.
    #[error("{0}")]
    Configuration(String),
    /// A device did not run a kernel that nothing else may run.
    #[error("{device} cannot go on: {error}")]
    Device {
        /// The device's name.
        device: String,
        /// What the device's runtime said.
        error: String,
    },
    /// Weights that are on disk could not be read.
    #[error("{0}")]
    Weights(String),
    /// The engine is stopping.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// A bug: a kernel panicked. The engine goes on with other requests.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}
