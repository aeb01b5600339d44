//! One graph for each expert, launched one after the other, against one graph for a group of them. (NPUMoE §4.2)
//!
//! Both compute the same rows of the same experts.

use super::line::{ExpertsLine, Line};
use super::random_weights::{ExpertShape, group};
use super::{GraphsError, Settings};
use crate::bed::{Bed, Runnable};
use crate::load::Progress;
use crate::samples::median;
use duet_graphs::Rows;
use duet_sim::Random;
use duet_types::{Nanos, Tokens};

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    let hidden = bed.model.blueprint().hidden;
    for inner in INNER {
        for rows in ROWS {
            progress(&format!("experts of {inner}, {rows} rows"));
            for experts in GROUPS {
                tell(Line::Experts(line(bed, settings, ExpertShape { hidden, inner }, rows, experts)?));
            }
        }
    }
    Ok(())
}

fn line(
    bed: &Bed,
    settings: &Settings,
    shape: ExpertShape,
    rows: Tokens,
    experts: usize,
) -> Result<ExpertsLine, GraphsError> {
    let runnable = |count, seed| -> Result<Runnable, GraphsError> {
        let block = group(shape, count, &mut Random::new(seed))?;
        let mut runnable = Runnable::new(bed.compile(&block, Rows::Static(rows))?, &block, rows);
        runnable.run()?;
        Ok(runnable)
    };
    let mut grouped = runnable(experts, 0)?;
    let mut single = (0..experts).map(|seed| runnable(1, seed as u64)).collect::<Result<Vec<_>, _>>()?;
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    for _ in 0..settings.samples * TURNS {
        let took = single.iter_mut().map(Runnable::run).collect::<Result<Vec<_>, _>>()?;
        apart.push(took.into_iter().sum::<Nanos>().as_millis_f64());
        together.push(grouped.run()?.as_millis_f64());
    }
    let n = apart.len();
    let middle = |times| median(times).ok_or(GraphsError::NoResult);
    let (apart, together) = (middle(apart)?, middle(together)?);
    let tokens = (experts * rows.as_usize()) as f64;
    Ok(ExpertsLine {
        setting: format!("{experts} experts of {} x {}, {rows} rows", shape.hidden, shape.inner),
        n,
        launches_apart: experts,
        apart_us: apart * 1e3,
        grouped_us: together * 1e3,
        apart_rows_s: tokens / apart * 1e3,
        grouped_rows_s: tokens / together * 1e3,
        speedup: apart / together,
    })
}

/// How wide experts are inside: from where a launch is most of the time to where it is little of it.
const INNER: [usize; 2] = [64, 384];
const ROWS: [Tokens; 2] = [Tokens(16), Tokens(64)];
/// The paper's sizes of groups.
const GROUPS: [usize; 3] = [4, 8, 16];
/// Turns for each sample.
const TURNS: usize = 10;
