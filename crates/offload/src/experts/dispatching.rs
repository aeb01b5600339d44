//! Who computes which expert of a row: a chunk's routes, divided by the groups that are on the device. (NPUMoE §3.1)
//!
//! Invariant: a place has one fate; launches have no more rows of an expert than its capacity.

use super::settings::{Launched, Saliency};
use duet_model::forward::{Fate, RoutedRows};
use duet_moe::worth::worth;
use duet_moe::{Dispatch, Dispatched, ExpertId, Group, LayerCounts, MoeShape, Overflow, Packing, Route, Times};
use duet_types::Tokens;

/// The routes of some rows; who all rows go to is not among them.
#[derive(Debug)]
pub(super) struct Routes {
    routes: Vec<Route>,
    /// Rows of each expert.
    pub(super) counts: LayerCounts,
    /// Experts of a row, who all rows go to counted.
    places: usize,
}

impl Routes {
    /// Those of `rows`, of `experts` experts. Where no row is pruned, none needs a saliency.
    pub(super) fn of(rows: &RoutedRows<'_>, experts: usize, saliency: Option<Saliency>) -> Self {
        let width = rows.attended.len() / (rows.experts.len() / rows.places).max(1);
        let mut counts = LayerCounts::none(experts);
        let mut routes = Vec::with_capacity(rows.experts.len());
        for (row, chosen) in rows.experts.chunks(rows.places).enumerate() {
            let attended = match saliency {
                Some(Saliency::AttentionNorm) => norm(&rows.attended[row * width..(row + 1) * width]),
                Some(Saliency::RouterWeight) | None => 0.0,
            };
            for (place, &expert) in chosen.iter().enumerate().filter(|(_, expert)| (**expert as usize) < experts) {
                let weight = rows.weights[row * rows.places + place];
                let saliency = if saliency == Some(Saliency::RouterWeight) { weight } else { attended };
                counts.count(ExpertId(expert));
                routes.push(Route { row: row as u32, expert: ExpertId(expert), weight, saliency });
            }
        }
        Self { routes, counts, places: rows.places }
    }

    /// Whether launching a group of these routes takes less time than the CPU does.
    pub(super) fn amortise(&self, group: &Group, (shape, times): (&MoeShape, &Times), launched: Launched) -> bool {
        match launched {
            Launched::All => true,
            Launched::IfWorthIt => {
                let rows = Tokens((self.routes.len() / shape.chosen.max(1) as usize) as u32);
                worth(group, &self.counts.shares(), &MoeShape { chunk: rows, ..*shape }, times) > 0.0
            }
        }
    }

    /// Sets the fates of these routes' places. `launches` says which launch each of the groups is.
    pub(super) fn divide(
        &self,
        groups: &[(usize, &Group)],
        overflow: Overflow,
        rows: &RoutedRows<'_>,
        fates: &mut [Fate],
    ) -> Dispatched {
        let hot: Vec<&Group> = groups.iter().map(|(_, group)| *group).collect();
        let dispatch = Dispatch::of(&self.routes, &hot, overflow);
        let mut set = |route: &Route, fate| {
            let first = route.row as usize * self.places;
            let chosen = &rows.experts[first..first + self.places];
            if let Some(at) = chosen.iter().position(|&expert| expert == route.expert.0) {
                fates[first + at] = fate;
            }
        };
        for (index, packing) in &dispatch.launches {
            packing.routes().for_each(|(_, route)| set(route, Fate::Launch(groups[*index].0 as u32)));
        }
        let there = |route: &&Route| hot.iter().any(|group| group.experts.contains(&route.expert));
        dispatch.on_cpu.iter().filter(there).for_each(|route| set(route, Fate::Spilled));
        dispatch.dropped.iter().for_each(|route| set(route, Fate::Dropped));
        dispatch.counts
    }
}

/// The rows of a launch, by the fates of their places.
pub(super) fn packing(group: &Group, launch: usize, rows: &RoutedRows<'_>, fates: &[Fate]) -> Packing {
    let mut slices = vec![Vec::new(); group.experts.len()];
    for (place, (&expert, fate)) in rows.experts.iter().zip(fates).enumerate() {
        let index = group.experts.iter().position(|other| other.0 == expert);
        if let (Some(index), Fate::Launch(of)) = (index, *fate)
            && of as usize == launch
            && slices[index].len() < group.capacity.as_usize()
        {
            let (row, weight) = ((place / rows.places) as u32, rows.weights[place]);
            slices[index].push(Route { row, expert: ExpertId(expert), weight, saliency: 0.0 });
        }
    }
    Packing::of(group, slices)
}

/// How long a row is.
fn norm(row: &[f32]) -> f32 {
    row.iter().map(|x| x * x).sum::<f32>().sqrt()
}
