//! A layer's experts between the nodes that run them: which launch computes which place, and what the crew computes.
//!
//! A place is an expert of a row. The crew computes its own while the first launch runs. (NPUMoE §3.1, §4.2)
//!
//! Invariants:
//! - every place is computed by a launch, computed by the crew, or was dropped by the device and is counted as such;
//! - places of a launch that did not run are the crew's: after an error nothing is missing.

use super::expert_wise::{ExpertWise, Fate, FateCounts, ProjectedBy};
use super::pass::Pass;
use super::token_wise::{NotRun, sparse};
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{Places, feed_experts, feed_forward, project_attended, route};
use std::ops::Range;

/// The places of the layer that a pass is in, between its nodes.
#[derive(Debug, Default)]
pub(super) struct Dispatched {
    fates: Vec<Fate>,
    /// Of each row of the pass, in all layers so far.
    counts: Vec<FateCounts>,
}

impl Pass {
    /// What became of the places of some of its rows so far, where nodes were dispatched.
    #[must_use]
    pub fn fates(&self, rows: Range<usize>) -> FateCounts {
        let counts = self.dispatched.counts.get(rows).unwrap_or_default();
        counts.iter().fold(FateCounts::default(), |mut sum, counts| {
            sum += *counts;
            sum
        })
    }

    /// How many places of the current layer have a fate.
    #[must_use]
    pub fn places_with(&self, fate: Fate) -> usize {
        self.dispatched.fates.iter().filter(|other| **other == fate).count()
    }
}

impl Dispatched {
    /// The places that have one of some fates.
    fn marks(&self, wanted: impl Fn(Fate) -> bool) -> Vec<bool> {
        self.fates.iter().map(|&fate| wanted(fate)).collect()
    }
}

impl Model {
    /// Output projection and routing of all rows; the device does the projection if it does any, and says which places it
    /// takes.
    ///
    /// # Errors
    /// [`NotRun`] if the device failed to project; the pass is as it was.
    ///
    /// # Panics
    /// If the layer does not exist.
    pub fn route_on(
        &self,
        device: &dyn ExpertWise,
        pass: &mut Pass,
        layer: usize,
        crew: &dyn Crew,
    ) -> Result<ProjectedBy, NotRun> {
        let (rows, weights) = (0..pass.rows(), self.ffn_weights(layer));
        if self.blueprint().experts_of(layer).is_none() {
            self.route(pass, layer, crew);
            return Ok(ProjectedBy::Crew);
        }
        let buffers = &mut pass.activations.buffers;
        let (attended, residual, fed) = buffers.fed(rows.clone()).ok_or_else(sparse)?;
        let projected_by = match device.project(layer, attended, residual, fed) {
            Ok(()) => {
                buffers.take_fed(rows.clone());
                ProjectedBy::Device
            }
            Err(NotRun::Unsupported(_)) => {
                project_attended(self.isa(), crew, &weights, buffers, rows.clone());
                ProjectedBy::Crew
            }
            Err(failed) => return Err(failed),
        };
        route(self.isa(), crew, &weights, buffers, rows.clone());
        let fates = buffers.routed(rows).map(|rows| device.dispatch(layer, &rows));
        pass.dispatch(fates.unwrap_or_default());
        Ok(projected_by)
    }

    /// The same by the crew alone, with all places its own. A layer without experts is computed as a whole here.
    pub(super) fn route(&self, pass: &mut Pass, layer: usize, crew: &dyn Crew) {
        let (rows, weights) = (0..pass.rows(), self.ffn_weights(layer));
        let Some(plan) = self.blueprint().experts_of(layer) else {
            feed_forward(self.isa(), crew, &weights, &mut pass.activations.buffers, rows);
            return pass.dispatch(Vec::new());
        };
        project_attended(self.isa(), crew, &weights, &mut pass.activations.buffers, rows.clone());
        route(self.isa(), crew, &weights, &mut pass.activations.buffers, rows.clone());
        let places = plan.chosen + usize::from(plan.shared.is_some());
        pass.dispatch(vec![Fate::Crew; rows.len() * places]);
    }

    /// Runs a launch on a device. The crew computes its own places while the first one runs.
    ///
    /// # Errors
    /// [`NotRun`] if the launch did not run; the crew has computed its places.
    ///
    /// # Panics
    /// If the layer does not exist.
    pub fn launch_on(
        &self,
        device: &dyn ExpertWise,
        pass: &mut Pass,
        (layer, launch): (usize, usize),
        crew: &dyn Crew,
    ) -> Result<(), NotRun> {
        let rows = 0..pass.rows();
        let begun = if pass.places_with(Fate::Launch(launch as u32)) == 0 {
            Ok(None)
        } else {
            let Pass { activations, dispatched, .. } = &mut *pass;
            let routed = activations.buffers.routed(rows.clone()).ok_or_else(sparse)?;
            device.begin(layer, launch, &routed, &dispatched.fates).map(Some)
        };
        if launch == 0 {
            self.crews_places(pass, layer, crew);
        }
        let finished = begun.and_then(|begun| match begun {
            Some(begun) => begun.finish(&mut pass.activations.buffers.routed(rows).ok_or_else(sparse)?),
            None => Ok(()),
        });
        finished.inspect_err(|_| self.take_over(pass, (layer, launch), crew))
    }

    /// The same without a device: the crew's places come with the first launch, and no others are left.
    pub(super) fn launch(&self, pass: &mut Pass, (layer, launch): (usize, usize), crew: &dyn Crew) {
        if launch == 0 {
            self.crews_places(pass, layer, crew);
        }
        if pass.places_with(Fate::Launch(launch as u32)) > 0 {
            self.take_over(pass, (layer, launch), crew);
        }
    }

    /// Then the layer ends: those that end in more than their experts' results have no other launches, for devices refuse them.
    fn crews_places(&self, pass: &mut Pass, layer: usize, crew: &dyn Crew) {
        let marks = pass.dispatched.marks(|fate| matches!(fate, Fate::Crew | Fate::Spilled));
        self.compute(pass, layer, &marks, crew);
        let rows = 0..pass.rows();
        self.end_layer(pass, layer, rows, crew);
    }

    /// The crew computes what a launch was to compute.
    fn take_over(&self, pass: &mut Pass, (layer, launch): (usize, usize), crew: &dyn Crew) {
        let lost = |fate| fate == Fate::Launch(launch as u32);
        let marks = pass.dispatched.marks(lost);
        self.compute(pass, layer, &marks, crew);
        let rows = pass.rows().max(1);
        let Dispatched { fates, counts } = &mut pass.dispatched;
        let places = (fates.len() / rows).max(1);
        for (row, fates) in fates.chunks_mut(places).enumerate() {
            for fate in fates.iter_mut().filter(|fate| lost(**fate)) {
                *fate = Fate::Crew;
                (counts[row].launched, counts[row].crew) = (counts[row].launched - 1, counts[row].crew + 1);
            }
        }
    }

    fn compute(&self, pass: &mut Pass, layer: usize, marks: &[bool], crew: &dyn Crew) {
        if marks.contains(&true) {
            let (rows, weights) = (0..pass.rows(), self.ffn_weights(layer));
            let buffers = &mut pass.activations.buffers;
            feed_experts(self.isa(), crew, &weights, buffers, rows, Places::Marked(marks));
        }
    }
}

impl Pass {
    fn dispatch(&mut self, fates: Vec<Fate>) {
        let rows = self.rows();
        let Dispatched { fates: old, counts } = &mut self.dispatched;
        counts.resize_with(rows, FateCounts::default);
        let places = (fates.len() / rows.max(1)).max(1);
        for (counts, fates) in counts.iter_mut().zip(fates.chunks(places)) {
            *counts += FateCounts::of(fates);
        }
        *old = fates;
    }
}
