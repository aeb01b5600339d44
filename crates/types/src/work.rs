//! What kind of work a request is, where it stands, and how it ended.

/// Who waits for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Class {
    /// A person waits for it.
    #[default]
    Reactive,
    /// An agent works in the background.
    Proactive,
}

/// Which of the models that are loaded a request goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Net {
    /// The one that answers.
    #[default]
    Decoder,
    /// The one that makes vectors or scores of texts: in one pass over all rows, and nothing of it is kept.
    Encoder,
}

impl Net {
    /// Whether it is the one that answers, which need not be said.
    #[must_use]
    pub fn is_decoder(&self) -> bool {
        *self == Self::Decoder
    }
}

/// What a kernel does for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Stage {
    /// Reads the prompt into the KV cache.
    Prefill,
    /// Produces the next token.
    Decode,
    /// Checks a draft of several tokens in one pass.
    Verify,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FinishReason {
    /// The model ended its turn, or a stop string appeared.
    Stop,
    /// The token limit or the context was reached.
    Length,
    /// The client went away or asked for it.
    Cancelled,
}
