//! Why a scenario cannot be run with real tokens.

use duet_types::{TokenId, Tokens};

/// What does not fit together. Clients are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionalError {
    /// Not one prompt for each client.
    #[error("there are {prompts} prompts for {clients} clients")]
    Prompts {
        /// Prompts given.
        prompts: usize,
        /// Clients of the scenario.
        clients: usize,
    },
    /// A prompt without a token.
    #[error("the prompt of client {client} is empty")]
    EmptyPrompt {
        /// The client that sent it.
        client: usize,
    },
    /// A prompt that leaves no room for an answer.
    #[error("the prompt of client {client} has {prompt} tokens, and the model's context {context}")]
    PromptTooLong {
        /// The client that sent it.
        client: usize,
        /// Its length.
        prompt: usize,
        /// The longest sequence.
        context: Tokens,
    },
    /// A token outside the vocabulary.
    #[error("token {token} in the prompt of client {client} is not in the model's vocabulary")]
    Token {
        /// The client that sent it.
        client: usize,
        /// The token that the vocabulary lacks.
        token: TokenId,
    },
    /// Kernels are spans of nodes: the scheduler must count the nodes that the model has.
    #[error("the machine is described for a model of {machine} layers, and this model has {model}")]
    Layers {
        /// Layers that the scheduler knows of.
        machine: usize,
        /// Layers of the model.
        model: usize,
    },
}
