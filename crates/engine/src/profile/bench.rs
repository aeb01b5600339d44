//! Timing the model's own kernels on a team: what every part of a profile is made of.

use super::ProfileError;
use crate::executors::{Executors, Site};
use duet_device::CpuLanes;
use duet_kernels::crew::Crew;
use duet_model::Model;
use duet_model::forward::{Activations, Node, NodeOrder, Pass, PassRefused, Segment};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_scheduler::heg::LayerNodes;
use duet_scheduler::{Heg, Machine, division};
use duet_types::{LaneSet, TokenId, Tokens};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Times passes of one model.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) model: Arc<Model>,
    pub(super) executors: Arc<Executors>,
    /// By which teams with devices divide rows: of the lanes that are measured already.
    machine: Arc<Machine>,
    heg: Heg,
    pool: KvPool,
}

/// Which nodes are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Projections to queries, keys and values.
    Qkv,
    /// Output projections and feed-forward blocks.
    Ffn,
    /// Attention.
    Attention,
    /// What stands in attention's place in recurrent layers.
    Recurrence,
}

impl Part {
    /// In a layer.
    pub(super) fn node(self, layer: usize) -> Node {
        match self {
            Self::Qkv => Node::Qkv { layer },
            Self::Ffn => Node::Ffn { layer },
            Self::Attention | Self::Recurrence => Node::Attention { layer },
        }
    }
}

/// One sequence of a timed pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Positions that are in the cache.
    pub(super) context: usize,
    /// Rows.
    pub(super) rows: usize,
}

impl Bench {
    /// With KV memory for `positions`.
    pub(super) fn new(model: Arc<Model>, executors: Arc<Executors>, kv: KvFormat, positions: usize) -> Self {
        let pool = model.kv_pool(kv, Tokens(u32::try_from(positions).unwrap_or(u32::MAX)));
        let (machine, heg) = (Arc::new(Machine::of(Vec::new())), super::heg(&model, kv));
        Self { model, executors, machine, heg, pool }
    }

    /// The same, for teams of lanes that are measured one by one.
    pub(super) fn of_teams(&self, machine: &Machine) -> Self {
        Self { machine: Arc::new(machine.clone()), ..self.clone() }
    }

    /// Keys and values of a position in one layer.
    pub(super) fn position_bytes(&self) -> f64 {
        self.heg.attention.bytes_per_position
    }

    /// What a device alone is timed with: feed-forward, but of devices that take it in launches of experts, which need a
    /// crew, projections.
    pub(super) fn product(&self, team: LaneSet) -> Part {
        let alone = team.leader().filter(|_| team.len() == 1).and_then(|lane| self.executors.device(lane));
        if alone.is_some_and(|device| device.experts.is_some()) { Part::Qkv } else { Part::Ffn }
    }

    /// Whether a device is among these lanes.
    pub(super) fn has_device(&self, lanes: LaneSet) -> bool {
        lanes.without(self.executors.device_lanes()) != lanes
    }

    /// The nodes that are run for one: on a team whose device launches experts, these are nodes of their own.
    fn launched(&self, node: Node, site: Site<'_>) -> Vec<Node> {
        let Node::Ffn { layer } = node else { return vec![node] };
        let order = NodeOrder::with_launches(self.model.config().layers, self.executors.launches_on(site.lanes));
        let of_layer = (order.first_node(layer)..order.first_node(layer + 1)).map(|index| order.node(index));
        of_layer.filter(|node| !matches!(node, Node::Qkv { .. } | Node::Attention { .. })).collect()
    }

    /// A pass that has not begun. What is in its context does not matter to time, so it is zeros.
    pub(super) fn pass(&self, shapes: &[Shape]) -> Result<Pass, ProfileError> {
        let rows: usize = shapes.iter().map(|shape| shape.rows).sum();
        let segments: Result<Vec<Segment>, ProfileError> =
            shapes.iter().map(|shape| Ok(Segment::new(self.context(shape.context)?, self.text(shape.rows)))).collect();
        let activations = Activations::new(&self.model, rows);
        Pass::new(&self.model, activations, segments?)
            .map_err(|refused: Box<PassRefused>| ProfileError::Pass(refused.error.to_string()))
    }

    fn context(&self, positions: usize) -> Result<KvTable, ProfileError> {
        let table = self.pool.read_table(Tokens(positions as u32), &mut io::repeat(0));
        table.map_err(|error| ProfileError::Pass(error.to_string()))
    }

    /// Tokens that stand for text: spread over the vocabulary.
    fn text(&self, count: usize) -> Vec<TokenId> {
        let vocabulary = self.model.config().vocabulary;
        (0..count).map(|i| TokenId(((i * 7919 + 1000) % vocabulary) as u32)).collect()
    }

    /// How long some nodes take, all rows.
    pub(super) fn time(
        &self,
        pass: &mut Pass,
        nodes: impl Iterator<Item = Node>,
        site: Site<'_>,
    ) -> Result<Duration, ProfileError> {
        let rows = pass.rows();
        let shares = match (site.lanes.len(), self.has_device(site.lanes)) {
            (1, _) | (_, false) => Vec::new(),
            _ => division::shares(&self.machine, &self.heg, site.lanes, Tokens(rows as u32)),
        };
        let site = Site { shares: &shares, ..site };
        let nodes: Vec<Node> = nodes.flat_map(|node| self.launched(node, site)).collect();
        let (start, before) = (Instant::now(), self.waited());
        let ran = self.executors.run_nodes(&self.model, pass, nodes.into_iter(), 0..rows, site);
        ran.map_err(|error| ProfileError::Pass(error.to_string()))?;
        Ok(start.elapsed().saturating_sub(self.waited() - before))
    }

    /// How long passes have waited for a disk so far: that is no work of the cores, and predicted by itself.
    fn waited(&self) -> Duration {
        self.model.expert_memory_stats().map_or(Duration::ZERO, |stats| stats.waited)
    }

    /// The head on some rows of a pass that has gone through all nodes.
    pub(super) fn head(
        &self,
        pass: &mut Pass,
        rows: &[usize],
        logits: &mut Vec<f32>,
        site: Site<'_>,
    ) -> Result<(), ProfileError> {
        let ran = self.executors.logits(&self.model, pass, rows, logits, site);
        ran.map_err(|error| ProfileError::Pass(error.to_string()))
    }

    /// As many of the first layers as hold more weights than any cache, or all of them: of those that lanes hold.
    pub(super) fn layers(&self, lanes: LaneSet) -> Range<usize> {
        let work = self.model.work();
        self.layers_of(lanes, work.qkv.all_bytes().0 + work.ffn.all_bytes().0)
    }

    /// The same by what one row reads of them: of experts a few.
    pub(super) fn layers_of_a_row(&self, lanes: LaneSet) -> Range<usize> {
        self.layers_of(lanes, (self.heg.qkv.weights_read(1.0) + self.heg.ffn.weights_read(1.0)) as u64)
    }

    fn layers_of(&self, lanes: LaneSet, bytes: u64) -> Range<usize> {
        let held = self.executors.held(lanes);
        held.start..held.end.min(held.start + (BEYOND_CACHES / bytes.max(1)) as usize + 1)
    }

    /// The layers in which a part is timed, of those that lanes hold. Of products as many as hold more weights than any cache,
    /// with as many multiplications each as most layers have; of attention those that see all positions, if there are any.
    pub(super) fn alike(&self, lanes: LaneSet, part: Part) -> Vec<usize> {
        let (blueprint, held) = (self.model.blueprint(), self.executors.held(lanes));
        let that = |is: &dyn Fn(usize) -> bool| held.clone().filter(|&layer| is(layer)).collect::<Vec<usize>>();
        match part {
            Part::Qkv | Part::Ffn => {
                let linear = |layer| self.model.linear_of(part.node(layer));
                let like = |layer: usize| that(&|other| linear(other).macs == linear(layer).macs);
                let mut common = held.clone().map(like).max_by_key(Vec::len).unwrap_or_default();
                let bytes = common.first().map_or(1, |&layer| linear(layer).all_bytes().0.max(1));
                common.truncate((BEYOND_CACHES / bytes) as usize + 1);
                common
            }
            Part::Attention => {
                let attends = |layer| !blueprint.is_recurrent(layer);
                let sees_all = that(&|layer| attends(layer) && blueprint.layers[layer].window.is_none());
                if sees_all.is_empty() { that(&attends) } else { sees_all }
            }
            Part::Recurrence => that(&|layer| blueprint.is_recurrent(layer)),
        }
    }

    /// What the layers in which a part is timed are on average; of lanes that hold none, all layers.
    pub(super) fn timed(&self, lanes: LaneSet, part: Part) -> LayerNodes {
        match self.alike(lanes, part) {
            none if none.is_empty() => self.heg.mean(),
            layers => {
                let nodes = layers.into_iter().map(|layer| part.node(layer));
                super::heg::mean_of(&self.model, KvFormat::F16, nodes)
            }
        }
    }

    /// The share of layers that are recurrent.
    pub(super) fn recurrent(&self) -> f64 {
        let blueprint = self.model.blueprint();
        blueprint.recurrent_layers() as f64 / blueprint.layers.len().max(1) as f64
    }

    /// The token-wise nodes of these layers.
    pub(super) fn token_wise(layers: Range<usize>) -> impl Iterator<Item = Node> {
        layers.flat_map(|layer| [Node::Qkv { layer }, Node::Ffn { layer }])
    }
}

/// Runs `work` on a team and returns what it returns.
pub(super) fn on<R: Send + 'static>(
    lanes: &CpuLanes,
    team: LaneSet,
    work: impl FnOnce(Site<'_>) -> R + Send + 'static,
) -> Result<R, ProfileError> {
    start(lanes, team, work)?.recv().map_err(|_| ProfileError::Lanes("a kernel panicked".to_owned()))
}

/// Starts `work` on a team.
pub(super) fn start<R: Send + 'static>(
    lanes: &CpuLanes,
    team: LaneSet,
    work: impl FnOnce(Site<'_>) -> R + Send + 'static,
) -> Result<Receiver<R>, ProfileError> {
    let (send, receive) = channel();
    let job = Box::new(move |crew: &dyn Crew| {
        // If the receiver is gone, nobody wants to know.
        let _ = send.send(work(Site::new(team, crew)));
    });
    lanes.launch(team, job).map_err(|error| ProfileError::Lanes(error.to_string()))?;
    Ok(receive)
}

/// The middle of some times; zero of none.
pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// The least of some times: nothing else on the machine made it longer. Zero of none.
pub(super) fn fastest(times: Vec<f64>) -> f64 {
    times.into_iter().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// Weights that no cache holds.
const BEYOND_CACHES: u64 = 256 << 20;
