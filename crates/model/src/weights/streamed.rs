//! Packs a model into a file, a few matrices at a time: nothing stays in memory that was written.

use super::packer::Packer;
use super::parts::gated;
use super::{FeedWeights, names};
use crate::arch::ExpertPlan;
use crate::load::LoadError;
use crate::packed_file::StreamWriter;
use duet_kernels::packed::PackedMatrix;
use std::io::{self, Seek, Write};

/// Why a model was not packed into a file.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It cannot be packed at all.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl Packer<'_> {
    /// Writes all matrices, layer by layer, the experts of several threads at a time; says after each layer how many are done.
    pub(crate) fn write_to(
        &self,
        out: &mut (impl Write + Seek),
        threads: usize,
        done: &mut dyn FnMut(usize),
    ) -> Result<(), PackError> {
        let layers = self.blueprint.layers.len();
        let of_layer = |layer: usize| 4 + self.blueprint.experts_of(layer).map_or(0, |plan| 2 * plan.count);
        let matrices = 1 + (0..layers).map(of_layer).sum::<usize>();
        let mut writer = StreamWriter::begin(out, self.file.digest(), matrices)?;
        for layer in 0..layers {
            self.write_layer(&mut writer, layer, threads)?;
            self.forget_layer(layer);
            done(layer + 1);
        }
        writer.matrix(names::HEAD.to_owned(), &self.head()?)?;
        writer.finish()?;
        Ok(())
    }

    fn write_layer<W: Write + Seek>(
        &self,
        writer: &mut StreamWriter<W>,
        index: usize,
        threads: usize,
    ) -> Result<(), PackError> {
        let layer = self.layer_without_experts(index)?;
        writer.matrix(names::qkv(index), &layer.qkv)?;
        writer.matrix(names::output(index), &layer.output)?;
        if let Some(plan) = self.blueprint.experts_of(index) {
            let experts: Vec<usize> = (0..plan.count).collect();
            for some in experts.chunks(threads.max(1)) {
                for (expert, matrices) in some.iter().zip(self.pack_experts(index, plan, some)) {
                    let [gate_up, down] = matrices?;
                    writer.matrix(names::gate_up(index, &names::expert(*expert)), &gate_up)?;
                    writer.matrix(names::down(index, &names::expert(*expert)), &down)?;
                }
            }
        }
        match &layer.feed {
            FeedWeights::Dense { feed, .. } | FeedWeights::Experts { shared: Some((_, feed)), .. } => {
                let suffix = if self.blueprint.experts_of(index).is_some() { names::SHARED } else { "" };
                writer.matrix(names::gate_up(index, suffix), &feed.gate_up)?;
                writer.matrix(names::down(index, suffix), &feed.down)?;
            }
            FeedWeights::Experts { shared: None, .. } => {}
        }
        Ok(())
    }

    /// Some experts, each on a thread of its own.
    fn pack_experts(
        &self,
        layer: usize,
        plan: ExpertPlan,
        experts: &[usize],
    ) -> Vec<Result<[PackedMatrix; 2], LoadError>> {
        std::thread::scope(|scope| {
            let pack = |&expert: &usize| scope.spawn(move || self.pack_expert(layer, plan, expert));
            let threads: Vec<_> = experts.iter().map(pack).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
        })
    }

    /// Gates and values, and what goes back to the residual stream, of one expert.
    fn pack_expert(&self, layer: usize, plan: ExpertPlan, expert: usize) -> Result<[PackedMatrix; 2], LoadError> {
        let (stack, hidden) = (self.expert_stack(layer, plan)?, self.blueprint.hidden);
        let neurons = expert * plan.ffn..(expert + 1) * plan.ffn;
        let gate_up = self.pack_one(&gated(stack.gate, stack.up, neurons))?;
        let outputs = (expert * hidden..(expert + 1) * hidden).map(Some);
        Ok([gate_up, self.pack_one(&[stack.down.rows(outputs)])?])
    }
}
