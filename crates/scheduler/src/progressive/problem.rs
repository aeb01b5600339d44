//! What is to be scheduled: a prompt, what is resident when it comes, and how much may be.

use super::blocks::{Blocks, Role};
use super::plan::Exchange;
use super::prompt::Prompt;
use duet_types::{Bytes, Tokens};

/// Which graphs of a block are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// None: one is being loaded into its place.
    None,
    /// One of them.
    One(Role),
    /// Both.
    Both,
}

/// A prompt that is read while graphs are exchanged, so that all blocks decode afterwards.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub(super) blocks: &'a Blocks,
    pub(super) prompt: Prompt,
    pub(super) resident: Vec<Role>,
    pub(super) exchange: Exchange,
}

/// Why there is nothing to be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemError {
    /// A prompt without rows, or one that ends beyond [`Blocks::POSITIONS_MAX`].
    Prompt(Prompt),
    /// What is resident is said of another number of blocks.
    Blocks {
        /// Blocks that the model has.
        expected: usize,
        /// Blocks of which it is said.
        found: usize,
    },
    /// One graph of every block does not fit.
    Budget {
        /// What exchanging them takes at least.
        needed: Bytes,
        /// What there is.
        budget: Bytes,
    },
}

impl Resident {
    /// Whether this graph is.
    #[must_use]
    pub fn has(self, role: Role) -> bool {
        self == Self::Both || self == Self::One(role)
    }
}

impl<'a> Problem<'a> {
    /// A prompt that comes while one graph of each block is `resident`. The budget decides whether a graph is kept until
    /// the one for its place is loaded.
    ///
    /// # Errors
    /// If the prompt cannot be, or not even one graph of each block fits.
    pub fn new(blocks: &'a Blocks, prompt: Prompt, resident: &[Role], budget: Bytes) -> Result<Self, ProblemError> {
        check(prompt)?;
        if resident.len() != blocks.count() {
            return Err(ProblemError::Blocks { expected: blocks.count(), found: resident.len() });
        }
        let exchange = match budget {
            budget if beside(blocks) <= budget => Exchange::Beside,
            budget if in_place(blocks) <= budget => Exchange::InPlace,
            budget => return Err(ProblemError::Budget { needed: in_place(blocks), budget }),
        };
        Ok(Self { blocks, prompt, resident: resident.to_vec(), exchange })
    }

    /// The paper's: all blocks have their prefill graphs, and there is room for one graph of each.
    ///
    /// # Errors
    /// If the prompt cannot be.
    pub fn in_place(blocks: &'a Blocks, prompt: Prompt) -> Result<Self, ProblemError> {
        Self::new(blocks, prompt, &vec![Role::Prefill; blocks.count()], in_place(blocks))
    }

    /// The same with room for one graph more.
    ///
    /// # Errors
    /// If the prompt cannot be.
    pub fn beside(blocks: &'a Blocks, prompt: Prompt) -> Result<Self, ProblemError> {
        Self::new(blocks, prompt, &vec![Role::Prefill; blocks.count()], beside(blocks))
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &'a Blocks {
        self.blocks
    }

    /// How graphs take each other's place.
    #[must_use]
    pub fn exchange(&self) -> Exchange {
        self.exchange
    }

    /// Places before the end.
    pub(super) fn places(&self) -> usize {
        self.prompt.chunks(self.blocks) as usize * self.blocks.count()
    }

    /// Blocks whose decode graph is not resident.
    pub(super) fn unswitched(&self) -> Vec<usize> {
        (0..self.resident.len()).filter(|&block| self.resident[block] == Role::Prefill).collect()
    }
}

/// What a prompt must be for sums of its times to fit.
pub(super) fn check(prompt: Prompt) -> Result<(), ProblemError> {
    let end = u64::from(prompt.context.0) + u64::from(prompt.rows.0);
    let fits = prompt.rows > Tokens::ZERO && end <= u64::from(Blocks::POSITIONS_MAX.0);
    if fits { Ok(()) } else { Err(ProblemError::Prompt(prompt)) }
}

/// Room for the larger graph of every block: whatever is exchanged first fits.
fn in_place(blocks: &Blocks) -> Bytes {
    let larger = |block| blocks.cost(block, Role::Prefill).bytes.max(blocks.cost(block, Role::Decode).bytes);
    (0..blocks.count()).map(larger).sum()
}

/// The same and the other graph of the block that takes most.
fn beside(blocks: &Blocks) -> Bytes {
    let smaller = |block| blocks.cost(block, Role::Prefill).bytes.min(blocks.cost(block, Role::Decode).bytes);
    in_place(blocks) + (0..blocks.count()).map(smaller).max().unwrap_or_default()
}

impl std::fmt::Display for ProblemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prompt(Prompt { context, rows }) => write!(
                f,
                "a prompt of {rows} rows after {context} positions: from 1 row to {} positions can be",
                Blocks::POSITIONS_MAX
            ),
            Self::Blocks { expected, found } => {
                write!(f, "graphs of {found} blocks are resident, and the model has {expected}")
            }
            Self::Budget { needed, budget } => {
                write!(f, "graphs may take {budget}, and one of each block takes {needed}: raise the budget")
            }
        }
    }
}

impl std::error::Error for ProblemError {}
