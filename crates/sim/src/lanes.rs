//! Lanes in virtual time: a kernel takes what its annotation says on the machine as it truly is and as fast as it is at
//! that time, longer while another one disturbs it, and a little more or less if there is jitter.
//!
//! How kernels disturb each other is [shared memory](crate::dram) where the machine's bandwidth is known, and the measured
//! factors of its contention where it is not. A graph that is being loaded has its part of shared memory, too.
//!
//! Checked: a lane runs one kernel, and none after it was lost; lanes that run one kernel together can; a static lane
//! runs chunks of token-wise nodes, or a request's graph.

use crate::copies::Copies;
use crate::dram;
use crate::kernel_log::load;
use crate::paced::Paced;
use crate::random::Random;
use crate::speed::SpeedTimeline;
use crate::truth::Truth;
use crate::watchdog::Watchdog;
use duet_scheduler::annotation;
use duet_scheduler::machine::{Bound, Joins};
use duet_scheduler::{Heg, Kernel, Machine, OnMiss, SchedulerConfig};
use duet_types::{Instant, KernelId, LaneId, LaneSet, Nanos, Net, NodeKind, Tokens};
use std::collections::BTreeMap;
use std::ops::Range;

/// The lanes and what they run.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    machine: Machine,
    heg: Heg,
    /// The same where kernels do not wait for a disk.
    in_memory: Heg,
    encoder: Heg,
    chunk: Tokens,
    /// Bytes a second that all lanes get together.
    shared_bytes_per_s: Option<f64>,
    /// Largest relative deviation from the annotation, and where it comes from.
    jitter: f64,
    random: Random,
    speed: SpeedTimeline,
    running: BTreeMap<KernelId, Running>,
    pub(crate) copies: Copies,
    /// The graph that is being loaded.
    loading: Option<Paced>,
    lost: LaneSet,
}

#[derive(Clone, Debug)]
struct Running {
    kernel: Kernel,
    lanes: LaneSet,
    bound: Bound,
    pace: Paced,
}

/// What of a kernel runs, and how.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// Nodes that it comes through: all, unless it gives its lanes back.
    pub(crate) nodes: Range<usize>,
    pub(crate) warmth: Warmth,
    /// How much longer it takes than its annotation, for the graphs that it runs on.
    pub(crate) slowdown: f64,
    /// How long masks take that its end waits for.
    pub(crate) masks: Nanos,
}

/// Whether a graph is ready for exactly the rows of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    Cold,
    Warm,
}

impl Lanes {
    pub(crate) fn new(truth: &Truth, config: &SchedulerConfig) -> Self {
        Self {
            machine: truth.machine.clone(),
            in_memory: config.heg.clone().on_disk(None),
            heg: config.heg.clone(),
            encoder: config.graph(Net::Encoder).clone(),
            chunk: config.limits.chunk,
            shared_bytes_per_s: truth.shared_bytes_per_s,
            jitter: truth.jitter,
            random: Random::new(truth.seed),
            speed: truth.speed.clone(),
            running: BTreeMap::new(),
            copies: Copies::new(config.memory.page),
            loading: None,
            lost: LaneSet::EMPTY,
        }
    }

    /// Returns for how long its end will wait for masks, if nothing disturbs it.
    pub(crate) fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: Kernel, way: &Way) -> Nanos {
        self.check(lanes, &kernel, way.warmth);
        let anchors = &self.speed.at(now).of(lanes, self.machine.anchors(lanes));
        let part = load(&kernel);
        let copied = self.bring(lanes, &kernel, &way.nodes);
        let heg = self.graph(&kernel);
        let demand = annotation::demand(heg, anchors, &part, &way.nodes);
        let time = (demand.seconds * 1e9).floor() * way.slowdown + copied.0 as f64;
        let bound = match kernel.nodes.len() {
            1 => annotation::bound(heg, anchors, &part, heg.order().kind(kernel.nodes.start)),
            _ => annotation::pass_bound(heg, anchors, &part),
        };
        let deviation = 1.0 + self.jitter * (2.0 * self.random.share() - 1.0);
        let computes = if self.jitter > 0.0 { time * deviation } else { time };
        let left = computes.max(way.masks.0 as f64);
        let bytes_per_s = if left > 0.0 { demand.bytes / left * 1e9 } else { 0.0 };
        let running = Running { lanes, bound, pace: Paced::new(now, left, bytes_per_s), kernel };
        self.running.insert(running.kernel.id, running);
        self.disturb(now);
        Nanos((left - computes) as u64)
    }

    /// What a kernel waits for before its device attends.
    fn bring(&mut self, lanes: LaneSet, kernel: &Kernel, nodes: &Range<usize>) -> Nanos {
        let of = (self.heg.order(), self.heg.attention.bytes_per_position);
        match kernel.net() {
            Net::Decoder => self.copies.bring(&self.machine, lanes, (kernel, nodes), of),
            Net::Encoder => Nanos::ZERO,
        }
    }

    /// The kernel that ends first, and when. Ties go to the one that was launched first.
    pub(crate) fn next(&self, watchdog: &Watchdog) -> Option<(Instant, KernelId)> {
        let ending = self.running.iter().filter(|(id, _)| !watchdog.watches(**id));
        ending.map(|(&id, running)| (running.pace.ends(), id)).min()
    }

    /// Takes a kernel off its lanes.
    pub(crate) fn end(&mut self, now: Instant, kernel: KernelId) -> Kernel {
        let running = self.running.remove(&kernel).expect("a kernel ends once");
        self.disturb(now);
        running.kernel
    }

    /// A graph is loaded from now on, one at a time.
    pub(crate) fn load(&mut self, now: Instant, takes: Nanos, bytes_per_s: f64) {
        let before = self.loading.replace(Paced::new(now, takes.0 as f64, bytes_per_s));
        assert!(before.is_none(), "two graphs are loaded at once");
        self.disturb(now);
    }

    /// When the graph will be loaded.
    pub(crate) fn load_ends(&self) -> Option<Instant> {
        self.loading.as_ref().map(Paced::ends)
    }

    /// The graph is loaded, or not wanted any more.
    pub(crate) fn end_load(&mut self, now: Instant) {
        self.loading = None;
        self.disturb(now);
    }

    /// A lane is gone. Returns the kernel that went with it.
    pub(crate) fn lose(&mut self, now: Instant, lane: LaneId) -> Option<Kernel> {
        self.lost = self.lost.union(LaneSet::from_iter([lane]));
        self.copies.lost(lane);
        let kernel = self.running.values().find(|running| running.lanes.contains(lane))?.kernel.id;
        Some(self.end(now, kernel))
    }

    /// A lost lane works again.
    pub(crate) fn back(&mut self, lane: LaneId) {
        self.lost = self.lost.without(LaneSet::from_iter([lane]));
    }

    /// Whether a lane is lost.
    pub(crate) fn is_lost(&self, lane: LaneId) -> bool {
        self.lost.contains(lane)
    }

    /// Whether a lane is there, and another one that takes any shape.
    pub(crate) fn can_lose(&self, lane: LaneId) -> bool {
        let left = self.machine.all().without(self.lost);
        left.contains(lane) && left.iter().any(|other| other != lane && !self.machine.is_static(other))
    }

    /// The lane that leads the team of a kernel under way.
    pub(crate) fn leader(&self, kernel: KernelId) -> LaneId {
        self.running[&kernel].lanes.leader().expect("a kernel has a lane")
    }

    /// Lanes that run nothing.
    pub(crate) fn idle(&self) -> LaneSet {
        let busy = self.running.values().fold(self.lost, |busy, running| busy.union(running.lanes));
        self.machine.all().without(busy)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Kernel> {
        self.running.values().map(|running| &running.kernel)
    }

    /// What a kernel runs through.
    fn graph(&self, kernel: &Kernel) -> &Heg {
        match (kernel.net(), kernel.on_miss) {
            (Net::Encoder, _) => &self.encoder,
            (Net::Decoder, OnMiss::Waits) => &self.heg,
            (Net::Decoder, OnMiss::GivesBack) => &self.in_memory,
        }
    }

    fn check(&self, lanes: LaneSet, kernel: &Kernel, warmth: Warmth) {
        assert!(!lanes.is_empty(), "kernel {} has no lane", kernel.id);
        assert!(self.idle().contains_all(lanes), "lanes {lanes} are not idle");
        if kernel.net() == Net::Encoder {
            let is_core = |lane: LaneId| self.machine.lane(lane).capabilities.joins == Joins::Crew;
            assert!(lanes.iter().all(is_core), "lanes {lanes} got a kernel of the encoder, and are not all cores");
        }
        let fixed = lanes.iter().any(|lane| self.machine.is_static(lane));
        if !fixed || warmth == Warmth::Warm {
            return;
        }
        let chunk = kernel.rows.end - kernel.rows.start == self.chunk.0;
        assert!(chunk, "the static lane got rows {:?}, and no graph is ready", kernel.rows);
        let token_wise = |node| self.heg.order().kind(node) != NodeKind::Attention;
        assert!(kernel.nodes.clone().all(token_wise), "the static lane got attention, and no graph is ready");
    }

    /// Every kernel is as fast from now on as the others let it be.
    fn disturb(&mut self, now: Instant) {
        let factors = match self.shared_bytes_per_s {
            Some(shared) => {
                let kernels = self.running.values().map(|running| &running.pace);
                let demands: Vec<f64> = kernels.chain(&self.loading).map(Paced::bytes_per_s).collect();
                dram::speeds(shared, &demands).into_iter().map(|speed| 1.0 / speed).collect()
            }
            None => self.measured_factors(),
        };
        let kernels = self.running.values_mut().map(|running| &mut running.pace);
        kernels.chain(&mut self.loading).zip(factors).for_each(|(pace, factor)| pace.slow(now, factor));
    }

    /// How much slower each kernel is beside the others, by what decides their times.
    fn measured_factors(&self) -> Vec<f64> {
        let beside = |one: &Running, other: &Running| {
            self.machine.contention_of(one.lanes, other.lanes).factor(one.bound, other.bound)
        };
        let factor = |(&id, running): (&KernelId, &Running)| {
            let others = self.running.iter().filter(|(other, _)| **other != id);
            others.fold(1.0_f64, |factor, (_, other)| factor.max(beside(running, other)))
        };
        self.running.iter().map(factor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines;
    use duet_scheduler::{Completes, HeadRows, Member, PassId, Yields};
    use duet_types::{Class, RequestId, Stage};

    /// A kernel of one token on the iGPU, which gets all of the memory's bandwidth when it is alone.
    fn decoding() -> Lanes {
        let config = machines::npu_igpu();
        let lane = config.machine.decode_lane();
        let shared = config.machine.lane(lane).anchors.bytes_per_s;
        let truth = Truth { shared_bytes_per_s: Some(shared), ..Truth::of(&config) };
        let member = Member {
            request: RequestId(0),
            class: Class::Proactive,
            stage: Stage::Decode,
            rows: Tokens(9)..Tokens(10),
            yields: Yields::Token,
            head: HeadRows::Last,
            net: Net::Decoder,
        };
        let kernel = Kernel {
            id: KernelId(0),
            pass: PassId(0),
            members: vec![member],
            nodes: 0..config.heg.nodes(),
            rows: 0..1,
            completes: Completes::Pass,
            predicted: Nanos(1),
            on_miss: OnMiss::Waits,
            shares: Vec::new(),
        };
        let mut lanes = Lanes::new(&truth, &config);
        let way = Way { nodes: kernel.nodes.clone(), warmth: Warmth::Cold, slowdown: 1.0, masks: Nanos::ZERO };
        lanes.launch(Instant(0), LaneSet::from_iter([lane]), kernel, &way);
        lanes
    }

    #[test]
    fn loading_a_graph_and_decoding_take_bandwidth_from_each_other() {
        let ends = |lanes: &Lanes| lanes.next(&Watchdog::default()).unwrap().0;
        let alone = ends(&decoding());
        let mut lanes = decoding();
        let fast = lanes.shared_bytes_per_s.unwrap();
        lanes.load(Instant(0), Nanos(alone.0), fast);
        assert!(ends(&lanes).0 > alone.0 * 3 / 2, "{:?} and {alone:?} alone", ends(&lanes));
        assert!(lanes.load_ends().unwrap().0 > alone.0 * 3 / 2);
        // With the load called off half-way, half of the time was at half the speed.
        lanes.end_load(Instant(alone.0));
        assert!(lanes.load_ends().is_none() && ends(&lanes).0 < alone.0 * 8 / 5, "{:?}", ends(&lanes));
    }
}
