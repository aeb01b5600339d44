//! How long passes of one stream take: on the NPU's static graphs, and on the CPU.
//!
//! The simulator's lanes know one static shape, the chunk, and decode on a dynamic lane; that the NPU decodes, too, on a
//! graph that pads every pass to its rows, it cannot express. So the passes of the paper's systems are computed here, from
//! the annotations of the profile's units, one after the other: with a single stream nothing runs beside them.
//! (CoordGen §3.2; Agent.xpu appendix A)
//!
//! A system that has two graphs holds them block by block (`graph_blocks.rs`); a pass then takes a launch for each block.
//!
//! A graph of `n` rows takes what `n` rows take, however many are wanted. What a verify pass of 32 rows takes next to one
//! of a single row may be said from outside ([`Assumptions::verify_ratio`]); then graphs up to the prefill's 256 rows are
//! in between, since how fast a prompt is read is known by itself.

use super::assumptions::Assumptions;
use duet_scheduler::annotation::predict;
use duet_scheduler::heg::{Heg, Load};
use duet_scheduler::machine::Anchors;
use duet_sim::SocProfile;

/// The units of a phone with a model on it.
#[derive(Clone, Debug)]
pub(super) struct Passes {
    heg: Heg,
    /// A layer and the head: what drafts in the paper's stand-in for EAGLE. (CoordGen §4.1)
    drafter: Heg,
    npu: Anchors,
    cpu: Anchors,
    verify_ratio: Option<f64>,
    /// Bytes of a graph that are loaded in a second.
    pub(super) load_bytes_per_s: f64,
}

/// Rows of a compiled graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Graph(pub(super) u32);

/// Which rows of a pass go through the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// One.
    Last,
    /// All.
    All,
}

/// What is computed in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// The model.
    Model,
    /// The drafter of EAGLE.
    Drafter,
}

impl Graph {
    /// The graph that prompts are read on. (CoordGen §3.2)
    pub(super) const PREFILL: Self = Self(256);
    /// The graph that drafts are verified on, whose rows saturate the NPU. (sd.npu §5.1)
    pub(super) const DECODE: Self = Self(32);
    /// Those that one graph for both may be: the least that the matrix unit takes, and more. (sd.npu §2.2)
    pub(super) const SHARED: [Self; 4] = [Self(32), Self(64), Self(128), Self(256)];
}

impl Passes {
    pub(super) fn new(soc: &SocProfile, heg: &Heg, assumptions: &Assumptions) -> Self {
        let npu = soc.accelerators(heg).lanes[0].anchors;
        let cpu = soc.cpu_only().lanes[0].anchors;
        let drafter = Heg { layers: 1, ..heg.clone() };
        let load_bytes_per_s = soc.graphs.load_gb_s.value * 1e9;
        Self { heg: heg.clone(), drafter, npu, cpu, verify_ratio: assumptions.verify_ratio, load_bytes_per_s }
    }

    /// The same, with graphs loaded at `load_bytes_per_s`.
    pub(super) fn loading(self, load_bytes_per_s: f64) -> Self {
        Self { load_bytes_per_s, ..self }
    }

    /// Seconds of a pass after `context` positions on a graph of the NPU.
    pub(super) fn on_graph(&self, network: Network, graph: Graph, context: u32, heads: Heads) -> f64 {
        self.seconds(network, &self.npu, graph.0, context, heads) * self.slower(network, graph, context)
    }

    /// The same where each of some blocks is a graph of its own, with its own launch.
    pub(super) fn in_blocks(&self, blocks: usize, graph: Graph, context: u32, heads: Heads) -> f64 {
        let launches = blocks.saturating_sub(1) as f64 * self.npu.launch.as_secs_f64();
        self.on_graph(Network::Model, graph, context, heads) + launches
    }

    /// The model whose passes these are.
    pub(super) fn heg(&self) -> &Heg {
        &self.heg
    }

    /// Seconds of a pass of some of its layers, as a graph of their own on the NPU.
    pub(super) fn of_layers(&self, layers: &Heg, graph: Graph, context: u32, heads: Heads) -> f64 {
        predict(layers, &self.npu, &load(graph.0, context, heads), &(0..layers.nodes())).as_secs_f64()
            * self.slower(Network::Model, graph, context)
    }

    /// How many times as long a graph takes as the annotation says, by what is said from outside.
    fn slower(&self, network: Network, graph: Graph, context: u32) -> f64 {
        let Some(ratio) = self.verify_ratio else { return 1.0 };
        let full = self.seconds(network, &self.npu, Graph::DECODE.0, context, Heads::All);
        let single = self.seconds(network, &self.npu, 1, context, Heads::All);
        let slower = ratio * single / full;
        // All of it on the decode graph, nothing on the prefill graph.
        let wide = f64::from(Graph::PREFILL.0.saturating_sub(graph.0));
        let share = wide / f64::from(Graph::PREFILL.0 - Graph::DECODE.0);
        1.0 + (slower - 1.0) * share
    }

    /// Seconds of a pass of `rows` rows on the CPU, all of which go through the head.
    pub(super) fn on_cpu(&self, network: Network, rows: u32, context: u32) -> f64 {
        self.seconds(network, &self.cpu, rows, context, Heads::All)
    }

    /// Seconds of a prompt on a graph of the NPU, chunk by chunk.
    pub(super) fn prefill(&self, graph: Graph, prompt: u32, heads: Heads) -> f64 {
        let chunks = prompt.div_ceil(graph.0);
        (0..chunks).map(|chunk| self.on_graph(Network::Model, graph, chunk * graph.0, heads)).sum()
    }

    fn seconds(&self, network: Network, anchors: &Anchors, rows: u32, context: u32, heads: Heads) -> f64 {
        let heg = match network {
            Network::Model => &self.heg,
            Network::Drafter => &self.drafter,
        };
        predict(heg, anchors, &load(rows, context, heads), &(0..heg.nodes())).as_secs_f64()
    }
}

fn load(rows: u32, context: u32, heads: Heads) -> Load {
    let (count, before) = (f64::from(rows), f64::from(context));
    Load {
        rows: count,
        pairs: count * (before + (count + 1.0) / 2.0),
        positions: before + count,
        tokens: if heads == Heads::All { count } else { 1.0 },
        requests: 1,
        ..Load::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::phones::{Phone, Target};
    use super::*;

    fn passes(verify_ratio: Option<f64>) -> Passes {
        let assumptions = Assumptions { verify_ratio, ..Assumptions::NOMINAL };
        Passes::new(&Phone::K60Pro.soc(), &Target::Qwen15.shape().heg(), &assumptions)
    }

    /// 1.54 GB at 45 GB/s, and 256 rows of 1.3 GMAC at 1.3 TMAC/s.
    #[test]
    fn a_graph_takes_what_its_rows_take() {
        let passes = passes(None);
        let decode = passes.on_graph(Network::Model, Graph::DECODE, 500, Heads::All);
        assert!((0.034..0.050).contains(&decode), "{decode}");
        let chunk = passes.on_graph(Network::Model, Graph::PREFILL, 0, Heads::Last);
        assert!((0.25..0.33).contains(&chunk), "{chunk}");
        // A prompt of a chunk and a token takes two.
        let two = passes.prefill(Graph::PREFILL, 257, Heads::Last);
        assert!(two > 1.9 * chunk, "{two}");
        assert!(passes.prefill(Graph::PREFILL, 256, Heads::All) > chunk);
    }

    #[test]
    fn a_ratio_from_outside_holds_for_the_decode_graph_and_leaves_prefill() {
        let (annotated, passes) = (passes(None), passes(Some(3.6)));
        let single = annotated.seconds(Network::Model, &annotated.npu, 1, 700, Heads::All);
        let verify = passes.on_graph(Network::Model, Graph::DECODE, 700, Heads::All);
        assert!((verify / single - 3.6).abs() < 1e-9, "{}", verify / single);
        let prefill = |passes: &Passes| passes.prefill(Graph::PREFILL, 1000, Heads::Last);
        assert!((prefill(&annotated) - prefill(&passes)).abs() < 1e-12);
    }

    #[test]
    fn a_drafter_is_a_layer_and_the_head() {
        let passes = passes(None);
        let [model, drafter] = [Network::Model, Network::Drafter].map(|network| passes.on_cpu(network, 1, 100));
        assert!(drafter > model / 28.0 && drafter < model / 3.0, "{drafter} of {model}");
    }
}
