//! How much room a model's compiled graphs want in the cache.
//!
//! Compilers keep weights as they like, so that sizes are known when graphs are compiled, and that takes minutes. What is
//! known before is what goes in: a layer's constants in the device's own form. The first and the last layer of files of
//! mixed types have the largest ones, and every layer is taken to be as large.

use crate::experts::{dense_bytes, expert_block};
use crate::layers::layer_blocks;
use crate::placed::OffloadError;
use crate::shapes::Shapes;
use duet_graphs::LayoutRules;
use duet_model::Model;
use duet_moe::ExpertId;
use duet_types::Bytes;

/// How a device is used, as far as graphs are loaded while requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphUse {
    /// All graphs of a dense model are loaded at the start. Of a model with experts some are, and others as traffic goes.
    Resident,
    /// Each block has one of two graphs, which are exchanged.
    Exchanged,
}

/// How much room a model's compiled graphs want in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphRoom {
    /// What has to be there while requests are served: exchanged graphs. Groups of experts that are not there are compiled
    /// when they are wanted, while the CPU computes.
    pub loaded: Bytes,
    /// Everything that may be kept of the model: also what is read at starts, and what is measured.
    pub all: Bytes,
}

impl GraphRoom {
    /// Of a model on a device with these rules. Reads two of its layers.
    ///
    /// # Errors
    /// If the model's weights make no blocks.
    pub fn of(model: &Model, rules: &LayoutRules, graph_use: GraphUse) -> Result<Self, OffloadError> {
        let layers = model.config().layers as u64;
        let shapes = match Shapes::of(rules.rows) {
            Shapes::Dynamic => 1,
            Shapes::Static(shapes) => shapes.len() as u64,
        };
        // It is the largest matrix by far, and not read for this: it has eight bits a weight at most, and scales.
        let (hidden, vocabulary) = (model.blueprint().hidden as u64, model.config().vocabulary as u64);
        let head = compiled(Bytes(vocabulary * (hidden + hidden / 8 + 4)));
        let Some(plan) = model.blueprint().experts else {
            let layer = largest(model, |layer| {
                let blocks = layer_blocks(model, layer, rules.weights)?;
                Ok(compiled(blocks.qkv.constant_bytes()) + compiled(blocks.feed_forward.constant_bytes()))
            })?;
            // Exchanged ones have two shapes of their own.
            let exchanged = Bytes(layer.0 * layers * 2) + head;
            let loaded = if graph_use == GraphUse::Exchanged { exchanged } else { Bytes::ZERO };
            return Ok(Self { loaded, all: Bytes((layer.0 * layers + head.0) * shapes) + exchanged });
        };
        let expert = largest(model, |layer| {
            let block = expert_block(model, layer, &[ExpertId(0)], rules.weights)?.ok_or(OffloadError::Dense)?;
            Ok(compiled(block.constant_bytes()))
        })?;
        let groups = Bytes(expert.0 * layers * plan.count as u64);
        let dense = largest(model, |layer| Ok(compiled(dense_bytes(model, layer, rules.weights)?)))?;
        Ok(Self { loaded: Bytes::ZERO, all: groups + Bytes((dense.0 * layers + head.0) * shapes) })
    }

    /// How large the cache may become: what was asked for; else all that the model may need, and never less than
    /// `USUAL`.
    ///
    /// # Errors
    /// [`OffloadError::CacheTooSmall`] if what was asked for has no room for what is loaded while requests are served:
    /// every load would compile.
    pub fn limit(&self, asked: Option<Bytes>) -> Result<Bytes, OffloadError> {
        match asked {
            Some(asked) if asked < self.loaded => Err(OffloadError::CacheTooSmall { asked, needed: self.loaded }),
            Some(asked) => Ok(asked),
            None => Ok(self.all.max(USUAL)),
        }
    }
}

/// Graphs of a few small models, of which each start uses one.
const USUAL: Bytes = Bytes(4 << 30);

/// What a graph of such constants takes when it is compiled, at most. Measured with SmolLM2-135M: 1.0 times them on OpenVINO's
/// CPU device, 1.2 times behind the front end of its NPU plugin, 1.1 times on the HTP.
pub(crate) fn compiled(constants: Bytes) -> Bytes {
    Bytes((constants.0 / 4).saturating_mul(QUARTERS).saturating_add(GRAPH))
}

const QUARTERS: u64 = 6;
/// The graph itself.
const GRAPH: u64 = 64 << 10;

/// What the larger of the first and the last layer comes to.
fn largest(model: &Model, layer: impl Fn(usize) -> Result<Bytes, OffloadError>) -> Result<Bytes, OffloadError> {
    let Some(last) = model.config().layers.checked_sub(1) else { return Ok(Bytes::ZERO) };
    Ok(layer(0)?.max(layer(last)?))
}
