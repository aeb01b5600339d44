//! Plans: which experts have which room in which graphs, by `duet-moe`, from what was calibrated. (NPUMoE §4)
//!
//! Plans are made once, with a machine's constants as they are; when a sweep changes a constant the plan stays what it
//! was, as a plan made offline does.

use super::assumptions::Room;
use super::costs::Costs;
use super::machines::Place;
use super::routing::Routing;
use duet_moe::residency::{Command, Event};
use duet_moe::{Device, Group, Grouping, LayerCounts, MoeShape, Overflow, Provision, Residency, Tiers};
use duet_types::{Bytes, Tokens};

/// How experts are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// All on the CPU.
    OnCpu,
    /// A graph for each expert, all of one capacity. (Ours-base)
    Single(Room),
    /// A graph for each expert, in tiers. (Ours-T)
    Tiers,
    /// Groups of a tier's experts. (Ours-TG)
    Groups,
    /// Of these, those on the accelerator that are worth it. (Ours-all)
    Resident,
    /// The same, and what has no room is the CPU's: nothing is dropped.
    Exact,
}

impl Plan {
    /// All of them.
    pub(super) const ALL: [Self; 8] = [
        Self::OnCpu,
        Self::Single(Room::Base),
        Self::Single(Room::Busiest),
        Self::Single(Room::Chunk),
        Self::Tiers,
        Self::Groups,
        Self::Resident,
        Self::Exact,
    ];

    /// What becomes of rows that have no room. The paper's runtime cannot compute them elsewhere. (§4.1)
    pub(super) fn overflow(self) -> Overflow {
        match self {
            Self::OnCpu | Self::Exact => Overflow::Spill,
            Self::Single(_) | Self::Tiers | Self::Groups | Self::Resident => Overflow::Prune,
        }
    }

    /// The groups of each layer that are on the accelerator.
    pub(super) fn hot(self, place: Place, routing: &Routing, chunk: Tokens, costs: &Costs) -> Vec<Vec<Group>> {
        let (device, shape) = (self.device(place, routing, costs), moe_shape(place, chunk));
        let groups = |counts: &LayerCounts| {
            let tiers = Tiers::of(counts, &shape, &device, self.provision(chunk));
            Grouping::of(counts, &tiers, &shape, &device).groups
        };
        let layers = routing.layers.iter().map(|layer| &layer.calibrated);
        match self {
            Self::OnCpu => layers.map(|_| Vec::new()).collect(),
            Self::Single(_) | Self::Tiers | Self::Groups => layers.map(groups).collect(),
            Self::Resident | Self::Exact => {
                resident(layers.map(|counts| (counts, groups(counts))).collect(), shape, &device)
            }
        }
    }

    fn provision(self, chunk: Tokens) -> Provision {
        match self {
            Self::Single(Room::Base) => Provision::Uniform,
            Self::Single(Room::Busiest) => Provision::Calibrated { tiers_max: 1, headroom: 1.0 },
            // So many times any expert's load is more than a chunk, which is all that an expert can be given.
            Self::Single(Room::Chunk) => {
                Provision::Calibrated { tiers_max: 1, headroom: f64::from(chunk.0) * f64::from(chunk.0) }
            }
            _ => Provision::Calibrated { tiers_max: TIERS_MAX, headroom: 1.0 },
        }
    }

    /// The accelerator as `duet-moe` knows it.
    fn device(self, place: Place, routing: &Routing, costs: &Costs) -> Device {
        // Layers that were read stand for more, or fewer, of the model's.
        let layers = place.target.sizes().layers as u64;
        Device {
            tile: TILE,
            graph_bytes_max: GRAPH_BYTES_MAX,
            group_max: self.group_max(),
            resident_bytes_max: Bytes(place.machine.memory().0 / layers * routing.layers.len() as u64),
            times: if self == Self::Exact { costs.times_with_weights() } else { costs.times() },
        }
    }

    fn group_max(self) -> usize {
        match self {
            Self::OnCpu | Self::Single(_) | Self::Tiers => 1,
            Self::Groups | Self::Resident | Self::Exact => GROUP_MAX,
        }
    }
}

/// "A small number" (§4.1).
pub(super) const TIERS_MAX: usize = 3;
/// What the paper's Table 5 finds best of those that fit.
pub(super) const GROUP_MAX: usize = 8;
/// Weights of a graph: "> 1.2 GB", and groups of eight experts of 150 MiB, which only 1.2 × 2³⁰ holds (§4.2, §5.7).
pub(super) const GRAPH_BYTES_MAX: Bytes = Bytes(1_288_490_188);
/// "Multiples of 16" (§3.2).
pub(super) const TILE: Tokens = Tokens(16);

fn moe_shape(place: Place, chunk: Tokens) -> MoeShape {
    MoeShape { chunk, chosen: place.target.routers().chosen(), expert_bytes: place.target.sizes().expert_bytes() }
}

/// What is on the accelerator when everything that was asked for is there.
fn resident(layers: Vec<(&LayerCounts, Vec<Group>)>, shape: MoeShape, device: &Device) -> Vec<Vec<Group>> {
    let count = layers.len();
    let mut residency = Residency::new(layers, shape, device);
    while let Some(command) = residency.poll() {
        residency.handle(match command {
            Command::Load(group) => Event::Loaded(group),
            Command::Release(group) => Event::Released(group),
        });
    }
    (0..count).map(|layer| residency.hot(layer).map(|(_, group)| group.clone()).collect()).collect()
}
