//! Lanes in virtual time: a kernel takes what its annotation says on the machine as it truly is and as fast as it is at
//! that time, longer while another one disturbs it, and a little more or less if there is jitter.
//!
//! Checked: a lane runs one kernel, and none after it was lost; lanes that run one kernel together can; a static lane
//! runs chunks of token-wise nodes, or a request's graph.

use crate::kernel_log::load;
use crate::random::Random;
use crate::speed::SpeedTimeline;
use crate::world::Truth;
use duet_scheduler::annotation::{self, Bound};
use duet_scheduler::heg::Node;
use duet_scheduler::{Heg, Kernel, Machine};
use duet_types::{Instant, KernelId, LaneId, LaneSet, Nanos, Tokens};
use std::collections::BTreeMap;

/// The lanes and what they run.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    machine: Machine,
    heg: Heg,
    chunk: Tokens,
    /// Largest relative deviation from the annotation, and where it comes from.
    jitter: f64,
    random: Random,
    speed: SpeedTimeline,
    running: BTreeMap<KernelId, Running>,
    lost: LaneSet,
}

#[derive(Clone, Debug)]
struct Running {
    kernel: Kernel,
    lanes: LaneSet,
    bound: Bound,
    /// Time that it still takes when nothing disturbs it, as of `since`.
    left: f64,
    since: Instant,
    /// How much slower it is at present.
    factor: f64,
}

/// Whether a graph is ready for exactly the rows of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    Cold,
    Warm,
}

impl Lanes {
    pub(crate) fn new(heg: Heg, chunk: Tokens, truth: &Truth) -> Self {
        Self {
            machine: truth.machine.clone(),
            heg,
            chunk,
            jitter: truth.jitter,
            random: Random::new(truth.seed),
            speed: truth.speed.clone(),
            running: BTreeMap::new(),
            lost: LaneSet::EMPTY,
        }
    }

    pub(crate) fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: Kernel, warmth: Warmth) {
        self.check(lanes, &kernel, warmth);
        let anchors = &self.speed.at(now).of(lanes, self.machine.anchors(lanes));
        let part = load(&kernel);
        let time = annotation::predict(&self.heg, anchors, &part, &kernel.nodes);
        let deviation = 1.0 + self.jitter * (2.0 * self.random.share() - 1.0);
        let bound = match kernel.nodes.len() {
            1 => annotation::bound(&self.heg, anchors, &part, self.heg.node(kernel.nodes.start)),
            _ => annotation::pass_bound(&self.heg, anchors, &part),
        };
        let left = if self.jitter > 0.0 { time.0 as f64 * deviation } else { time.0 as f64 };
        self.running.insert(kernel.id, Running { kernel, lanes, bound, left, since: now, factor: 1.0 });
        self.disturb(now);
    }

    /// The kernel that ends first, and when. Ties go to the one that was launched first.
    pub(crate) fn next(&self) -> Option<(Instant, KernelId)> {
        self.running.iter().map(|(&id, running)| (running.ends(), id)).min()
    }

    /// Takes a kernel off its lanes.
    pub(crate) fn end(&mut self, now: Instant, kernel: KernelId) -> Kernel {
        let running = self.running.remove(&kernel).expect("a kernel ends once");
        self.disturb(now);
        running.kernel
    }

    /// A lane is gone. Returns the kernel that went with it.
    pub(crate) fn lose(&mut self, now: Instant, lane: LaneId) -> Option<Kernel> {
        self.lost = self.lost.union(LaneSet::from_iter([lane]));
        let kernel = self.running.values().find(|running| running.lanes.contains(lane))?.kernel.id;
        Some(self.end(now, kernel))
    }

    /// Lanes that run nothing.
    pub(crate) fn idle(&self) -> LaneSet {
        let busy = self.running.values().fold(self.lost, |busy, running| busy.union(running.lanes));
        self.machine.all().without(busy)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Kernel> {
        self.running.values().map(|running| &running.kernel)
    }

    fn check(&self, lanes: LaneSet, kernel: &Kernel, warmth: Warmth) {
        assert!(!lanes.is_empty(), "kernel {} has no lane", kernel.id);
        assert!(self.idle().contains_all(lanes), "lanes {lanes} are not idle");
        let fixed = lanes.iter().any(|lane| self.machine.is_static(lane));
        if !fixed || warmth == Warmth::Warm {
            return;
        }
        let chunk = kernel.rows.end - kernel.rows.start == self.chunk.0;
        assert!(chunk, "the static lane got rows {:?}, and no graph is ready", kernel.rows);
        let token_wise = |node| self.heg.node(node) != Node::Attention;
        assert!(kernel.nodes.clone().all(token_wise), "the static lane got attention, and no graph is ready");
    }

    /// Every kernel is as fast from now on as the others let it be.
    fn disturb(&mut self, now: Instant) {
        let bounds: Vec<_> = self.running.iter().map(|(&id, running)| (id, running.bound)).collect();
        for (&id, running) in &mut self.running {
            let others = bounds.iter().filter(|(other, _)| *other != id);
            let contention = &self.machine.contention;
            let factor = others.fold(1.0_f64, |factor, (_, beside)| {
                factor.max(match (running.bound, beside) {
                    (Bound::Memory, Bound::Memory) => contention.memory_beside_memory,
                    (Bound::Memory, Bound::Compute) => contention.memory_beside_compute,
                    (Bound::Compute, Bound::Memory) => contention.compute_beside_memory,
                    (Bound::Compute, Bound::Compute) => contention.compute_beside_compute,
                })
            });
            if factor.to_bits() != running.factor.to_bits() {
                running.left -= (now - running.since).0 as f64 / running.factor;
                (running.since, running.factor) = (now, factor);
            }
        }
    }
}

impl Running {
    fn ends(&self) -> Instant {
        self.since + Nanos((self.left * self.factor).max(0.0).round() as u64)
    }
}
