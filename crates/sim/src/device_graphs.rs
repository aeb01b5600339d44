//! The graphs of a device that exchanges them, as they truly are.
//!
//! A load takes what its graph's profile says; a kernel on a graph that does not suit its rows takes longer. Checked: one
//! graph is loaded at a time, none in the place of one on which a kernel computes; what is resident, still in use and
//! being loaded fits the budget; a kernel finds the graphs of its blocks, unless they could not be loaded.

use duet_scheduler::progressive::{Exchange, Role};
use duet_scheduler::{Event, GraphLoad, GraphSet, Heg, Kernel};
use duet_types::{Bytes, Instant, KernelId, LaneSet, Tokens};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Graphs, and the one that is being loaded.
#[derive(Clone, Debug)]
pub(crate) struct DeviceGraphs {
    set: GraphSet,
    heg: Heg,
    resident: Vec<Option<Role>>,
    loading: Option<GraphLoad>,
    /// Kernels on the device, and the graphs that each computes on.
    running: BTreeMap<KernelId, Vec<(usize, Role)>>,
    /// Blocks whose last load failed.
    failed: Vec<usize>,
    /// Loads that fail, counted from the first.
    failing: Vec<u32>,
    loads: u32,
}

impl DeviceGraphs {
    /// All blocks have their prefill graphs.
    pub(crate) fn new(set: GraphSet, heg: Heg, failing: Vec<u32>) -> Self {
        let resident = vec![Some(Role::Prefill); set.blocks.count()];
        Self { set, heg, resident, loading: None, running: BTreeMap::new(), failed: Vec::new(), failing, loads: 0 }
    }

    /// Begins a load. When it ends, and how.
    pub(crate) fn load(&mut self, now: Instant, load: GraphLoad) -> (Instant, Event) {
        assert_eq!(self.loading, None, "two graphs are loaded at once");
        assert_ne!(self.resident[load.block], Some(load.role), "the graph of block {} is there", load.block);
        if load.exchange == Exchange::InPlace {
            let used = self.used().any(|(block, _)| block == load.block);
            assert!(!used, "the graph of block {} is exchanged while it computes", load.block);
            self.resident[load.block] = None;
        }
        self.loading = Some(load);
        self.check_budget();
        self.loads += 1;
        let at = now + self.set.blocks.cost(load.block, load.role).load;
        let block = load.block;
        let fails = self.failing.contains(&(self.loads - 1));
        (at, if fails { Event::GraphLoadFailed { block } } else { Event::GraphLoaded { block } })
    }

    /// The graph that was loaded is there.
    pub(crate) fn loaded(&mut self) {
        let load = self.loading.take().expect("a graph was being loaded");
        self.failed.retain(|&block| block != load.block);
        self.resident[load.block] = Some(load.role);
        self.check_budget();
    }

    /// It could not be loaded.
    pub(crate) fn load_failed(&mut self) {
        let load = self.loading.take().expect("a graph was being loaded");
        self.failed.push(load.block);
    }

    /// A kernel begins. How much longer it takes than on graphs that suit it.
    pub(crate) fn launch(&mut self, lanes: LaneSet, kernel: &Kernel) -> f64 {
        // The graphs are of the model that answers.
        if !kernel.net().is_decoder() || lanes.without(self.set.lanes).contains_all(lanes) {
            return 1.0;
        }
        let blocks = self.blocks_of(kernel);
        for block in blocks.clone() {
            let is_there = self.resident[block].is_some() || self.failed.contains(&block);
            assert!(is_there, "kernel {} finds no graph of block {block}", kernel.id);
        }
        let used = blocks.clone().filter_map(|block| Some((block, self.resident[block]?)));
        self.running.insert(kernel.id, used.collect());
        let rows = Tokens(kernel.rows.end - kernel.rows.start);
        self.set.slowdown(&self.resident, rows, blocks)
    }

    /// A kernel has ended, or went with its lane.
    pub(crate) fn ended(&mut self, kernel: KernelId) {
        self.running.remove(&kernel);
    }

    fn blocks_of(&self, kernel: &Kernel) -> RangeInclusive<usize> {
        let of = |node| self.set.block_of(&self.heg, node);
        of(kernel.nodes.start)..=of(kernel.nodes.end - 1)
    }

    fn used(&self) -> impl Iterator<Item = (usize, Role)> + '_ {
        self.running.values().flatten().copied()
    }

    fn check_budget(&self) {
        let resident = self.resident.iter().enumerate().filter_map(|(block, role)| Some((block, (*role)?)));
        let mut held: Vec<(usize, Role)> = resident.chain(self.used()).collect();
        held.sort_unstable();
        held.dedup();
        let loading = self.loading.map(|load| (load.block, load.role));
        let bytes: Bytes =
            held.into_iter().chain(loading).map(|(block, role)| self.set.blocks.cost(block, role).bytes).sum();
        assert!(bytes <= self.set.budget, "graphs take {bytes} of {}", self.set.budget);
    }
}
