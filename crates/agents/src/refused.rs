//! Why a request cannot be held to what it asks for.

/// Why a request cannot be held to what it asks for. It is the client's to mend: the words are for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A schema has more text than is worked through.
    #[error("the schema of {of} has {bytes} bytes; the limit is {limit}")]
    SchemaSize {
        /// Whose schema: a tool's name or the answer.
        of: String,
        /// How long it is as JSON.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The schemas of all tools and the answer have more text than is worked through, each parameter with what it refers to.
    #[error(
        "together with the definitions that each parameter refers to, the schemas up to that of {of} have {bytes} bytes; \
         the limit is {limit}"
    )]
    Schemas {
        /// Whose schema was too much.
        of: String,
        /// How long they are as JSON.
        bytes: usize,
        /// How long they may be.
        limit: usize,
    },
    /// A keyword that cannot be enforced where it must be.
    #[error("the schema of {of} uses '{keyword}' at '{path}', which is not supported")]
    Keyword {
        /// Whose schema.
        of: String,
        /// Where, as a JSON pointer into the schema.
        path: String,
        /// The keyword.
        keyword: String,
    },
    /// A reference that leads nowhere inside the schema.
    #[error("the schema of {of} refers to '{reference}' at '{path}': only what is inside it ('#/...') can be")]
    Reference {
        /// Whose schema.
        of: String,
        /// Where, as a JSON pointer into the schema.
        path: String,
        /// What it refers to.
        reference: String,
    },
    /// A schema that is none, that nothing satisfies, or that is too complex.
    #[error("the schema of {of}: {reason}")]
    Schema {
        /// Whose schema.
        of: String,
        /// What is wrong.
        reason: String,
    },
    /// A regular expression, a choice or a grammar that is none.
    #[error("the grammar of the answer: {reason}")]
    Grammar {
        /// What is wrong.
        reason: String,
    },
    /// A tool must be called that is not there.
    #[error("tool_choice names '{name}', which is not among the tools")]
    UnknownTool {
        /// The name.
        name: String,
    },
    /// A tool must be called, and there is none.
    #[error("tool_choice requires a call, and there are no tools")]
    NoTools,
    /// A tool whose name could not be told from what stands around it.
    #[error("'{name}' cannot be a tool's name: letters, digits, '_', '-' and '.', at most {limit}", limit = crate::format::NAME_MAX)]
    ToolName {
        /// The name.
        name: String,
    },
    /// A vocabulary that no mask can be made for.
    #[error("the vocabulary: {reason}")]
    Vocabulary {
        /// What is wrong.
        reason: String,
    },
}

impl Refused {
    /// That a grammar is none, for this reason.
    pub(crate) fn grammar<T>(reason: &str) -> Result<T, Self> {
        Err(Self::Grammar { reason: reason.to_owned() })
    }
}
