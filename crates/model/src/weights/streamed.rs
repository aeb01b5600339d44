//! Packs a model into a file, a few matrices at a time: nothing stays in memory that was written.

use super::packer::Packer;
use super::parts::gated;
use super::{FeedWeights, names};
use crate::arch::ExpertPlan;
use crate::load::LoadError;
use crate::packed_file::StreamWriter;
use duet_kernels::memory::Spare;
use duet_kernels::packed::PackedMatrix;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
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
    /// Writes all matrices; says after each layer how many are done. Some threads pack and write a layer each at a time, the
    /// experts of a layer one by one; the head, which is the largest matrix, has a thread of its own.
    pub(crate) fn write_to(&self, out: &File, threads: usize, done: &mut dyn FnMut(usize)) -> Result<(), PackError> {
        let layers = self.blueprint.layers.len();
        let has_inputs = usize::from(self.blueprint.layer_input.is_some());
        let experts = |layer: usize| self.blueprint.experts_of(layer).map_or(0, |plan| 2 * plan.count);
        let of_layer = |layer: usize| 4 + 2 * has_inputs + experts(layer);
        let matrices = 1 + has_inputs + (0..layers).map(of_layer).sum::<usize>();
        let writer = StreamWriter::begin(out, self.file.digest(), matrices);
        // Of a layer with experts little is in memory at once.
        let most = if self.blueprint.experts.is_some() { layers.max(1) } else { LAYERS_AT_ONCE };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let head = scope.spawn(|| Ok(writer.matrices(&[(names::HEAD.to_owned(), &self.head()?)])?));
            let (told, written) = channel();
            for _ in 0..threads.clamp(1, most) {
                let (told, writer, next) = (told.clone(), &writer, &next);
                scope.spawn(move || self.write_layers(writer, next, &told));
            }
            drop(told);
            let mut failed: Option<(usize, PackError)> = None;
            for (count, (layer, result)) in (1..).zip(written) {
                match result {
                    Ok(()) => done(count),
                    // Of the first layer that has one: others are under way when it is noticed.
                    Err(error) if failed.as_ref().is_none_or(|(first, _)| layer < *first) => {
                        failed = Some((layer, error));
                    }
                    Err(_) => {}
                }
            }
            let head: Result<(), PackError> = joined(head);
            failed.map_or(Ok(()), |(_, error)| Err(error))?;
            if let Some(inputs) = self.inputs()? {
                writer.matrices(&[(names::INPUTS.to_owned(), &inputs.matrix)])?;
            }
            head
        })?;
        Ok(writer.finish()?)
    }

    /// Packs and writes the next layers until there is none; says of each what came of it.
    fn write_layers(
        &self,
        writer: &StreamWriter<'_>,
        next: &AtomicUsize,
        told: &Sender<(usize, Result<(), PackError>)>,
    ) {
        let layers = self.blueprint.layers.len();
        // Each layer's memory is the next one's.
        let _spare = Spare::keep();
        loop {
            let layer = next.fetch_add(1, Ordering::Relaxed);
            if layer >= layers {
                return;
            }
            let written = self.write_layer(writer, layer);
            if written.is_err() {
                next.store(layers, Ordering::Relaxed);
            }
            self.forget_layer(layer);
            // Who asked waits for all layers.
            let _ = told.send((layer, written));
        }
    }

    fn write_layer(&self, writer: &StreamWriter<'_>, index: usize) -> Result<(), PackError> {
        let layer = self.layer_without_experts(index)?;
        let mut matrices = vec![(names::qkv(index), &layer.qkv), (names::output(index), &layer.output)];
        if let FeedWeights::Dense { feed, .. } | FeedWeights::Experts { shared: Some((_, feed)), .. } = &layer.feed {
            let suffix = if self.blueprint.experts_of(index).is_some() { names::SHARED } else { "" };
            matrices.push((names::gate_up(index, suffix), &feed.gate_up));
            matrices.push((names::down(index, suffix), &feed.down));
        }
        matrices.extend(layer.input.iter().flat_map(|input| input.matrices(index)));
        writer.matrices(&matrices)?;
        if let Some(plan) = self.blueprint.experts_of(index) {
            for expert in 0..plan.count {
                let [gate_up, down] = self.pack_expert(index, plan, expert)?;
                let suffix = names::expert(expert);
                writer.matrices(&[(names::gate_up(index, &suffix), &gate_up), (names::down(index, &suffix), &down)])?;
            }
        }
        Ok(())
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

/// Layers without experts that are in memory: some per cent of a model.
const LAYERS_AT_ONCE: usize = 4;

fn joined<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
