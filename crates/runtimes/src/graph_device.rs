//! What the engine needs of a device that runs compiled graphs, without its toolchain: so that a cache, a plan of
//! faults or another toolchain can stand where any device stands.
//!
//! A block becomes a graph in two steps, because between them lies what a cache is asked for: the device writes it down
//! in its toolchain's own format ([`GraphDevice::emit`]), and compiles that.

use crate::blob_key::Digest;
use crate::buffer::{Buffer, Tensors};
use crate::error::Error;
use crate::info::DeviceInfo;
use crate::port::Ports;
use duet_graphs::{Block, ChunkAttention, LayoutRules, Ranges, Rows};
use duet_types::Nanos;
use std::fmt::Debug;

/// Makes graphs ready to run. How it compiles is settled when it is made.
pub trait GraphDevice: Debug + Send + Sync {
    /// What the device says of itself.
    fn info(&self) -> &DeviceInfo;

    /// What it asks of its graphs.
    fn rules(&self) -> LayoutRules;

    /// The version of what compiles for it: with another one, exported graphs are worth nothing.
    fn toolchain(&self) -> &str;

    /// How it compiles, the same text for the same settings and only for these.
    fn settings(&self) -> String;

    /// How far a block's results may be from the reference interpreter's, given how the device computes and is set: the root
    /// mean square of the differences, in that of the results.
    fn tolerance(&self) -> f64;

    /// Writes a block down as its toolchain reads it.
    ///
    /// # Errors
    /// If the device does not take the block in this shape; [`Error::Uncalibrated`] if it needs ranges and has none.
    fn emit(&self, source: &GraphSource<'_>) -> Result<Emitted, Error>;

    /// Writes a chunk's attention down.
    ///
    /// # Errors
    /// [`Error::NoAttention`] if the device takes none, which most do.
    fn emit_attention(&self, _shape: &ChunkAttention) -> Result<Emitted, Error> {
        Err(Error::NoAttention)
    }

    /// Compiles a graph. Takes tens of milliseconds on a CPU, and seconds for an NPU.
    ///
    /// # Errors
    /// If the device cannot run it.
    fn compile_graph(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, Error>;

    /// Takes up an exported graph. The bytes must be whole and from the same device, driver and toolchain (see
    /// [`crate::BlobCache`]): toolchains check little of them.
    ///
    /// # Errors
    /// If the device refuses the bytes.
    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn Graph>, Error>;
}

/// A block in the shape that it is wanted in.
#[derive(Clone, Copy, Debug)]
pub struct GraphSource<'a> {
    /// The block.
    pub block: &'a Block,
    /// For how many rows.
    pub rows: Rows,
    /// Between which numbers its values lie, for devices that compute in integers
    /// ([`duet_graphs::ActivationRule::Calibrated`]); the others do without.
    pub ranges: Option<&'a Ranges>,
}

/// A graph in a toolchain's own format, not compiled yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emitted {
    /// The graph: OpenVINO's `.xml`, or a model of ONNX with its constants.
    pub graph: Vec<u8>,
    /// The constants that it refers to, in formats that keep them apart: OpenVINO's `.bin`.
    pub constants: Vec<u8>,
}

impl Emitted {
    /// The digest of both parts.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[Digest::of(&self.graph).0, Digest::of(&self.constants).0].concat())
    }
}

/// A graph that is ready: one inference at a time.
pub trait Graph: Debug + Send {
    /// Its inputs and outputs.
    fn ports(&self) -> &Ports;

    /// Its bytes, to be taken up later by the same device.
    ///
    /// # Errors
    /// If the device does not export.
    fn export(&self) -> Result<Vec<u8>, Error>;

    /// Starts it and does not wait. What was started before, and not waited for, is given up. Whatever happens, it can be
    /// started again.
    ///
    /// # Errors
    /// If the tensors do not fit or the device takes no work.
    fn start(&mut self, tensors: Tensors) -> Result<(), Error>;

    /// Waits for what was started, no longer than `limit`, and returns the outputs, in the order of its ports.
    ///
    /// # Errors
    /// If the device fails, or nothing was started. With [`Error::Hung`] the outputs, and a share of the inputs, stay
    /// with the device until it answers.
    fn wait(&mut self, limit: Nanos) -> Result<Vec<Buffer>, Error>;

    /// Starts it and waits.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Self::wait`].
    fn run(&mut self, tensors: Tensors, limit: Nanos) -> Result<Vec<Buffer>, Error> {
        self.start(tensors)?;
        self.wait(limit)
    }
}
