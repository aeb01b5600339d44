//! Experts on disk in virtual time: where passes find some missing, and how long these take to come.
//!
//! What a kernel that keeps its lanes waits for is in its annotation. One that may give them back stops in a feed-forward
//! node once, twice or not at all, as a mixture does whose experts come in waves; in the mean for as long as its annotation
//! says that a disk takes.
//!
//! Invariant: where a pass stops depends on nothing but its number, its nodes and the seed.

use crate::random::Random;
use duet_scheduler::{Heg, Kernel, OnMiss, PassId};
use duet_types::{Nanos, NodeKind};
use std::collections::BTreeMap;

/// A disk with experts.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    heg: Heg,
    seed: u64,
    /// Largest relative deviation of a wait from what is said of it.
    jitter: f64,
    /// How often rows of a node have stopped, by their pass, node and first row.
    stopped: BTreeMap<(PassId, usize, u32), u32>,
}

/// Where a kernel stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) node: usize,
    /// What is said of how long that is.
    pub(crate) about: Nanos,
    /// How long it is.
    pub(crate) takes: Nanos,
}

impl Disk {
    pub(crate) fn new(heg: Heg, seed: u64, jitter: f64) -> Self {
        Self { heg, seed, jitter, stopped: BTreeMap::new() }
    }

    /// Where a kernel that is launched now will stop, if it does.
    pub(crate) fn stop(&mut self, kernel: &Kernel) -> Option<Stop> {
        let rows = f64::from(kernel.rows.end - kernel.rows.start);
        let whole = self.heg.ffn.disk_time(rows);
        if kernel.on_miss == OnMiss::Waits || !kernel.net().is_decoder() || whole <= 0.0 {
            return None;
        }
        let order = self.heg.order();
        for node in kernel.nodes.clone().filter(|&node| order.kind(node) == NodeKind::Ffn) {
            let mut random = Random::new(self.seed ^ (kernel.pass.0 << 20) ^ ((node as u64) << 8));
            let waves = [0, 1, 1, 2][random.between(0, 4) as usize];
            let stopped = self.stopped.entry((kernel.pass, node, kernel.rows.start)).or_default();
            if *stopped < waves {
                *stopped += 1;
                let about = whole / f64::from(waves);
                let deviation = 1.0 + self.jitter * (4.0 * random.share() - 1.0);
                let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
                return Some(Stop { node, about: nanos(about), takes: nanos(about * deviation.max(0.0)) });
            }
        }
        None
    }

    /// A pass is over.
    pub(crate) fn forget(&mut self, pass: PassId) {
        self.stopped.retain(|(of, ..), _| *of != pass);
    }
}
