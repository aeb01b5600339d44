//! Passes and kernels: how work is cut.
//!
//! A *pass* takes some rows of one or several requests through all nodes of the HEG, once. A *kernel* is a span of its
//! nodes, or one node on a part of its rows: the unit that is launched, and the longest that anything else has to wait.
//! Cutting loses nothing, since a pass holds its own state between nodes. (Agent.xpu §4.2: chunked kernels; §4.4:
//! preemption at their boundaries)

use duet_types::{Class, KernelId, LaneId, Nanos, Net, RequestId, Stage, Tokens};
use std::fmt;
use std::ops::Range;

/// A pass, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PassId(pub u64);

/// The rows of one request in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Member {
    /// Whose.
    pub request: RequestId,
    /// Who waits for it.
    pub class: Class,
    /// What the rows are to it.
    pub stage: Stage,
    /// Positions of the sequence: a chunk of the prompt, or the last token's one row. Verified, the rows of a draft follow
    /// it, as if they were positions.
    pub rows: Range<Tokens>,
    /// What it has at the end of the pass.
    pub yields: Yields,
    /// Which of its rows go through the head beside those that yield.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "HeadRows::is_last"))]
    pub head: HeadRows,
    /// Which model they go through: all members of a pass the same.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Net::is_decoder"))]
    pub net: Net,
}

/// Which rows of a prompt go through the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HeadRows {
    /// The last one, which yields the first token.
    #[default]
    Last,
    /// All: how likely each token of the prompt is after those before it is asked for.
    All,
}

impl HeadRows {
    /// Whether it is the last row alone.
    #[must_use]
    pub fn is_last(&self) -> bool {
        *self == Self::Last
    }
}

/// What a member has at the end of its pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Yields {
    /// Keys and values.
    Context,
    /// Keys and values, and the next token from its last row; from a draft, one from each row that is accepted.
    Token,
}

/// Which piece of a pass a kernel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The nodes.
    pub nodes: Range<usize>,
    /// The rows; all of them, unless it is one node.
    pub rows: Range<u32>,
}

/// A piece of a pass.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Kernel {
    /// Its id.
    pub id: KernelId,
    /// The pass it is a piece of. Its first kernel begins it.
    pub pass: PassId,
    /// Whose rows are in the pass, in the order of the rows.
    pub members: Vec<Member>,
    /// The span of HEG nodes.
    pub nodes: Range<usize>,
    /// Which rows of the pass, counted over all members. All of them, unless the span is one node.
    pub rows: Range<u32>,
    /// What is complete at its end.
    pub completes: Completes,
    /// How long it should have its lanes.
    pub predicted: Nanos,
    /// What it does when it comes to a node for which data has to be read from a disk.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "OnMiss::is_waits"))]
    pub on_miss: OnMiss,
    /// The rows of its token-wise nodes that devices of its team take, from the first on; the cores of the team take the
    /// others. None where its lanes are one executor.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub shares: Vec<Share>,
}

/// A device's rows of the token-wise nodes of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Share {
    /// The device's lane.
    pub lane: LaneId,
    /// Rows of each projection to queries, keys and values.
    pub qkv: Tokens,
    /// Rows of each feed-forward.
    pub ffn: Tokens,
}

impl Kernel {
    /// The model that its rows go through.
    #[must_use]
    pub fn net(&self) -> Net {
        self.members.first().map_or(Net::Decoder, |member| member.net)
    }
}

/// What a kernel does when data that it needs has to be read first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OnMiss {
    /// It keeps its lanes, and computes what is there while the rest comes.
    #[default]
    Waits,
    /// It may end there, with [`Outcome::Waits`](crate::Outcome::Waits), so that others have its lanes meanwhile.
    GivesBack,
}

impl OnMiss {
    /// Whether it keeps its lanes.
    #[must_use]
    pub fn is_waits(&self) -> bool {
        *self == Self::Waits
    }
}

/// What is complete when a kernel is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Completes {
    /// Some nodes, or some rows of a node: the pass goes on.
    Span,
    /// The pass, when the kernels of it that run beside this one have ended too.
    Pass,
}

impl Member {
    /// How many rows.
    #[must_use]
    pub fn len(&self) -> Tokens {
        self.rows.end - self.rows.start
    }

    /// Positions that are computed for its request when the pass is over and brought so many tokens: all of its rows, but
    /// of a draft those that were accepted.
    #[must_use]
    pub fn computed(&self, tokens: Tokens) -> Tokens {
        match self.stage {
            Stage::Verify => self.rows.start + tokens,
            Stage::Prefill | Stage::Decode => self.rows.end,
        }
    }

    /// How many of its rows go through the head.
    #[must_use]
    pub fn head_rows(&self) -> Tokens {
        match self.head {
            HeadRows::Last => self.token_rows(),
            HeadRows::All => self.len(),
        }
    }

    /// How many of its rows yield a token.
    #[must_use]
    pub fn token_rows(&self) -> Tokens {
        match (self.yields, self.stage) {
            (Yields::Context, _) => Tokens::ZERO,
            (Yields::Token, Stage::Verify) => self.len(),
            (Yields::Token, Stage::Prefill | Stage::Decode) => Tokens(1),
        }
    }

    /// Whether it has no row; a pass has no such member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Kernel {
    /// The class it is launched for: a person waits if one waits for any member.
    #[must_use]
    pub fn class(&self) -> Class {
        class_of(&self.members)
    }

    /// Prefill if any member reads its prompt, else verify if any has a draft.
    #[must_use]
    pub fn stage(&self) -> Stage {
        stage_of(&self.members)
    }
}

/// The class of a pass.
pub(crate) fn class_of(members: &[Member]) -> Class {
    let waits = members.iter().any(|member| member.class == Class::Reactive);
    if waits { Class::Reactive } else { Class::Proactive }
}

/// The stage of a pass.
pub(crate) fn stage_of(members: &[Member]) -> Stage {
    let any = |stage| members.iter().any(|member| member.stage == stage);
    [Stage::Prefill, Stage::Verify].into_iter().find(|&stage| any(stage)).unwrap_or(Stage::Decode)
}

impl fmt::Display for PassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
