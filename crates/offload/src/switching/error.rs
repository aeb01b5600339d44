//! Why a prompt was not read on graphs that are exchanged.

use crate::placed::OffloadError;
use duet_model::forward::{NotRun, PassError};
use duet_types::Tokens;

/// Why a prompt was not read.
#[derive(Debug, thiserror::Error)]
pub enum SwitchingError {
    /// A graph could not be made or loaded.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The device did not run a kernel.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// A pass was refused.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A context could not be made.
    #[error("no keys and values: {0}")]
    Kv(std::io::Error),
    /// There is no graph with this number of rows.
    #[error("no graphs of {0} rows were compiled")]
    NoShape(Tokens),
    /// Fewer layers have graphs.
    #[error("no graphs of {0} layers were compiled")]
    NoLayers(usize),
    /// A block has no graph loaded.
    #[error("block {0} has no graph loaded")]
    NotLoaded(usize),
    /// The prompt is not the one that was planned for, or was not read to its end.
    #[error("the plan is for another prompt")]
    OtherPrompt,
    /// The thread beside this one has failed, and has the reason.
    #[error("what runs beside it has failed")]
    Beside,
}
