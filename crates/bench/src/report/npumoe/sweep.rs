//! The sweep: every scheme at every place and setting, with the constants as they are and at the ends of their intervals.
//!
//! One constant at a time is another one. Plans and what they dispatch are those of the constants as they are.

use super::assumptions::{self, Assumptions};
use super::chunks::Chunks;
use super::costs::Costs;
use super::machines::{Machine, Place};
use super::plans::Plan;
use super::prefill::{Energy, Parts, Setting, World};
use super::routing::Read;
use super::schemes::Scheme;
use crate::report::jobs;
use crate::report::outcome::Estimate;
use duet_sim::SocProfile;
use duet_sim::soc::Path;
use duet_types::Tokens;
use std::num::NonZeroUsize;

/// How prompts are read, in the paper. (§5.1)
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) prompts: Vec<u32>,
    pub(super) chunks: Vec<u32>,
    /// Rows to run on: whole prompts of every length.
    pub(super) rows: usize,
}

/// What is dispatched at a place, by plan and chunk.
pub(super) struct Dispatched {
    pub(super) place: Place,
    grid: Grid,
    stand_for: Vec<u64>,
    /// Plan after plan, chunk after chunk.
    by_plan: Vec<Chunks>,
}

/// Everything under every variation, the first of which is as the profiles are.
pub(super) struct Sweep {
    pub(super) dispatched: Vec<Dispatched>,
    pub(super) variations: Vec<Variation>,
    worlds: Vec<Vec<Cell>>,
}

/// Everything under the same facts.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    dispatched: &'a [Dispatched],
    cells: &'a [Cell],
}

/// A prompt of a setting by a scheme at a place, on average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) prefill: Figures,
    /// With the tokens of the answer.
    pub(super) whole: Figures,
    /// Parts of the prefill, all prompts together.
    pub(super) parts: Parts,
    /// How many prompts.
    pub(super) prompts: usize,
}

/// What the paper measures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) seconds: f64,
    pub(super) energy: Energy,
    /// Cores times seconds.
    pub(super) core_seconds: f64,
}

/// What is another than it is taken to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Variation {
    None,
    Assumed(usize, End),
    Constant(Path, End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Low,
    High,
}

impl Grid {
    /// Of prompts of these lengths, cut so, as many as `rows` rows are whole ones of all lengths.
    pub(super) fn new(prompts: &[u32], chunks: &[u32], rows: usize) -> Self {
        let longest = prompts.iter().copied().max().unwrap_or(1).max(1) as usize;
        Self { prompts: prompts.to_vec(), chunks: chunks.to_vec(), rows: rows / longest * longest }
    }

    /// A chunk is no longer than its prompt.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let all =
            self.prompts.iter().flat_map(|&prompt| self.chunks.iter().map(move |&chunk| Setting { prompt, chunk }));
        all.filter(|setting| setting.chunk <= setting.prompt).collect()
    }
}

impl Dispatched {
    fn of(place: Place, read: &Read, grid: &Grid) -> Self {
        let routing = read.by(place.target.routers());
        let costs = Costs::new(&place.machine.soc(), &Assumptions::NOMINAL, place.target);
        let shortest = grid.prompts.iter().copied().min().unwrap_or(1) as usize;
        let jobs: Vec<(Plan, Tokens)> = Plan::ALL
            .into_iter()
            .flat_map(|plan| grid.chunks.iter().map(move |&chunk| (plan, Tokens(chunk))))
            .collect();
        let by_plan = jobs::map(&jobs, threads(), |&(plan, chunk)| {
            let hot = plan.hot(place, routing, chunk, &costs);
            Chunks::of(routing, plan, &hot, grid.rows, chunk, shortest)
        });
        let stand_for = routing.stand_for(place.target.sizes().layers);
        Self { place, grid: grid.clone(), stand_for, by_plan }
    }

    /// What a plan comes to.
    pub(super) fn by(&self, plan: Plan, chunk: u32) -> &Chunks {
        let plan = Plan::ALL.iter().position(|known| *known == plan).unwrap_or_default();
        let chunk = self.grid.chunks.iter().position(|known| *known == chunk).unwrap_or_default();
        &self.by_plan[plan * self.grid.chunks.len() + chunk]
    }

    /// How many layers of the model each that was read stands for.
    pub(super) fn stand_for(&self) -> &[u64] {
        &self.stand_for
    }

    /// The place, as it is taken to be.
    pub(super) fn world<'a>(&'a self, soc: &'a SocProfile, assumptions: Assumptions) -> World<'a> {
        let costs = Costs::new(soc, &assumptions, self.place.target);
        World { machine: self.place.machine, soc, assumptions, costs, stand_for: &self.stand_for }
    }

    fn cells(&self, variation: Variation) -> Vec<Cell> {
        let (soc, assumptions) = variation.apply(&self.place.machine.soc());
        let world = self.world(&soc, assumptions);
        let settings = self.grid.settings();
        Scheme::ALL.into_iter().flat_map(|scheme| self.of_scheme(&world, scheme, &settings)).collect()
    }

    /// Setting after setting.
    fn of_scheme(&self, world: &World<'_>, scheme: Scheme, settings: &[Setting]) -> Vec<Cell> {
        let plan = |scheme: Scheme| scheme.plan(&world.assumptions);
        let experts = |&chunk: &u32| world.all_experts(scheme, &self.by(plan(scheme), chunk).layers);
        let experts: Vec<_> = self.grid.chunks.iter().map(experts).collect();
        let cell = |&setting: &Setting| {
            let prompts = self.grid.rows / setting.prompt as usize;
            let chunk = self.grid.chunks.iter().position(|known| *known == setting.chunk).unwrap_or_default();
            let parts = Parts {
                attention: world.attention(scheme, setting) * prompts as u64,
                experts: experts[chunk],
                head: world.head(scheme) * prompts as u64,
            };
            let by = scheme.decodes_by();
            let chunks = self.by(plan(by), setting.chunk);
            let answers = chunks.decoded.first().map_or(0, Vec::len) / super::chunks::DECODED;
            let prefill = figures(world, &parts, prompts);
            let decode = figures(world, &world.decode(by, setting, chunks), answers);
            Cell { prefill, whole: prefill.and(&decode), parts, prompts }
        };
        settings.iter().map(cell).collect()
    }
}

fn figures(world: &World<'_>, parts: &Parts, count: usize) -> Figures {
    let (whole, count) = (parts.whole(), count.max(1) as f64);
    let Energy { cpu, npu, gpu, memory } = world.energy(&whole);
    Figures {
        seconds: whole.span.as_secs_f64() / count,
        energy: Energy { cpu: cpu / count, npu: npu / count, gpu: gpu / count, memory: memory / count },
        core_seconds: world.core_seconds(&whole) / count,
    }
}

impl Figures {
    fn and(&self, other: &Self) -> Self {
        let (a, b) = (&self.energy, &other.energy);
        Self {
            seconds: self.seconds + other.seconds,
            energy: Energy { cpu: a.cpu + b.cpu, npu: a.npu + b.npu, gpu: a.gpu + b.gpu, memory: a.memory + b.memory },
            core_seconds: self.core_seconds + other.core_seconds,
        }
    }
}

impl Sweep {
    /// Reads all prompts everywhere.
    pub(super) fn run(read: &Read, grid: &Grid, told: &dyn Fn(&str)) -> Self {
        let dispatch = |place: Place| {
            told(&format!("{}: plans, and where rows go on them", place.name()));
            Dispatched::of(place, read, grid)
        };
        let dispatched: Vec<Dispatched> = Place::all().into_iter().map(dispatch).collect();
        told("every scheme under every variation");
        let variations = variations();
        let work: Vec<(Variation, &Dispatched)> = variations
            .iter()
            .flat_map(|&variation| dispatched.iter().map(move |dispatched| (variation, dispatched)))
            .collect();
        let cells = jobs::map(&work, threads(), |(variation, dispatched)| dispatched.cells(*variation));
        let worlds = cells.chunks(dispatched.len()).map(<[Vec<Cell>]>::concat).collect();
        Self { dispatched, variations, worlds }
    }

    /// A figure as it is, and its lowest and highest.
    pub(super) fn estimate(&self, read: impl Fn(View<'_>) -> Option<f64>) -> Option<Estimate> {
        let all: Vec<f64> = self.views().filter_map(|(_, view)| read(view)).collect();
        let value = read(self.nominal())?;
        let low = all.iter().copied().fold(value, f64::min);
        let high = all.iter().copied().fold(value, f64::max);
        Some(Estimate { value, low, high })
    }

    /// As the profiles are.
    pub(super) fn nominal(&self) -> View<'_> {
        View { dispatched: &self.dispatched, cells: &self.worlds[0] }
    }

    /// Every variation.
    pub(super) fn views(&self) -> impl Iterator<Item = (Variation, View<'_>)> {
        let view = |cells| View { dispatched: &self.dispatched, cells };
        self.variations.iter().copied().zip(self.worlds.iter().map(move |cells| view(cells)))
    }

    /// What is dispatched at a place.
    pub(super) fn at(&self, place: Place) -> Option<&Dispatched> {
        self.dispatched.iter().find(|dispatched| dispatched.place == place)
    }

    /// Rows to run on.
    pub(super) fn rows(&self) -> usize {
        self.dispatched.first().map_or(0, |dispatched| dispatched.grid.rows)
    }

    /// Settings there are.
    pub(super) fn settings(&self) -> Vec<Setting> {
        self.dispatched.first().map_or_else(Vec::new, |dispatched| dispatched.grid.settings())
    }
}

impl<'a> View<'a> {
    /// A scheme at a place; nothing if there is no such setting.
    pub(super) fn cell(&self, place: Place, setting: Setting, scheme: Scheme) -> Option<&'a Cell> {
        let settings = self.dispatched.first()?.grid.settings();
        let at = self.dispatched.iter().position(|dispatched| dispatched.place == place)?;
        let setting = settings.iter().position(|known| *known == setting)?;
        self.cells.get((at * Scheme::ALL.len() + scheme as usize) * settings.len() + setting)
    }
}

fn threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// As things are, the ends of what is assumed, and the ends of the constants that the schemes use.
fn variations() -> Vec<Variation> {
    let mut variations = vec![Variation::None];
    let ends = [End::Low, End::High];
    variations.extend((0..assumptions::ALL.len()).flat_map(|at| ends.map(|end| Variation::Assumed(at, end))));
    // Both machines have the same constants, uncertain on one if they are on the other.
    let soc = Machine::Ultra.soc();
    let uncertain = soc.constants().into_iter().filter(|(_, constant)| constant.interval().is_some());
    let used = uncertain.map(|(path, _)| path).filter(|path| USED.contains(&path.to_string().as_str()));
    variations.extend(used.flat_map(|path| ends.map(|end| Variation::Constant(path, end))));
    variations
}

/// Constants that something depends on here.
const USED: [&str; 17] = [
    "npu.gemm_tflops",
    "npu.attention_tflops",
    "npu.read_gb_s",
    "npu.launch_ms",
    "npu.exposed",
    "npu.prefill_w",
    "cpu.gemm_tflops",
    "cpu.attention_tflops",
    "cpu.read_gb_s",
    "cpu.launch_ms",
    "cpu.exposed",
    "cpu.prefill_w",
    "igpu.gemm_tflops",
    "igpu.attention_tflops",
    "igpu.read_gb_s",
    "igpu.prefill_w",
    "graphs.compile_w",
];

impl Variation {
    fn apply(self, soc: &SocProfile) -> (SocProfile, Assumptions) {
        let nominal = Assumptions::NOMINAL;
        match self {
            Self::None => (soc.clone(), nominal),
            Self::Assumed(at, end) => (soc.clone(), (assumptions::ALL[at].ends[end as usize])(nominal)),
            Self::Constant(path, end) => {
                let interval = soc.constants().into_iter().find(|(known, _)| *known == path);
                let interval = interval.and_then(|(_, constant)| constant.interval());
                let at = interval.map(|(low, high)| if end == End::Low { low } else { high });
                (at.map_or_else(|| soc.clone(), |at| soc.with(path, at)), nominal)
            }
        }
    }

    /// What is another, and how.
    pub(super) fn name(self) -> String {
        let end = |end| if end == End::Low { "low" } else { "high" };
        match self {
            Self::None => "as they are".to_owned(),
            Self::Assumed(at, of) => {
                let assumed = &assumptions::ALL[at];
                format!("{}: {}", assumed.name, if of == End::Low { assumed.low } else { assumed.high })
            }
            Self::Constant(path, of) => format!("{path}: {}", end(of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variation_changes_one_thing() {
        for machine in Machine::ALL {
            let soc = machine.soc();
            let changed: Vec<usize> = variations()
                .into_iter()
                .map(|variation| {
                    let (varied, assumptions) = variation.apply(&soc);
                    let other = |(a, b): &(_, _)| {
                        let (a, b): &((Path, &duet_sim::soc::Constant), (Path, &duet_sim::soc::Constant)) = &(*a, *b);
                        a.1.value != b.1.value
                    };
                    let constants = varied.constants().into_iter().zip(soc.constants()).filter(other).count();
                    constants + usize::from(assumptions != Assumptions::NOMINAL)
                })
                .collect();
            assert!(changed[0] == 0 && changed.iter().all(|&count| count <= 1), "{changed:?}");
            assert!(changed.iter().sum::<usize>() > 30);
        }
    }

    #[test]
    fn every_constant_that_is_used_is_swept() {
        assert_eq!(variations().len(), 1 + 2 * (assumptions::ALL.len() + USED.len()));
    }

    #[test]
    fn prompts_of_all_lengths_are_whole() {
        let grid = Grid::new(&[1024, 4096], &[256, 512, 1024], 13_000);
        assert_eq!((grid.rows, grid.settings().len()), (12_288, 6));
        assert_eq!(Grid::new(&[64, 128], &[32, 128], 300).settings().len(), 3);
    }
}
