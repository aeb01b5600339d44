//! What can go wrong with a GPU.

/// Why a GPU is not used, or did not compute.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GpuError {
    /// No driver of any of the three interfaces is installed.
    #[error("no GPU was found: there is no Vulkan loader or driver, and no other interface")]
    NoAdapter,
    /// None is called so.
    #[error("there is no GPU `{name}`; there are {there}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// It was found, and cannot be used.
    #[error("{name} cannot be used: {why}")]
    Unusable {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// The model has something that has no kernel.
    #[error("this model is not for a GPU yet: {0}")]
    Model(&'static str),
    /// A buffer of the model exceeds what the adapter binds.
    #[error("{what} takes {bytes} bytes, and this adapter binds at most {limit}")]
    TooLarge {
        /// Which buffer.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The adapter's limit.
        limit: u64,
    },
    /// Not even one layer fits.
    #[error("a layer takes {layer} bytes, and there is room for {room}: give it more memory")]
    NoRoom {
        /// The last layer, with the head.
        layer: u64,
        /// What weights may take.
        room: u64,
    },
    /// The driver has given the device up, or the person has taken it away.
    #[error("the GPU was lost: {0}")]
    Lost(String),
    /// The driver refused a command, most often for want of memory.
    #[error("the GPU's driver refused: {0}")]
    Refused(String),
    /// It computes something else.
    #[error("the GPU's results are {off} off, and {tolerance} is rounding")]
    Wrong {
        /// How far.
        off: f64,
        /// How far they may be.
        tolerance: f64,
    },
    /// It did not come to an end.
    #[error("the GPU did not answer within {0} seconds")]
    Hung(u64),
}
