//! A prompt and an answer under a scheme: time, energy and the CPU's cycles. (NPUMoE §5.1)
//!
//! Chunks of a prompt follow each other, and layers of a chunk: a layer waits for all of the one before. Since a layer's time
//! depends on its rows' routes alone, and attention's on where its chunk stands, a prompt's mean is that of all chunks.

use super::assumptions::{Assumptions, Counting};
use super::chunks::{Chunk, Chunks, DECODED};
use super::costs::{Costs, Position, Unit};
use super::layer::{attention, experts};
use super::machines::Machine;
use super::schemes::Scheme;
use super::usage::Usage;
use duet_sim::SocProfile;
use duet_types::Nanos;

/// How a prompt is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Rows of a prompt.
    pub(super) prompt: u32,
    /// Rows of a chunk.
    pub(super) chunk: u32,
}

/// A machine with a model, as it is taken to be.
pub(super) struct World<'a> {
    pub(super) machine: Machine,
    pub(super) soc: &'a SocProfile,
    pub(super) assumptions: Assumptions,
    pub(super) costs: Costs,
    /// How many layers each that was read stands for.
    pub(super) stand_for: &'a [u64],
}

/// Usages of the parts of something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Parts {
    pub(super) attention: Usage,
    pub(super) experts: Usage,
    pub(super) head: Usage,
}

/// Joules, by whose they are. (§5.4)
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Energy {
    pub(super) cpu: f64,
    pub(super) npu: f64,
    pub(super) gpu: f64,
    /// "Communication": what the memory takes.
    pub(super) memory: f64,
}

impl World<'_> {
    /// The experts' part of reading all rows, which is the same for prompts of any length.
    pub(super) fn all_experts(&self, scheme: Scheme, chunks: &[Vec<Chunk>]) -> Usage {
        let groups = scheme.groups(&self.assumptions);
        let mut sum = Usage::default();
        for (layer, &stand_for) in chunks.iter().zip(self.stand_for) {
            for chunk in layer {
                sum += experts(&self.costs, scheme, groups, chunk) * stand_for;
            }
        }
        sum
    }

    /// Attention's part of reading a prompt.
    pub(super) fn attention(&self, scheme: Scheme, setting: Setting) -> Usage {
        let Setting { prompt, chunk } = setting;
        let mut sum = Usage::default();
        for before in (0..prompt).step_by(chunk as usize) {
            let at = Position { rows: chunk.min(prompt - before), before, cache: prompt };
            sum += attention(&self.costs, scheme, at) * self.layers();
        }
        sum
    }

    /// Answers to all prompts, token by token.
    pub(super) fn decode(&self, scheme: Scheme, setting: Setting, chunks: &Chunks) -> Parts {
        let experts = self.all_experts(scheme, &chunks.decoded);
        let answers = chunks.decoded.first().map_or(0, Vec::len) / DECODED;
        let cache = setting.prompt + DECODED as u32;
        let mut of_answer = Usage::default();
        for before in setting.prompt..cache {
            of_answer += attention(&self.costs, scheme, Position { rows: 1, before, cache }) * self.layers();
        }
        let answers = answers as u64;
        Parts { attention: of_answer * answers, experts, head: self.head(scheme) * (DECODED as u64 * answers) }
    }

    /// The head of one row: "or too large (M = 32048)" for the NPU (§2).
    pub(super) fn head(&self, scheme: Scheme) -> Usage {
        let sizes = &self.costs.sizes;
        let bytes = sizes.hidden * sizes.vocabulary * sizes.weight_bytes;
        if scheme == Scheme::Gpu {
            let gpu = self.costs.head(Unit::Gpu);
            return Usage { span: gpu, gpu, bytes, ..Usage::default() };
        }
        let products = self.costs.head(Unit::Cpu);
        Usage { span: products, products, bytes, ..Usage::default() }
    }

    /// Energy of a usage.
    pub(super) fn energy(&self, usage: &Usage) -> Energy {
        let one_core = self.soc.graphs.compile_w.value;
        let joules = |time: Nanos, watts: f64| time.as_secs_f64() * watts;
        Energy {
            cpu: joules(usage.products, self.soc.cpu.prefill_w.value)
                + joules(usage.one_core() + usage.launch, one_core),
            npu: joules(usage.graph, self.soc.npu.prefill_w.value),
            gpu: joules(usage.gpu, self.soc.igpu.prefill_w.value),
            memory: usage.bytes * self.assumptions.memory_pj * 1e-12,
        }
    }

    /// Seconds of cores: what cycles are at one clock.
    pub(super) fn core_seconds(&self, usage: &Usage) -> f64 {
        let (during_products, waiting) = match self.assumptions.counting {
            Counting::AllCores => (self.machine.cores(), 0.0),
            Counting::MatrixUnits => (self.machine.clusters(), 1.0),
        };
        let one_core = (usage.one_core() + usage.launch).as_secs_f64();
        usage.products.as_secs_f64() * during_products + one_core + usage.graph.as_secs_f64() * waiting
    }

    fn layers(&self) -> u64 {
        self.stand_for.iter().sum()
    }
}

impl Parts {
    /// All of it.
    pub(super) fn whole(&self) -> Usage {
        let mut sum = self.attention;
        sum += self.experts;
        sum += self.head;
        sum
    }
}

impl Energy {
    pub(super) fn joules(&self) -> f64 {
        self.cpu + self.npu + self.gpu + self.memory
    }
}
