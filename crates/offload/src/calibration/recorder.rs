//! A device that runs nothing and writes down what it is given, layer by layer and text by text.

use super::{Seen, SeenLayer};
use duet_model::forward::{BegunLaunch, ExpertStats, ExpertWise, Fate, NotRun, RoutedRows, TokenWise};
use std::sync::{Mutex, PoisonError};

/// The device.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    seen: Mutex<Seen>,
}

impl Recorder {
    /// What it was given.
    pub(super) fn seen(self) -> Seen {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) -> NotRun {
        note(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        NotRun::Unsupported("it only looks".to_owned())
    }

    fn note_layer(&self, layer: usize, note: impl FnOnce(&mut SeenLayer)) -> NotRun {
        self.note(|seen| {
            if seen.layers.len() <= layer {
                seen.layers.resize_with(layer + 1, SeenLayer::default);
            }
            note(&mut seen.layers[layer]);
        })
    }

    fn note_attended(&self, layer: usize, attended: &[f32], residual: &[f32]) -> NotRun {
        self.note_layer(layer, |seen| {
            seen.attended[0].extend_from_slice(attended);
            seen.attended[1].extend_from_slice(residual);
        })
    }
}

impl TokenWise for Recorder {
    fn qkv(&self, layer: usize, residual: &[f32], _qkv: &mut [f32]) -> Result<(), NotRun> {
        Err(self.note_layer(layer, |seen| seen.qkv.extend_from_slice(residual)))
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], _fed: &mut [f32]) -> Result<(), NotRun> {
        Err(self.note_attended(layer, attended, residual))
    }

    fn head(&self, residual: &[f32], _logits: &mut [f32]) -> Result<(), NotRun> {
        Err(self.note(|seen| seen.head.extend_from_slice(residual)))
    }
}

impl ExpertWise for Recorder {
    fn launches(&self) -> usize {
        1
    }

    fn stats(&self) -> ExpertStats {
        ExpertStats::default()
    }

    fn place_macs(&self, _launch: usize) -> u64 {
        0
    }

    fn project(&self, layer: usize, attended: &[f32], residual: &[f32], _out: &mut [f32]) -> Result<(), NotRun> {
        Err(self.note_attended(layer, attended, residual))
    }

    fn dispatch(&self, layer: usize, rows: &RoutedRows<'_>) -> Vec<Fate> {
        self.note_layer(layer, |seen| {
            seen.experts.normed.extend_from_slice(rows.normed);
            seen.experts.routes.extend(rows.experts.chunks(rows.places.max(1)).map(<[u32]>::to_vec));
        });
        vec![Fate::Crew; rows.experts.len()]
    }

    fn begin(
        &self,
        _layer: usize,
        _launch: usize,
        _rows: &RoutedRows<'_>,
        _fates: &[Fate],
    ) -> Result<Box<dyn BegunLaunch + '_>, NotRun> {
        Err(NotRun::Unsupported("it has no launches".to_owned()))
    }
}
