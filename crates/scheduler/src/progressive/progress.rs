//! Following a plan: what is to be computed and loaded next, whatever time it takes.
//!
//! It is told what has begun and what is done, and holds no clock: the scheduler follows a plan with it, and
//! [`Timeline`](super::Timeline) does in predicted time. A plan that is abandoned leaves what is resident, from which the
//! next prompt is planned. (CoordGen §3.2)

use super::blocks::{Blocks, Role};
use super::plan::{Exchange, Load, Plan};
use super::problem::Resident;
use super::prompt::Place;
use duet_types::Bytes;

/// A plan on its way.
#[derive(Clone, Debug)]
pub struct Progress {
    plan: Plan,
    end: Place,
    place: Place,
    lane: Option<Role>,
    channel: Option<Load>,
    /// How many loads have begun.
    begun: usize,
    /// How many loads have come to their place.
    come: usize,
    /// The graph of the last of these of each block.
    wanted: Vec<Option<Role>>,
    resident: Vec<Resident>,
    /// The graph that is released as soon as its pass is done.
    retiring: Option<(usize, Role)>,
}

/// What the lane is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    /// The chunk passes the block of this place on this graph.
    Compute {
        /// Which chunk, and which block.
        place: Place,
        /// On which graph.
        role: Role,
    },
    /// Nothing, until this block's graph is loaded.
    Await(usize),
    /// Nothing: all rows have passed all blocks. It may decode when nothing is left to be loaded.
    Nothing,
}

impl Progress {
    /// The beginning of a plan for these blocks.
    #[must_use]
    pub fn new(plan: Plan, blocks: &Blocks) -> Self {
        let (end, resident) = (plan.prompt.end(blocks), plan.initial.clone());
        let wanted = vec![None; resident.len()];
        let (place, lane, channel) = (Place::START, None, None);
        let mut progress =
            Self { plan, end, place, lane, channel, begun: 0, come: 0, wanted, resident, retiring: None };
        progress.come_to_place();
        progress
    }

    /// What the lane, which is idle, is to do.
    #[must_use]
    pub fn todo(&self, blocks: &Blocks) -> Todo {
        if self.place == self.end {
            return Todo::Nothing;
        }
        let place = self.place;
        let wanted = self.wanted[place.block];
        match (self.resident[place.block], wanted) {
            (Resident::None, _) => Todo::Await(place.block),
            (Resident::One(role), Some(wanted)) if role != wanted && self.plan.exchange == Exchange::InPlace => {
                Todo::Await(place.block)
            }
            (Resident::One(role), _) => Todo::Compute { place, role },
            (Resident::Both, _) => Todo::Compute { place, role: self.faster(blocks) },
        }
    }

    /// The lane has begun what [`Self::todo`] said.
    ///
    /// # Panics
    /// If there was nothing to be computed.
    pub fn begin_compute(&mut self, blocks: &Blocks) -> (Place, Role) {
        let Todo::Compute { place, role } = self.todo(blocks) else { panic!("nothing is to be computed") };
        assert_eq!(self.lane, None, "the lane computes one block at a time");
        self.lane = Some(role);
        (place, role)
    }

    /// The lane has done it.
    ///
    /// # Panics
    /// If it had begun nothing.
    pub fn computed(&mut self) {
        assert!(self.lane.take().is_some(), "nothing was computed");
        self.place = self.place.next(self.resident.len());
        self.come_to_place();
        if let Some((block, old)) = self.retiring.take() {
            self.resident[block] = Resident::One(old.other());
        }
    }

    /// What may be loaded now.
    #[must_use]
    pub fn due(&self) -> Option<Load> {
        let next = self.plan.loads.get(self.begun).copied()?;
        // A graph that still computes leaves no room for the next one.
        let is_free = self.channel.is_none() && self.retiring.is_none();
        (is_free && next.at <= self.place).then_some(next)
    }

    /// Loading what is due has begun; what was in its place is released, if there is room for one graph only.
    ///
    /// # Panics
    /// If nothing was due.
    pub fn begin_load(&mut self) -> Load {
        let load = self.due().expect("nothing is to be loaded");
        if self.plan.exchange == Exchange::InPlace {
            assert!(!self.computes(load.block), "a graph that computes is released");
            self.resident[load.block] = Resident::None;
        }
        self.begun += 1;
        self.channel = Some(load);
        load
    }

    /// It is loaded.
    ///
    /// # Panics
    /// If nothing was being loaded.
    pub fn loaded(&mut self) {
        let load = self.channel.take().expect("nothing was loaded");
        let is_used = self.lane == Some(load.role.other()) && self.computes(load.block);
        if is_used {
            self.resident[load.block] = Resident::Both;
            self.retiring = Some((load.block, load.role.other()));
        } else {
            self.resident[load.block] = Resident::One(load.role);
        }
    }

    /// Where the computation is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// What is being loaded.
    #[must_use]
    pub fn loading(&self) -> Option<Load> {
        self.channel
    }

    /// Which graphs are there, block by block.
    #[must_use]
    pub fn resident(&self) -> &[Resident] {
        &self.resident
    }

    /// Whether all rows have passed all blocks, and all graphs are loaded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.place == self.end && self.begun == self.plan.loads.len() && self.channel.is_none()
    }

    /// Bytes of the resident graphs and of the one that is being loaded.
    #[must_use]
    pub fn bytes(&self, blocks: &Blocks) -> Bytes {
        let of = |(block, resident): (usize, &Resident)| {
            let held = [Role::Prefill, Role::Decode].into_iter().filter(|&role| resident.has(role));
            held.map(|role| blocks.cost(block, role).bytes).sum()
        };
        let resident: Bytes = self.resident.iter().enumerate().map(of).sum();
        let loading = self.channel.map(|load| blocks.cost(load.block, load.role).bytes);
        resident + loading.unwrap_or_default()
    }

    /// Gives the plan up. What is left is one graph of each block: what is resident, and what is being loaded, which
    /// cannot be called back and is to be waited for. The rows that have passed all blocks have been read.
    #[must_use]
    pub fn abandon(self) -> Vec<Role> {
        let left = |(block, resident): (usize, &Resident)| match (self.channel, *resident) {
            (Some(load), _) if load.block == block => load.role,
            (_, Resident::One(role)) => role,
            (_, Resident::None | Resident::Both) => self.wanted[block].unwrap_or(Role::Decode),
        };
        self.resident.iter().enumerate().map(left).collect()
    }

    /// From here on the plan wants these blocks to have other graphs.
    fn come_to_place(&mut self) {
        while let Some(load) = self.plan.loads.get(self.come).filter(|load| load.at <= self.place) {
            self.wanted[load.block] = Some(load.role);
            self.come += 1;
        }
    }

    fn computes(&self, block: usize) -> bool {
        self.lane.is_some() && self.place.block == block
    }

    /// Of both graphs of a block the one that takes less for this chunk.
    fn faster(&self, blocks: &Blocks) -> Role {
        let (context, rows) = self.plan.prompt.chunk(blocks, self.place.chunk);
        let time = |&role: &Role| blocks.time(self.place.block, role, context, rows);
        [Role::Prefill, Role::Decode].into_iter().min_by_key(time).unwrap_or(Role::Prefill)
    }
}
