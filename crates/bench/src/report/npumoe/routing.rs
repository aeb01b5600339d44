//! Where rows of real prompts go, in every layer. (NPUMoE §5.1: "real routing traces from workload")
//!
//! A model reads the prompts ([`duet_moefy::read`]). Where it has a router with as many experts as the paper's model has,
//! that router's best are taken, as many as the paper's model takes; otherwise a router to that many experts is fitted to
//! the rows that the layer is given ([`duet_moefy::Router`]), on the prompts to calibrate on alone. The routers of a model
//! that `duet moefy` carved are fitted as well: neither kind was trained with its model. The rows that a layer is given and
//! their saliency, the norm of the attention output, are the model's own in both cases.
//!
//! The paper's models have more layers than most models that can be read here: a layer of theirs is the one of ours that
//! lies at the same depth.
//!
//! **Invariant:** counts for plans are of the prompts to calibrate on, routes to run on of the others.

use super::NpuMoeError;
use super::prompts::DataSet;
use duet_model::Model;
use duet_moe::{ExpertId, LayerCounts, Route};
use duet_moefy::{Brought, Chosen, Router, read};
use duet_types::TokenId;
use std::ops::Range;

/// Routers of the paper's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routers {
    /// 16 experts, two a row.
    Few,
    /// 128 experts, eight a row.
    Many,
}

/// Whose routers they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Those in the model's file: their best, as many as are wanted.
    Own,
    /// Fitted to the rows.
    Found,
}

/// Where rows went, in all layers of the model that read them.
#[derive(Debug)]
pub(super) struct Routing {
    pub(super) routers: Routers,
    pub(super) source: Source,
    pub(super) layers: Vec<LayerRoutes>,
}

/// Where rows went in a layer.
#[derive(Debug)]
pub(super) struct LayerRoutes {
    /// Of all prompts to calibrate on: what plans are made of.
    pub(super) calibrated: LayerCounts,
    /// Of those of each data set.
    pub(super) by_set: Vec<LayerCounts>,
    /// Of the rows to run on.
    pub(super) seen: LayerCounts,
    /// Of the rows to run on, best first.
    chosen: Chosen,
    saliency: Vec<f32>,
}

/// All that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) few: Routing,
    pub(super) many: Routing,
    /// Rows to run on.
    pub(super) rows: usize,
    /// Rows that were calibrated on.
    pub(super) calibrated: usize,
}

impl Routers {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Few, Self::Many];

    pub(super) fn experts(self) -> u32 {
        match self {
            Self::Few => 16,
            Self::Many => 128,
        }
    }

    pub(super) fn chosen(self) -> u32 {
        match self {
            Self::Few => 2,
            Self::Many => 8,
        }
    }

    /// What rows call them.
    pub(super) fn name(self) -> String {
        format!("{} experts, top {}", self.experts(), self.chosen())
    }
}

impl Read {
    /// Lets a model read all data sets.
    pub(super) fn of(model: &Model, sets: &[DataSet], threads: usize) -> Result<Self, NpuMoeError> {
        let texts = Texts::of(sets);
        let mut layers = [Vec::new(), Vec::new()];
        read::<NpuMoeError>(model, &texts.all, threads, &mut |_, brought| {
            for (routers, layers) in Routers::ALL.into_iter().zip(&mut layers) {
                layers.push(texts.routes(model, routers, &brought, threads)?);
            }
            Ok(())
        })?;
        let [few, many] = layers;
        let of = |routers, layers| Routing { routers, source: source(model, routers), layers };
        Ok(Self {
            few: of(Routers::Few, few),
            many: of(Routers::Many, many),
            rows: texts.run.len(),
            calibrated: texts.sets.last().map_or(0, |set| set.end),
        })
    }

    /// Where the rows went by these routers.
    pub(super) fn by(&self, routers: Routers) -> &Routing {
        match routers {
            Routers::Few => &self.few,
            Routers::Many => &self.many,
        }
    }
}

impl Routing {
    /// How many layers of a model of `layers` each of these stands for.
    pub(super) fn stand_for(&self, layers: usize) -> Vec<u64> {
        let mut stand_for = vec![0; self.layers.len()];
        (0..layers).for_each(|layer| stand_for[layer * self.layers.len() / layers] += 1);
        stand_for
    }
}

impl LayerRoutes {
    /// Routes of some of the rows to run on, counted from the first of them.
    pub(super) fn routes(&self, rows: Range<usize>) -> Vec<Route> {
        let count = self.chosen.count;
        let of_row = |row: usize| {
            let experts = self.chosen.experts[row * count..][..count].iter();
            experts.map(move |&expert| (row, ExpertId(expert)))
        };
        let first = rows.start;
        let route = |(row, expert): (usize, ExpertId)| Route {
            row: (row - first) as u32,
            expert,
            weight: 1.0 / count as f32,
            saliency: self.saliency[row],
        };
        rows.flat_map(of_row).map(route).collect()
    }
}

fn source(model: &Model, routers: Routers) -> Source {
    let fits = |count: usize, chosen: usize| count == routers.experts() as usize && chosen >= routers.chosen() as usize;
    match model.blueprint().experts {
        Some(plan) if fits(plan.count, plan.chosen) => Source::Own,
        _ => Source::Found,
    }
}

/// All texts one behind the other, and which rows are whose.
struct Texts {
    all: Vec<Vec<TokenId>>,
    /// Rows to calibrate on, of each data set: they come first.
    sets: Vec<Range<usize>>,
    run: Range<usize>,
}

impl Texts {
    fn of(sets: &[DataSet]) -> Self {
        let rows = |texts: &[Vec<TokenId>]| texts.iter().map(Vec::len).sum::<usize>();
        let (mut ranges, mut at) = (Vec::new(), 0);
        for set in sets {
            let end = at + rows(&set.calibrate);
            ranges.push(at..end);
            at = end;
        }
        let run = at..at + sets.iter().map(|set| rows(&set.run)).sum::<usize>();
        let calibrate = sets.iter().flat_map(|set| set.calibrate.clone());
        let all = calibrate.chain(sets.iter().flat_map(|set| set.run.clone())).collect();
        Self { all, sets: ranges, run }
    }

    /// Where a layer's rows go.
    fn routes(
        &self,
        model: &Model,
        routers: Routers,
        brought: &Brought<'_>,
        threads: usize,
    ) -> Result<LayerRoutes, NpuMoeError> {
        let chosen = match (source(model, routers), brought.chosen) {
            (Source::Own, Some(own)) => best(own, routers.chosen() as usize),
            _ => {
                let width = model.blueprint().hidden;
                let calibrate = &brought.residual[..self.run.start * width];
                let router = Router::of(calibrate, width, routers.experts() as usize, threads)?;
                router.choose(brought.residual, routers.chosen() as usize)
            }
        };
        let of_rows = |rows: &Range<usize>| counted(&chosen, rows, routers);
        let run = Chosen {
            count: chosen.count,
            experts: chosen.experts[self.run.start * chosen.count..self.run.end * chosen.count].to_vec(),
        };
        Ok(LayerRoutes {
            calibrated: of_rows(&(0..self.run.start)),
            by_set: self.sets.iter().map(of_rows).collect(),
            seen: of_rows(&self.run),
            chosen: run,
            saliency: brought.attended[self.run.clone()].to_vec(),
        })
    }
}

/// The first `count` of each row.
fn best(chosen: &Chosen, count: usize) -> Chosen {
    let experts = chosen.experts.chunks_exact(chosen.count).flat_map(|row| row[..count].to_vec()).collect();
    Chosen { count, experts }
}

fn counted(chosen: &Chosen, rows: &Range<usize>, routers: Routers) -> LayerCounts {
    let mut counts = LayerCounts::none(routers.experts() as usize);
    let experts = &chosen.experts[rows.start * chosen.count..rows.end * chosen.count];
    experts.iter().for_each(|&expert| counts.count(ExpertId(expert)));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_a_deeper_model_are_those_at_its_depth() {
        let layer = || LayerRoutes {
            calibrated: LayerCounts::none(16),
            by_set: Vec::new(),
            seen: LayerCounts::none(16),
            chosen: Chosen { count: 2, experts: vec![3, 1, 0, 2, 5, 4] },
            saliency: vec![0.5, 0.25, 1.0],
        };
        let routing = Routing {
            routers: Routers::Few,
            source: Source::Own,
            layers: std::iter::repeat_with(layer).take(3).collect(),
        };
        assert_eq!(routing.stand_for(7), [3, 2, 2]);
        assert_eq!(routing.stand_for(2), [1, 1, 0]);
        let routes = routing.layers[0].routes(1..3);
        let told: Vec<(u32, u32, f32)> = routes.iter().map(|r| (r.row, r.expert.0, r.saliency)).collect();
        assert_eq!(told, [(0, 0, 0.25), (0, 2, 0.25), (1, 5, 1.0), (1, 4, 1.0)]);
    }
}
