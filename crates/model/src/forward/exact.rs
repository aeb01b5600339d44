//! Graphs for exactly so many rows, made while the rows wait.
//!
//! A device of static shapes reads a prompt in padded chunks, unless it has graphs for exactly that many rows. Making
//! them takes long, so it is asked for ahead, on a thread that nobody waits for, and can be called off. (Agent.xpu §4.3 ⑤)

use super::token_wise::TokenWise;
use duet_types::{Bytes, Tokens};
use std::fmt::Debug;
use std::sync::Arc;

/// Makes a model's token-wise kernels ready for exactly so many rows.
pub trait PreparesRows: Debug + Send + Sync {
    /// Makes the kernels of all layers ready for `rows` rows; the head, which takes one row of a prompt, is not among them.
    /// `goes_on` is asked between layers. Takes seconds.
    ///
    /// # Errors
    /// [`NotPrepared`]; nothing is left of it.
    fn prepare(&self, rows: Tokens, goes_on: &dyn Fn() -> bool) -> Result<Prepared, NotPrepared>;

    /// What one set of graphs takes, as far as can be known before there is one.
    fn bytes(&self) -> Bytes;
}

/// Kernels for exactly so many rows.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Those of all layers. They may take other numbers of rows too, slower.
    pub kernels: Arc<dyn TokenWise>,
    /// What they take.
    pub bytes: Bytes,
}

/// There are no graphs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPrepared {
    /// Nobody wants them any more.
    #[error("called off")]
    CalledOff,
    /// The device does not take them.
    #[error("the device makes no graph: {0}")]
    Failed(String),
}
