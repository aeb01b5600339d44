//! A layer's feed-forward block, or the experts in its place.

use super::ExactReader;
use super::rows::{Rows, dot, rms_norm, sigmoid, softmax};
use super::tensors::{Feed, FeedBias, Tensors};
use crate::arch::{ExpertPlan, Extra};
use crate::load::LoadError;
use duet_kernels::fused::Routing;
use duet_kernels::matmul::Gating;

impl ExactReader {
    /// Adds what the block makes of the residual stream to it.
    pub(super) fn feed(&self, tensors: &Tensors<'_>, layer: usize, residual: &mut Rows) -> Result<(), LoadError> {
        let b = &self.blueprint;
        let normed = self.norm(tensors, &format!("blk.{layer}.{}", b.ffn_norm()), residual)?;
        match &b.experts_of(layer) {
            Some(plan) if b.has(Extra::BlockBeside) => return self.beside(tensors, layer, plan, &normed, residual),
            Some(plan) => return self.experts(tensors, layer, plan, &normed, residual),
            None => {}
        }
        let mut result = self.gated(&tensors.feed(layer, "", b.ffn_of(layer))?, None, &normed);
        if b.has(Extra::PostNorms) {
            let weight = tensors.layer_vector(layer, "post_ffw_norm.weight", b.hidden)?;
            result.each_mut().for_each(|row| rms_norm(row, &weight, b.epsilon));
        }
        self.add(residual, result);
        Ok(())
    }

    pub(super) fn gated(&self, feed: &Feed<'_>, bias: Option<&FeedBias>, normed: &Rows) -> Rows {
        let (mut gates, mut values) = (self.product(&feed.gate, normed), self.product(&feed.up, normed));
        if let Some(bias) = bias {
            gates.add_to_each(&bias.gate);
            values.add_to_each(&bias.up);
        }
        for (gates, values) in gates.each_mut().zip(values.each()) {
            for (gate, value) in gates.iter_mut().zip(values) {
                *gate = let_through(self.blueprint.gating, f64::from(*gate), f64::from(*value)) as f32;
            }
        }
        let mut result = self.product(&feed.down, &gates);
        if let Some(bias) = bias {
            result.add_to_each(&bias.down);
        }
        result
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
        let bias = |extra: Extra, name: &str| match self.blueprint.has(extra) {
            true => tensors.layer_vector(layer, name, plan.count),
            false => Ok(vec![0.0; plan.count]),
        };
        let router_bias = bias(Extra::ExpertBiases, "ffn_gate_inp.bias")?;
        let choice_bias = bias(Extra::ChoiceBias, "exp_probs_b.bias")?;
        let routes: Vec<Route> = normed
            .each()
            .map(|row| {
                let scores = router.chunks_exact(hidden).zip(&router_bias);
                let scores: Vec<f64> = scores.map(|(weights, bias)| dot(row, weights) + f64::from(*bias)).collect();
                choose(plan, &scores, &choice_bias)
            })
            .collect();
        self.add_routed(tensors, (layer, plan), &routes, normed, residual)?;
        let Some(width) = plan.shared else { return Ok(()) };
        let shares: Vec<Option<f64>> = if plan.shared_gate {
            let gate = tensors.layer_vector(layer, "ffn_gate_inp_shexp.weight", hidden)?;
            normed.each().map(|row| Some(sigmoid(dot(row, &gate)))).collect()
        } else {
            vec![Some(1.0); normed.len()]
        };
        self.add_expert((&tensors.feed(layer, "_shexp", width)?, None), &shares, normed, residual);
        Ok(())
    }

    /// Adds what experts make of the rows that go to them.
    pub(super) fn add_routed(
        &self,
        tensors: &Tensors<'_>,
        (layer, plan): (usize, &ExpertPlan),
        routes: &[Route],
        normed: &Rows,
        to: &mut Rows,
    ) -> Result<(), LoadError> {
        for expert in 0..plan.count {
            let share = |route: &Route| route.iter().find(|(chosen, _)| *chosen == expert).map(|c| c.1);
            let shares: Vec<Option<f64>> = routes.iter().map(share).collect();
            if shares.iter().any(Option::is_some) {
                let has_bias = self.blueprint.has(Extra::ExpertBiases);
                let bias = has_bias.then(|| tensors.expert_bias(layer, plan, expert)).transpose()?;
                self.add_expert((&tensors.expert(layer, plan, expert)?, bias.as_ref()), &shares, normed, to);
            }
        }
        Ok(())
    }

    /// Adds what an expert makes of the rows that have a share in it.
    fn add_expert(
        &self,
        (feed, bias): (&Feed<'_>, Option<&FeedBias>),
        shares: &[Option<f64>],
        normed: &Rows,
        residual: &mut Rows,
    ) {
        let rows: Vec<usize> = (0..shares.len()).filter(|&row| shares[row].is_some()).collect();
        let results = self.gated(feed, bias, &normed.pick(&rows));
        for (result, row) in results.each().zip(rows) {
            let share = shares[row].unwrap_or(0.0) * f64::from(self.blueprint.residual_scale);
            let stream = residual.row_mut(row).iter_mut();
            stream.zip(result).for_each(|(x, y)| *x = (f64::from(*x) + share * f64::from(*y)) as f32);
        }
    }
}

/// What a gate lets through of a value.
pub(super) fn let_through(gating: Gating, gate: f64, value: f64) -> f64 {
    match gating {
        Gating::Silu => gate * sigmoid(gate) * value,
        Gating::GeluTanh => {
            let root = std::f64::consts::FRAC_2_PI.sqrt();
            0.5 * gate * (1.0 + (root * (gate + 0.044_715 * gate.powi(3))).tanh()) * value
        }
        Gating::ClampedSwish => {
            let (gate, value) = (gate.min(7.0), value.clamp(-7.0, 7.0));
            gate * sigmoid(1.702 * gate) * (value + 1.0)
        }
    }
}

/// The experts that a row goes to, and what each counts.
pub(super) type Route = Vec<(usize, f64)>;

/// Of the scores of a row.
pub(super) fn choose(plan: &ExpertPlan, scores: &[f64], bias: &[f32]) -> Route {
    if let Routing::Sigmoid { divided, scale } = plan.routing {
        let shares: Vec<f64> = scores.iter().map(|score| sigmoid(*score)).collect();
        let by: Vec<f64> = shares.iter().zip(bias).map(|(share, bias)| share + f64::from(*bias)).collect();
        let mut order: Vec<usize> = (0..by.len()).collect();
        order.sort_by(|&a, &b| by[b].total_cmp(&by[a]));
        order.truncate(plan.chosen);
        let sum: f64 = order.iter().map(|&expert| shares[expert]).sum();
        let over = divided.map_or(1.0, |least| sum + f64::from(least));
        return order.into_iter().map(|expert| (expert, shares[expert] / over * f64::from(scale))).collect();
    }
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
        Routing::Sigmoid { .. } => Vec::new(),
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
