//! Packs a model into a file, a few matrices at a time: nothing stays in memory that was written.

use super::packer::Packer;
use super::parts::gated;
use super::{FeedWeights, LayerWeights, names};
use crate::arch::ExpertPlan;
use crate::load::LoadError;
use crate::packed_file::StreamWriter;
use duet_kernels::packed::PackedMatrix;
use std::io::{self, Seek, Write};
use std::thread::ScopedJoinHandle;

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
    /// Writes all matrices, layer by layer; says after each layer how many are done. Some layers are packed at a time, each on a
    /// thread, while those before them are written; the experts of a layer come one by one. The head, which is the largest
    /// matrix and the last, is packed beside them.
    pub(crate) fn write_to(
        &self,
        out: &mut (impl Write + Seek),
        threads: usize,
        done: &mut dyn FnMut(usize),
    ) -> Result<(), PackError> {
        let layers: Vec<usize> = (0..self.blueprint.layers.len()).collect();
        let has_inputs = usize::from(self.blueprint.layer_input.is_some());
        let experts = |layer: usize| self.blueprint.experts_of(layer).map_or(0, |plan| 2 * plan.count);
        let of_layer = |&layer: &usize| 4 + 2 * has_inputs + experts(layer);
        let matrices = 1 + has_inputs + layers.iter().map(of_layer).sum::<usize>();
        let mut writer = StreamWriter::begin(out, self.file.digest(), matrices)?;
        std::thread::scope(|scope| {
            let head = scope.spawn(|| self.head());
            let mut packed: Vec<Result<LayerWeights, LoadError>> = Vec::new();
            let mut first = 0;
            for group in layers.chunks(threads.clamp(1, LAYERS_AT_ONCE)).chain([&[][..]]) {
                let pack = |&layer: &usize| scope.spawn(move || self.layer_without_experts(layer));
                let next: Vec<_> = group.iter().map(pack).collect();
                for layer in std::mem::take(&mut packed) {
                    self.write_layer(&mut writer, (first, &layer?), threads)?;
                    self.forget_layer(first);
                    first += 1;
                    done(first);
                }
                packed.extend(next.into_iter().map(joined));
            }
            if let Some(inputs) = self.inputs()? {
                writer.matrix(names::INPUTS.to_owned(), &inputs.matrix)?;
            }
            writer.matrix(names::HEAD.to_owned(), &joined(head)?)?;
            writer.finish()?;
            Ok(())
        })
    }

    fn write_layer<W: Write + Seek>(
        &self,
        writer: &mut StreamWriter<W>,
        (index, layer): (usize, &LayerWeights),
        threads: usize,
    ) -> Result<(), PackError> {
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
        for (name, matrix) in layer.input.iter().flat_map(|input| input.matrices(index)) {
            writer.matrix(name, matrix)?;
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
            threads.into_iter().map(joined).collect()
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

/// Layers in memory while they are packed, beside as many that are written: some per cent of a model.
const LAYERS_AT_ONCE: usize = 4;

fn joined<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
