//! A chunk's rows on a plan: what `duet-moe` dispatches, without the rows themselves. (NPUMoE §3.1, §4.2)

use super::plans::{Plan, TILE};
use super::routing::{LayerRoutes, Routing};
use duet_moe::{Dispatch, Group};
use duet_types::Tokens;
use std::collections::BTreeMap;
use std::ops::Range;

/// What is computed for a chunk in a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) rows: u32,
    /// One for each group that a row goes to.
    pub(super) launches: Vec<Launch>,
    /// Rows of each expert that has any on the CPU.
    pub(super) on_cpu: Vec<u32>,
    /// Rows that an expert does not compute.
    pub(super) dropped: u32,
}

/// A group's graph with its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) experts: u32,
    pub(super) capacity: u32,
    /// Slots that hold a row.
    pub(super) filled: u32,
}

/// All chunks of all rows, layer by layer, and some single rows, which stand for what is decoded.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    pub(super) layers: Vec<Vec<Chunk>>,
    pub(super) decoded: Vec<Vec<Chunk>>,
}

impl Launch {
    pub(super) fn slots(self) -> u32 {
        self.experts * self.capacity
    }
}

impl Chunk {
    /// Rows times experts that they go to.
    pub(super) fn routed(&self) -> u32 {
        self.filled() + self.on_cpu.iter().sum::<u32>() + self.dropped
    }

    pub(super) fn filled(&self) -> u32 {
        self.launches.iter().map(|launch| launch.filled).sum()
    }

    pub(super) fn slots(&self) -> u32 {
        self.launches.iter().map(|launch| launch.slots()).sum()
    }

    fn of(layer: &LayerRoutes, rows: Range<usize>, hot: &[&Group], plan: Plan) -> Self {
        let count = rows.len() as u32;
        let dispatch = Dispatch::of(&layer.routes(rows), hot, plan.overflow());
        let mut on_cpu = BTreeMap::new();
        dispatch.on_cpu.iter().for_each(|route| *on_cpu.entry(route.expert).or_insert(0) += 1);
        let launch = |(group, packing): &(usize, duet_moe::Packing)| Launch {
            experts: hot[*group].experts.len() as u32,
            capacity: hot[*group].capacity.0,
            filled: packing.filled() as u32,
        };
        Self {
            rows: count,
            launches: dispatch.launches.iter().map(launch).collect(),
            on_cpu: on_cpu.into_values().collect(),
            dropped: dispatch.dropped.len() as u32,
        }
    }
}

impl Chunks {
    /// Of `rows` rows, the first ones that were read; each stretch of `prompt` rows is a prompt.
    pub(super) fn of(
        routing: &Routing,
        plan: Plan,
        hot: &[Vec<Group>],
        rows: usize,
        chunk: Tokens,
        prompt: usize,
    ) -> Self {
        let chunk = chunk.as_usize();
        let starts = || (0..rows).step_by(chunk);
        // A prompt's last rows.
        let decoded = || (prompt..=rows).step_by(prompt).flat_map(|end| end.saturating_sub(DECODED)..end);
        let layers = routing.layers.iter().zip(hot).map(|(layer, hot)| {
            let hot: Vec<&Group> = hot.iter().collect();
            starts().map(|start| Chunk::of(layer, start..(start + chunk).min(rows), &hot, plan)).collect()
        });
        let layers = layers.collect();
        let single = routing.layers.iter().zip(hot).map(|(layer, hot)| {
            let small: Vec<Group> = hot.iter().map(|group| Group { capacity: TILE, ..group.clone() }).collect();
            let hot: Vec<&Group> = small.iter().collect();
            decoded().map(|row| Chunk::of(layer, row..row + 1, &hot, plan)).collect()
        });
        Self { layers, decoded: single.collect() }
    }
}

/// Of all chunks in all layers of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// Chunks times layers.
    pub(super) chunks: f64,
    pub(super) launches: f64,
    pub(super) slots: f64,
    pub(super) filled: f64,
    pub(super) on_cpu: f64,
    pub(super) dropped: f64,
    pub(super) routed: f64,
}

impl Chunks {
    /// Sums, each layer that was read counted as often as `stand_for` says.
    pub(super) fn sums(&self, stand_for: &[u64]) -> Sums {
        let mut sums = Sums::default();
        for (layer, &count) in self.layers.iter().zip(stand_for) {
            let count = count as f64;
            for chunk in layer {
                sums.chunks += count;
                sums.launches += count * chunk.launches.len() as f64;
                sums.slots += count * f64::from(chunk.slots());
                sums.filled += count * f64::from(chunk.filled());
                sums.on_cpu += count * f64::from(chunk.on_cpu.iter().sum::<u32>());
                sums.dropped += count * f64::from(chunk.dropped);
                sums.routed += count * f64::from(chunk.routed());
            }
        }
        sums
    }

    /// The same launches without what pads them, as far as experts of a group can have one capacity.
    pub(super) fn unpadded(&self) -> Vec<Vec<Chunk>> {
        let bare = |launch: &Launch| Launch { capacity: launch.filled.div_ceil(launch.experts), ..*launch };
        let of_chunk = |chunk: &Chunk| Chunk { launches: chunk.launches.iter().map(bare).collect(), ..chunk.clone() };
        self.layers.iter().map(|layer| layer.iter().map(of_chunk).collect()).collect()
    }
}

impl Sums {
    /// Slots that hold nothing, in per cent.
    pub(super) fn padding(&self) -> f64 {
        per_cent(self.slots - self.filled, self.slots)
    }

    /// Rows that an expert does not compute, in per cent.
    pub(super) fn drop_rate(&self) -> f64 {
        per_cent(self.dropped, self.routed)
    }

    /// Rows that the CPU computes, in per cent.
    pub(super) fn cpu_share(&self) -> f64 {
        per_cent(self.on_cpu, self.routed)
    }
}

fn per_cent(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of * 100.0 } else { 0.0 }
}

/// Tokens of an answer: the paper's mean. (§5.1)
pub(super) const DECODED: usize = 8;
