//! A dense block and experts beside it, each between norms of its own.

use super::ExactReader;
use super::feed::{Route, choose};
use super::rows::{Rows, dot, rms_norm};
use super::tensors::Tensors;
use crate::arch::ExpertPlan;
use crate::load::LoadError;

impl ExactReader {
    /// Adds what both make of the residual stream to it; `normed` is what experts take in.
    pub(super) fn beside(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        plan: &ExpertPlan,
        normed: &Rows,
        residual: &mut Rows,
    ) -> Result<(), LoadError> {
        let behind = |name: &str, rows: &mut Rows| {
            let weight = tensors.layer_vector(layer, &format!("{name}.weight"), self.blueprint.hidden)?;
            rows.each_mut().for_each(|row| rms_norm(row, &weight, self.blueprint.epsilon));
            Ok::<_, LoadError>(())
        };
        let block = tensors.feed(layer, "", plan.shared.unwrap_or(0))?;
        let mut sum = self.gated(&block, None, &self.norm(tensors, &format!("blk.{layer}.ffn_norm"), residual)?);
        behind("post_ffw_norm_1", &mut sum)?;
        let routes = self.routes_beside(tensors, layer, plan, residual)?;
        let mut of_experts = Rows::zeros(residual.len(), residual.columns());
        self.add_routed(tensors, (layer, plan), &routes, normed, &mut of_experts)?;
        behind("post_ffw_norm_2", &mut of_experts)?;
        sum.add(&of_experts);
        behind("post_ffw_norm", &mut sum)?;
        residual.add(&sum);
        Ok(())
    }

    /// Where rows go: the router sees the residual stream, normed and scaled, and each expert has a factor.
    fn routes_beside(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        plan: &ExpertPlan,
        residual: &Rows,
    ) -> Result<Vec<Route>, LoadError> {
        let hidden = self.blueprint.hidden;
        let router = tensors.floats(&format!("blk.{layer}.ffn_gate_inp.weight"), hidden, plan.count)?;
        let scale = tensors.layer_vector(layer, "ffn_gate_inp.scale", hidden)?;
        let factors = tensors.layer_vector(layer, "ffn_down_exps.scale", plan.count)?;
        let root = (hidden as f64).sqrt();
        let route = |row: &[f32]| {
            let mut seen = row.to_vec();
            rms_norm(&mut seen, &scale, self.blueprint.epsilon);
            let scores: Vec<f64> = router.chunks_exact(hidden).map(|weights| dot(&seen, weights) / root).collect();
            let route = choose(plan, &scores, &[]);
            route.into_iter().map(|(expert, share)| (expert, share * f64::from(factors[expert]))).collect()
        };
        Ok(residual.each().map(route).collect())
    }
}
