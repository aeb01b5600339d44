//! A layer's feed-forward block, or the experts in its place.

use super::ExactReader;
use super::rows::{Rows, dot, rms_norm, sigmoid, softmax};
use super::tensors::{Feed, Tensors};
use crate::arch::{ExpertPlan, Extra};
use crate::load::LoadError;
use duet_kernels::fused::Routing;
use duet_kernels::matmul::Gating;

impl ExactReader {
    /// Adds what the block makes of the residual stream to it.
    pub(super) fn feed(&self, tensors: &Tensors<'_>, layer: usize, residual: &mut Rows) -> Result<(), LoadError> {
        let b = &self.blueprint;
        let normed = self.norm(tensors, &format!("blk.{layer}.ffn_norm"), residual)?;
        if let Some(plan) = &b.experts {
            return self.experts(tensors, layer, plan, &normed, residual);
        }
        let mut result = self.gated(&tensors.feed(layer, "", b.ffn)?, &normed);
        if b.has(Extra::PostNorms) {
            let weight = tensors.layer_vector(layer, "post_ffw_norm.weight", b.hidden)?;
            result.each_mut().for_each(|row| rms_norm(row, &weight, b.epsilon));
        }
        residual.add(&result);
        Ok(())
    }

    fn gated(&self, feed: &Feed<'_>, normed: &Rows) -> Rows {
        let (mut gates, values) = (self.product(&feed.gate, normed), self.product(&feed.up, normed));
        for (gates, values) in gates.each_mut().zip(values.each()) {
            for (gate, value) in gates.iter_mut().zip(values) {
                *gate = (activated(self.blueprint.gating, f64::from(*gate)) * f64::from(*value)) as f32;
            }
        }
        self.product(&feed.down, &gates)
    }

    fn experts(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        plan: &ExpertPlan,
        normed: &Rows,
        residual: &mut Rows,
    ) -> Result<(), LoadError> {
        let hidden = self.blueprint.hidden;
        let router = tensors.floats(&format!("blk.{layer}.ffn_gate_inp.weight"), hidden, plan.count)?;
        let routes: Vec<Vec<(usize, f64)>> = normed
            .each()
            .map(|row| {
                let scores: Vec<f64> = router.chunks_exact(hidden).map(|weights| dot(row, weights)).collect();
                choose(plan, &scores)
            })
            .collect();
        for expert in 0..plan.count {
            let share = |route: &Vec<(usize, f64)>| route.iter().find(|(chosen, _)| *chosen == expert).map(|c| c.1);
            let shares: Vec<Option<f64>> = routes.iter().map(share).collect();
            if shares.iter().any(Option::is_some) {
                self.add_expert(&tensors.expert(layer, plan, expert)?, &shares, normed, residual);
            }
        }
        let Some(width) = plan.shared else { return Ok(()) };
        let gate = tensors.layer_vector(layer, "ffn_gate_inp_shexp.weight", hidden)?;
        let shares: Vec<Option<f64>> = normed.each().map(|row| Some(sigmoid(dot(row, &gate)))).collect();
        self.add_expert(&tensors.feed(layer, "_shexp", width)?, &shares, normed, residual);
        Ok(())
    }

    /// Adds what an expert makes of the rows that have a share in it.
    fn add_expert(&self, feed: &Feed<'_>, shares: &[Option<f64>], normed: &Rows, residual: &mut Rows) {
        let rows: Vec<usize> = (0..shares.len()).filter(|&row| shares[row].is_some()).collect();
        let results = self.gated(feed, &normed.pick(&rows));
        for (result, row) in results.each().zip(rows) {
            let share = shares[row].unwrap_or(0.0);
            let stream = residual.row_mut(row).iter_mut();
            stream.zip(result).for_each(|(x, y)| *x = (f64::from(*x) + share * f64::from(*y)) as f32);
        }
    }
}

fn activated(gating: Gating, x: f64) -> f64 {
    match gating {
        Gating::Silu => x * sigmoid(x),
        Gating::GeluTanh => {
            let root = std::f64::consts::FRAC_2_PI.sqrt();
            0.5 * x * (1.0 + (root * (x + 0.044_715 * x.powi(3))).tanh())
        }
    }
}

/// The experts that a row goes to, and what each counts.
fn choose(plan: &ExpertPlan, scores: &[f64]) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let chosen = &order[..plan.chosen.min(order.len())];
    match plan.routing {
        Routing::Softmax => {
            let mut all = scores.to_vec();
            softmax(&mut all);
            chosen.iter().map(|&expert| (expert, all[expert])).collect()
        }
        Routing::SoftmaxOfChosen => {
            let mut weights: Vec<f64> = chosen.iter().map(|&expert| scores[expert]).collect();
            softmax(&mut weights);
            chosen.iter().copied().zip(weights).collect()
        }
        Routing::SparseMixer { jitter } => {
            let weight = |place: usize| mixed(scores, &order[place..], f64::from(jitter));
            chosen.iter().enumerate().map(|(place, &expert)| (expert, weight(place))).collect()
        }
    }
}

/// The first of `left` in a softmax over those of them whose scores are near its own.
fn mixed(scores: &[f64], left: &[usize], jitter: f64) -> f64 {
    let best = scores[left[0]];
    let near = |score: f64| (best - score) / score.abs().max(best) <= 2.0 * jitter;
    let mut weights: Vec<f64> = left.iter().map(|&expert| scores[expert]).filter(|&score| near(score)).collect();
    softmax(&mut weights);
    weights[0]
}
