//! The blocks of a model on two graphs, as the annotations predict that they would be profiled. (CoordGen §3.1)
//!
//! Blocks have equal weights, as far as whole layers allow, so that all take as long to be loaded; the last one brings the
//! head. Equal layers, which sd.npu has, can be asked for: then the last block takes twice as long as the others. A block is a graph of its own, with its own launch. Its pass is predicted without a context and after one, and in between it grows evenly. Loading takes what
//! its weights take at the profile's rate; nothing more is known of it.

use super::static_passes::{Graph, Heads, Passes};
use duet_scheduler::heg::{Heg, TokenWise};
use duet_scheduler::progressive::{Block, Blocks, GraphCost, Pair, PassTime};
use duet_types::{Bytes, Nanos, Tokens};

/// Blocks of the paper's example; it does not say how many its measurements have. (CoordGen Figure 8)
pub(super) const BLOCKS: usize = 6;

/// How a model is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// Into how many blocks.
    pub(super) blocks: usize,
    /// The graphs.
    pub(super) graphs: Pair<Graph>,
    /// Which of their rows go through the head.
    pub(super) heads: Pair<Heads>,
    /// What the blocks have in equal parts.
    pub(super) division: Division,
}

/// What blocks have in equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// Bytes of weights, the head's among them.
    Weights,
    /// Layers; the last one has the head besides. (sd.npu §4.2)
    Layers,
}

impl Cut {
    /// The paper's graphs in the blocks of its example, if these rows go through the head.
    pub(super) fn paper(heads: Pair<Heads>) -> Self {
        let graphs = Pair { prefill: Graph::PREFILL, decode: Graph::DECODE };
        Self { blocks: BLOCKS, graphs, heads, division: Division::Weights }
    }

    /// What would be profiled.
    pub(super) fn profile(&self, passes: &Passes) -> Blocks {
        let block = |index: usize| {
            let layers = self.layers(passes.heg(), index);
            let bytes = weight_bytes(&layers);
            let cost = |graph, heads| GraphCost {
                pass: pass(passes, &layers, graph, heads),
                load: nanos(bytes / passes.load_bytes_per_s),
                bytes: Bytes(bytes as u64),
            };
            let (graphs, heads) = (self.graphs, self.heads);
            Block { prefill: cost(graphs.prefill, heads.prefill), decode: cost(graphs.decode, heads.decode) }
        };
        let rows = Pair { prefill: Tokens(self.graphs.prefill.0), decode: Tokens(self.graphs.decode.0) };
        Blocks::new(rows, (0..self.blocks).map(block).collect())
            .expect("the models and phones of the report are possible")
    }

    /// The layers of a block, and the head if it is the last one.
    fn layers(&self, heg: &Heg, index: usize) -> Heg {
        let layer = heg.qkv.weight_bytes + heg.ffn.weight_bytes;
        let share = weight_bytes(heg) / self.blocks as f64;
        let before = |index: usize| match self.division {
            _ if index == self.blocks => heg.layers,
            Division::Layers => heg.layers * index / self.blocks,
            Division::Weights => ((index as f64 * share / layer).round() as usize).min(heg.layers),
        };
        let nothing = TokenWise { macs_per_row: 0.0, weight_bytes: 0.0, row_bytes: 0.0, routed: None };
        let head = if index + 1 == self.blocks { heg.head } else { nothing };
        Heg { layers: before(index + 1) - before(index), head, ..heg.clone() }
    }
}

fn weight_bytes(layers: &Heg) -> f64 {
    layers.layers as f64 * (layers.qkv.weight_bytes + layers.ffn.weight_bytes) + layers.head.weight_bytes
}

fn pass(passes: &Passes, layers: &Heg, graph: Graph, heads: Heads) -> PassTime {
    let [empty, after] = [0, FAR].map(|context| passes.of_layers(layers, graph, context, heads));
    PassTime { empty: nanos(empty), per_position: nanos((after - empty) / f64::from(FAR)) }
}

/// A context like those of the paper's tasks.
const FAR: u32 = 1024;

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::assumptions::Assumptions;
    use super::super::phones::{Phone, Target};
    use super::super::static_passes::Network;
    use super::*;
    use duet_scheduler::progressive::Role;

    /// The head is as heavy as several layers: the block that brings it has fewer of them.
    #[test]
    fn blocks_weigh_the_same() {
        let heads = Pair { prefill: Heads::All, decode: Heads::All };
        let passes = Passes::new(&Phone::K60Pro.soc(), &Target::Qwen15.shape().heg(), &Assumptions::NOMINAL);
        let blocks = Cut::paper(heads).profile(&passes);
        let mean = blocks.load(Role::Decode).0 as f64 / BLOCKS as f64;
        for block in 0..BLOCKS {
            let load = blocks.cost(block, Role::Decode).load.0 as f64;
            assert!((load / mean - 1.0).abs() < 0.15, "{load} of {mean}");
        }
        let layers = Cut { division: Division::Layers, ..Cut::paper(heads) }.profile(&passes);
        assert!(layers.cost(BLOCKS - 1, Role::Decode).load.0 as f64 > 1.6 * mean);
        assert!(layers.bytes(Role::Decode).0.abs_diff(blocks.bytes(Role::Decode).0) < 100);
    }

    /// The blocks together are the model: its weights, and its passes but for the launches.
    #[test]
    fn blocks_add_up_to_the_model() {
        for target in Target::ALL {
            let soc = Phone::K60Pro.soc();
            let passes = Passes::new(&soc, &target.shape().heg(), &Assumptions::NOMINAL);
            let heads = Pair { prefill: Heads::Last, decode: Heads::All };
            let blocks = Cut::paper(heads).profile(&passes);
            let launches = (BLOCKS - 1) as f64 * soc.npu.launch_ms.value / 1e3;
            for (role, graph, heads) in
                [(Role::Prefill, Graph::PREFILL, Heads::Last), (Role::Decode, Graph::DECODE, Heads::All)]
            {
                for context in [0, 700, 2000] {
                    let whole = passes.on_graph(Network::Model, graph, context, heads) + launches;
                    let parts = blocks.pass(role, Tokens(context)).as_secs_f64();
                    assert!((parts / whole - 1.0).abs() < 0.01, "{role:?} after {context}: {parts} and {whole}");
                }
            }
            let Bytes(weights) = target.shape().weight_bytes();
            let loaded = blocks.bytes(Role::Decode).0;
            assert!((loaded as f64 / weights as f64 - 1.0).abs() < 0.01, "{loaded} and {weights}");
            let rate = loaded as f64 / blocks.load(Role::Decode).as_secs_f64();
            assert!((rate / passes.load_bytes_per_s - 1.0).abs() < 1e-6);
        }
    }
}
