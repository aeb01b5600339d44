//! One layer's experts, all of them, in groups of each size and capacity: what a token takes when every slot holds a row.
//! (NPUMoE §5.7, Table 5)
//!
//! The weights are the model's own. As in the paper a chunk has as many rows as fill a capacity evenly, `experts ×
//! capacity / chosen`, so that there is no padding, and larger capacities mean larger chunks.

use super::line::{LayerLine, Line, SlopeLine};
use super::{MoeError, Settings, middle};
use crate::bed::{Bed, Runnable, timed};
use crate::load::Progress;
use crate::samples::median;
use duet_graphs::{RowRule, Rows};
use duet_moe::ExpertId;
use duet_offload::{OffloadError, expert_block};
use duet_types::{Nanos, Tokens};

/// All experts of a layer, in groups of one size and capacity.
struct Grouped {
    size: usize,
    graphs: Vec<Runnable>,
    compile: Nanos,
    load: Nanos,
    bytes: u64,
    /// Milliseconds of a chunk.
    times: Vec<f64>,
}

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), MoeError> {
    let plan = bed.model.blueprint().experts.ok_or(OffloadError::Dense)?;
    for &capacity in settings.capacities.iter().filter(|capacity| takes(bed, **capacity)) {
        let sizes = settings.group_sizes.iter().map(|size| size.get()).filter(|size| *size <= plan.count);
        let mut all = Vec::new();
        for size in sizes {
            progress(&format!("one layer, groups of {size}, capacity {capacity}"));
            all.push(Grouped::ready(bed, plan.count, size, capacity)?);
        }
        let slopes = turns(&mut all, settings.samples.max(1) * TURNS)?;
        let rows = plan.count as f64 * f64::from(capacity.0) / plan.chosen.max(1) as f64;
        for grouped in &all {
            tell(Line::Layer(grouped.line(bed, capacity, rows)?));
        }
        if let Some(launch_us) = median(slopes) {
            let setting = format!("launches, capacity {capacity}");
            tell(Line::Slope(SlopeLine { setting, n: settings.samples.max(1) * TURNS, launch_us }));
        }
    }
    Ok(())
}

/// Whether the device takes graphs of `capacity` rows.
fn takes(bed: &Bed, capacity: Tokens) -> bool {
    match bed.device.rules().rows {
        RowRule::Any => true,
        RowRule::StaticMultipleOf(multiple) => capacity.0.is_multiple_of(multiple.0.max(1)),
    }
}

/// Lets all take turns, a chunk each. What a launch more costs, in microseconds, turn by turn.
fn turns(all: &mut [Grouped], count: usize) -> Result<Vec<f64>, MoeError> {
    for grouped in all.iter_mut() {
        // The first run warms up.
        grouped.chunk()?;
    }
    let mut slopes = Vec::new();
    for _ in 0..count {
        let mut points = Vec::with_capacity(all.len());
        for grouped in all.iter_mut() {
            let ms = grouped.chunk()?.as_millis_f64();
            grouped.times.push(ms);
            points.push((grouped.graphs.len() as f64, ms * 1e3));
        }
        slopes.extend(slope(&points));
    }
    Ok(slopes)
}

impl Grouped {
    /// Compiles a layer's groups, writes them down and takes them up again.
    fn ready(bed: &Bed, experts: usize, size: usize, capacity: Tokens) -> Result<Self, MoeError> {
        let mut grouped =
            Self { size, graphs: Vec::new(), compile: Nanos::ZERO, load: Nanos::ZERO, bytes: 0, times: Vec::new() };
        let experts: Vec<ExpertId> = (0..experts as u32).map(ExpertId).collect();
        for experts in experts.chunks(size) {
            let block = expert_block(&bed.model, middle(&bed.model), experts, bed.device.rules().weights)?;
            let block = block.ok_or(OffloadError::Dense)?;
            let emitted = bed.emit(&block, Rows::Static(capacity))?;
            let (compile, compiled) = timed(|| bed.compile_emitted(&emitted));
            let blob = compiled?.export()?;
            let (load, imported) = timed(|| bed.import(&blob));
            grouped.graphs.push(Runnable::new(imported?, &block, capacity));
            grouped.compile += compile;
            grouped.load += load;
            grouped.bytes += blob.len() as u64;
        }
        Ok(grouped)
    }

    /// All launches of a chunk, one after the other.
    fn chunk(&mut self) -> Result<Nanos, MoeError> {
        let took = self.graphs.iter_mut().map(Runnable::run).collect::<Result<Vec<_>, _>>()?;
        Ok(took.into_iter().sum())
    }

    fn line(&self, bed: &Bed, capacity: Tokens, rows: f64) -> Result<LayerLine, MoeError> {
        let ms = median(self.times.clone()).ok_or(MoeError::NoResult)?;
        Ok(LayerLine {
            setting: format!("layer {}, groups of {}, capacity {capacity}", middle(&bed.model), self.size),
            n: self.times.len(),
            threads: bed.threads,
            group: self.size,
            capacity: capacity.0,
            rows,
            launches: self.graphs.len(),
            compile_ms: self.compile.as_millis_f64(),
            load_ms: self.load.as_millis_f64(),
            ms_per_token: ms / rows,
            bytes: self.bytes,
        })
    }
}

/// The slope of the line nearest to some points; nothing if they are all above each other.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len().max(1) as f64;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (spread > 0.0).then(|| together / spread)
}

/// Chunks for each sample.
const TURNS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_points_on_a_line_is_the_lines() {
        let points = [1.0, 2.0, 4.0, 16.0].map(|launches| (launches, 3.5 * launches + 40.0));
        assert!((slope(&points).unwrap() - 3.5).abs() < 1e-9);
        assert_eq!(slope(&[(4.0, 1.0), (4.0, 2.0)]), None);
        assert_eq!(slope(&[]), None);
    }
}
