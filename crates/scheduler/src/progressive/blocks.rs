//! The blocks of a model, and what each costs on either graph, as it was profiled. (CoordGen §3.1)
//!
//! A graph takes what its rows take, however many of them are wanted; the more positions it attends to, the longer, and
//! evenly so. **Invariant:** all times are so bounded that sums over any prompt fit in nanoseconds.

use duet_types::{Bytes, Nanos, Tokens};

/// The two graphs of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// Many rows (`G¹`).
    Prefill,
    /// Few rows (`G²`).
    Decode,
}

/// Something of either graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pair<T> {
    /// Of the graph that prompts are read on.
    pub prefill: T,
    /// Of the graph that decodes.
    pub decode: T,
}

/// How long a pass takes after some positions: `empty + positions × per_position`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PassTime {
    /// After none, the launch included.
    pub empty: Nanos,
    /// More for each position.
    pub per_position: Nanos,
}

/// What a graph of a block costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GraphCost {
    /// One pass over all of its rows.
    pub pass: PassTime,
    /// Loading it.
    pub load: Nanos,
    /// Keeping it, weights included.
    pub bytes: Bytes,
}

/// What the graphs of a block cost.
pub type Block = Pair<GraphCost>;

/// All blocks of a model, in the order in which a row passes them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "Written"))]
pub struct Blocks {
    rows: Pair<Tokens>,
    blocks: Vec<Block>,
}

/// Blocks as they are written, which nobody has looked at.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
struct Written {
    rows: Pair<Tokens>,
    blocks: Vec<Block>,
}

#[cfg(feature = "serde")]
impl TryFrom<Written> for Blocks {
    type Error = BlocksError;

    fn try_from(Written { rows, blocks }: Written) -> Result<Self, BlocksError> {
        Self::new(rows, blocks)
    }
}

/// Why something is no profile of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlocksError {
    /// No block, or more than a model has layers.
    Count(usize),
    /// A graph without rows, or with fewer to read prompts than to decode.
    Rows(Pair<Tokens>),
    /// A time beyond [`Blocks::TIME_MAX`], or a graph beyond what memory can be, of the block of this index.
    Bound(usize),
}

impl Role {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Prefill => Self::Decode,
            Self::Decode => Self::Prefill,
        }
    }
}

impl<T: Copy> Pair<T> {
    /// That of one graph.
    #[must_use]
    pub fn of(&self, role: Role) -> T {
        match role {
            Role::Prefill => self.prefill,
            Role::Decode => self.decode,
        }
    }
}

impl PassTime {
    /// A pass after so many positions.
    #[must_use]
    pub fn after(self, positions: Tokens) -> Nanos {
        Nanos(self.empty.0 + u64::from(positions.0) * self.per_position.0)
    }
}

impl GraphCost {
    /// Whether the longest prompt is read on a graph of so many rows, and the graph loaded, in a time that fits.
    fn is_bounded(&self, rows: Tokens) -> bool {
        let Tokens(positions) = Blocks::POSITIONS_MAX;
        let longest = u64::from(positions).saturating_mul(self.pass.per_position.0).saturating_add(self.pass.empty.0);
        let all = longest.saturating_mul(u64::from(positions.div_ceil(rows.0)));
        all <= Blocks::TIME_MAX.0 && self.load <= Blocks::TIME_MAX && self.bytes.0 <= BYTES_MAX
    }
}

impl Blocks {
    /// More blocks than any model has layers: the bound of everything that is computed for each.
    pub const COUNT_MAX: usize = 128;
    /// Prompts and contexts are shorter than this, so that sums of times fit.
    pub const POSITIONS_MAX: Tokens = Tokens(1 << 20);
    /// A load takes no longer, nor does reading as many positions as there can be in a block: months, so that sums over all
    /// blocks fit.
    pub const TIME_MAX: Nanos = Nanos(1 << 54);

    /// Graphs of so many rows, and what they cost in each block.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn new(rows: Pair<Tokens>, blocks: Vec<Block>) -> Result<Self, BlocksError> {
        if blocks.is_empty() || blocks.len() > Self::COUNT_MAX {
            return Err(BlocksError::Count(blocks.len()));
        }
        if rows.decode == Tokens::ZERO || rows.prefill < rows.decode || rows.prefill > Self::POSITIONS_MAX {
            return Err(BlocksError::Rows(rows));
        }
        let is_bounded =
            |block: &Block| [Role::Prefill, Role::Decode].iter().all(|&role| block.of(role).is_bounded(rows.of(role)));
        match blocks.iter().position(|block| !is_bounded(block)) {
            Some(index) => Err(BlocksError::Bound(index)),
            None => Ok(Self { rows, blocks }),
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Rows of the graphs.
    #[must_use]
    pub fn rows(&self) -> Pair<Tokens> {
        self.rows
    }

    /// What a graph of a block costs.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn cost(&self, block: usize, role: Role) -> GraphCost {
        self.blocks[block].of(role)
    }

    /// Passes of a graph that so many rows take.
    #[must_use]
    pub fn passes(&self, role: Role, rows: Tokens) -> u32 {
        rows.0.div_ceil(self.rows.of(role).0)
    }

    /// How long some rows of a sequence take in a block, pass after pass: several passes over few rows compute what one
    /// over many does. (CoordGen §3.2, "graph equivalence by repetition")
    #[must_use]
    pub fn time(&self, block: usize, role: Role, context: Tokens, rows: Tokens) -> Nanos {
        let PassTime { empty, per_position } = self.cost(block, role).pass;
        let (passes, each) = (u64::from(self.passes(role, rows)), u64::from(self.rows.of(role).0));
        // Each pass begins after the rows of those before it: 0, 1, 2 … times as many as a graph has.
        let positions = passes * u64::from(context.0) + each * (passes * passes.saturating_sub(1) / 2);
        Nanos(passes * empty.0 + positions * per_position.0)
    }

    /// One pass of all blocks after so many positions.
    #[must_use]
    pub fn pass(&self, role: Role, context: Tokens) -> Nanos {
        self.blocks.iter().map(|block| block.of(role).pass.after(context)).sum()
    }

    /// Loading a graph of every block.
    #[must_use]
    pub fn load(&self, role: Role) -> Nanos {
        self.blocks.iter().map(|block| block.of(role).load).sum()
    }

    /// Keeping a graph of every block.
    #[must_use]
    pub fn bytes(&self, role: Role) -> Bytes {
        self.blocks.iter().map(|block| block.of(role).bytes).sum()
    }
}

/// A graph is smaller: 256 TiB, so that sums over all blocks fit.
const BYTES_MAX: u64 = 1 << 48;

impl std::fmt::Display for BlocksError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "a model of {count} blocks: from 1 to {} can be", Blocks::COUNT_MAX),
            Self::Rows(Pair { prefill, decode }) => write!(
                f,
                "graphs of {prefill} and {decode} rows: the one that decodes has at least a row, and no more than the \
                 other one"
            ),
            Self::Bound(index) => {
                write!(
                    f,
                    "block {index} takes months for a prompt or a load, or more than 256 TiB: it was not profiled well"
                )
            }
        }
    }
}

impl std::error::Error for BlocksError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(empty: u64, per_position: u64) -> GraphCost {
        let pass = PassTime { empty: Nanos(empty), per_position: Nanos(per_position) };
        GraphCost { pass, load: Nanos(50), bytes: Bytes(1) }
    }

    fn rows(prefill: u32, decode: u32) -> Pair<Tokens> {
        Pair { prefill: Tokens(prefill), decode: Tokens(decode) }
    }

    /// Each pass sees what those before it have written.
    #[test]
    fn several_passes_over_few_rows_take_the_place_of_one() {
        let block = Block { prefill: cost(100, 2), decode: cost(30, 1) };
        let blocks = Blocks::new(rows(256, 64), vec![block]).unwrap();
        assert_eq!(blocks.time(0, Role::Prefill, Tokens(10), Tokens(256)), Nanos(100 + 20));
        assert_eq!(blocks.time(0, Role::Decode, Tokens(10), Tokens(256)), Nanos(4 * 30 + 10 + 74 + 138 + 202));
        // What is left of a prompt is padded.
        assert_eq!(blocks.time(0, Role::Decode, Tokens(0), Tokens(65)), Nanos(30 + 30 + 64));
        assert_eq!(blocks.time(0, Role::Prefill, Tokens(0), Tokens(1)), Nanos(100));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let block = Block { prefill: cost(100, 2), decode: cost(30, 1) };
        assert_eq!(Blocks::new(rows(256, 64), vec![]), Err(BlocksError::Count(0)));
        assert!(Blocks::new(rows(32, 64), vec![block]).unwrap_err().to_string().contains("32 and 64 rows"));
        assert!(Blocks::new(rows(32, 0), vec![block]).is_err());
        let slow = Block { prefill: cost(u64::MAX, 1), ..block };
        assert_eq!(Blocks::new(rows(256, 64), vec![block, slow]), Err(BlocksError::Bound(1)));
        let steep = Block { decode: cost(0, u64::MAX), ..block };
        assert_eq!(Blocks::new(rows(256, 64), vec![steep]), Err(BlocksError::Bound(0)));
    }
}
