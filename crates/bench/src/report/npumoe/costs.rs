//! What pieces of a layer take on a machine's units, by its profile's annotations.
//!
//! A static graph takes what all of its slots take, and attention in a static graph goes over the whole cache, of which the
//! mask hides what is not there. What the CPU computes has the shape that it has. (NPUMoE §3.2; Agent.xpu appendix A)

use super::assumptions::Assumptions;
use super::targets::{Sizes, Target};
use duet_moe::Times;
use duet_scheduler::Yields;
use duet_scheduler::annotation::node_time;
use duet_scheduler::heg::{Heg, Load, SequenceWise, TokenWise};
use duet_scheduler::machine::Anchors;
use duet_sim::SocProfile;
use duet_types::{Nanos, NodeKind, Tokens};

/// A model on a machine's units.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    pub(super) sizes: Sizes,
    experts: f64,
    npu: Anchors,
    cpu: Anchors,
    gpu: Anchors,
    copy_bytes_per_s: f64,
}

/// A unit that computes products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Npu,
    Cpu,
    Gpu,
}

/// Where a chunk stands in its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Its rows.
    pub(super) rows: u32,
    /// Rows before it.
    pub(super) before: u32,
    /// Rows that the cache has room for.
    pub(super) cache: u32,
}

impl Position {
    /// Pairs of a row and a position that it sees.
    pub(super) fn seen(self) -> f64 {
        f64::from(self.rows) * (f64::from(self.before) + f64::from(self.rows + 1) / 2.0)
    }

    /// Pairs that a static graph computes.
    pub(super) fn slots(self) -> f64 {
        f64::from(self.rows) * f64::from(self.cache)
    }
}

impl Costs {
    pub(super) fn new(soc: &SocProfile, assumptions: &Assumptions, target: Target) -> Self {
        let machine = soc.accelerators(&products(0.0, 0.0));
        Self {
            sizes: target.sizes(),
            experts: f64::from(target.routers().experts()),
            npu: machine.lanes[0].anchors,
            cpu: soc.cpu_only().lanes[0].anchors,
            gpu: machine.lanes[1].anchors,
            copy_bytes_per_s: assumptions.copy_gb_s * 1e9,
        }
    }

    /// What the paper's plans are made with. Reading an expert's weights on the accelerator is in none of these: a graph of a
    /// group is worth what its rows save. (NPUMoE §4.3)
    pub(super) fn times(&self) -> Times {
        let row = |anchors: &Anchors| nanos(self.sizes.expert_macs() / anchors.macs_per_s);
        Times {
            launch: self.npu.launch,
            weights: Nanos::ZERO,
            slot: row(&self.npu),
            cpu_row: row(&self.cpu),
            cpu_weights: nanos(self.sizes.expert_bytes().0 as f64 / self.cpu.bytes_per_s),
        }
    }

    /// What ours are made with: the accelerator reads weights, too.
    pub(super) fn times_with_weights(&self) -> Times {
        let weights = nanos(self.sizes.expert_bytes().0 as f64 / self.npu.bytes_per_s);
        Times { weights, ..self.times() }
    }

    /// A launch.
    pub(super) fn launch(&self, unit: Unit) -> Nanos {
        self.anchors(unit).launch
    }

    /// Some experts' products, `rows` rows each.
    pub(super) fn experts(&self, unit: Unit, experts: u32, rows: u32) -> Nanos {
        let count = f64::from(experts);
        let bytes = self.sizes.expert_bytes().0 as f64;
        self.products(unit, count * self.sizes.expert_macs(), count * bytes, rows)
    }

    /// Projections before and after attention.
    pub(super) fn projections(&self, unit: Unit, rows: u32) -> Nanos {
        let macs = self.sizes.projection_macs();
        self.products(unit, macs, macs * self.sizes.weight_bytes, rows)
    }

    /// Attention over `pairs` pairs of a row and a position.
    pub(super) fn attention(&self, unit: Unit, pairs: f64) -> Nanos {
        nanos(pairs * self.sizes.pair_macs() / self.anchors(unit).attention_macs_per_s)
    }

    /// Scores of all experts, on the CPU.
    pub(super) fn scores(&self, unit: Unit, rows: u32) -> Nanos {
        let macs = self.sizes.hidden * self.experts;
        self.products(unit, macs, macs * self.sizes.weight_bytes, rows)
    }

    /// The head, of one row.
    pub(super) fn head(&self, unit: Unit) -> Nanos {
        let macs = self.sizes.hidden * self.sizes.vocabulary;
        self.products(unit, macs, macs * self.sizes.weight_bytes, 1)
    }

    /// One core copies `bytes`, reading and writing counted.
    pub(super) fn copy(&self, bytes: f64) -> Nanos {
        nanos(bytes / self.copy_bytes_per_s)
    }

    /// Bytes of a norm: rows are read and written.
    pub(super) fn norm_bytes(&self, rows: u32) -> f64 {
        2.0 * f64::from(rows) * self.sizes.row_bytes()
    }

    /// Bytes of choosing experts: all scores are read.
    pub(super) fn choice_bytes(&self, rows: u32) -> f64 {
        f64::from(rows) * self.experts * SCORE
    }

    /// Bytes of gathering rows into slots.
    pub(super) fn gather_bytes(&self, rows: u32, slots: u32) -> f64 {
        f64::from(rows + slots) * self.sizes.row_bytes()
    }

    /// Bytes of adding results to their rows: both are read, one is written.
    pub(super) fn scatter_bytes(&self, rows: u32) -> f64 {
        3.0 * f64::from(rows) * self.sizes.row_bytes()
    }

    fn products(&self, unit: Unit, macs_per_row: f64, weight_bytes: f64, rows: u32) -> Nanos {
        let load = Load::default().with_rows(Tokens(0)..Tokens(rows), Yields::Context);
        node_time(&products(macs_per_row, weight_bytes), self.anchors(unit), &load, NodeKind::Qkv)
    }

    fn anchors(&self, unit: Unit) -> &Anchors {
        match unit {
            Unit::Npu => &self.npu,
            Unit::Cpu => &self.cpu,
            Unit::Gpu => &self.gpu,
        }
    }
}

/// Bytes of a score, in single precision.
const SCORE: f64 = 4.0;

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// A layer of some products alone: the annotations tell the time of nodes.
fn products(macs_per_row: f64, weight_bytes: f64) -> Heg {
    let nothing = TokenWise { macs_per_row: 0.0, weight_bytes: 0.0, row_bytes: 0.0, routed: None };
    Heg {
        layers: 1,
        qkv: TokenWise { macs_per_row, weight_bytes, ..nothing },
        attention: SequenceWise { macs_per_pair: 0.0, bytes_per_position: 0.0, row_bytes: 0.0, windowed: None },
        ffn: nothing,
        head: nothing,
        experts: None,
        for_head: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::npumoe::machines::Machine;

    /// Table 5 in milliseconds for all 16 experts of a layer: what the profile's constants were fitted to, by others.
    #[test]
    fn groups_of_experts_take_what_the_papers_micro_measurement_has() {
        let costs = Costs::new(&Machine::Ultra.soc(), &Assumptions::NOMINAL, Target::PhiMoe);
        for (group, capacity, tokens, paper) in [
            (8, 32, 256.0, 0.26),
            (4, 32, 256.0, 0.27),
            (8, 64, 512.0, 0.18),
            (4, 64, 512.0, 0.19),
            (8, 96, 768.0, 0.15),
        ] {
            let launch = costs.launch(Unit::Npu) + costs.experts(Unit::Npu, group, capacity);
            let ms = launch.as_millis_f64() * f64::from(16 / group) / tokens;
            assert!((ms / paper - 1.0).abs() < 0.06, "{group} x {capacity}: {ms} against {paper}");
        }
    }

    #[test]
    fn a_static_graph_computes_pairs_that_nobody_sees() {
        let last = Position { rows: 256, before: 768, cache: 1024 };
        assert!((last.slots() / last.seen() - 1024.0 / 896.5).abs() < 1e-9);
        let first = Position { rows: 256, before: 0, cache: 1024 };
        assert!(first.slots() / first.seen() > 7.9);
    }
}
