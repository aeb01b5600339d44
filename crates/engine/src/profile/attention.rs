//! Whether a device's attention pays: a chunk at the beginning of a prompt and one far behind, on the device and on all
//! cores. (NPUMoE §5.3, where it does not)
//!
//! Both grow with the positions that are seen, the device's in the steps of its graphs' lengths, so that between and behind
//! the two contexts the difference is taken for a straight line. Where it is the device's favour, attention is its; nowhere
//! else, and in no context that it does not take. The device reads the chunk's keys and values out of the cache in each
//! sample, as it does for each chunk that is served.

use super::bench::{Bench, Shape, fastest, on};
use super::{Effort, ProfileError};
use crate::executors::Site;
use duet_device::CpuLanes;
use duet_model::arch::Mixer;
use duet_model::forward::{ChunksTaken, Node};
use duet_scheduler::machine::{AttendedChunks, Attention};
use duet_types::{LaneSet, Tokens};

/// Measures the attention of a device against the cores', and gives it what pays.
pub(super) fn give_what_pays(
    bench: &Bench,
    lanes: &CpuLanes,
    [device, cores]: [LaneSet; 2],
    effort: Effort,
) -> Result<(), ProfileError> {
    let Some(lane) = device.leader() else { return Ok(()) };
    let attention = bench.executors.device(lane).and_then(|device| device.attention.as_ref());
    let Some(taken) = attention.map(|attention| attention.chunks()) else { return Ok(()) };
    let Some(shapes) = shapes(&taken, bench.model.config().context) else { return Ok(()) };
    let time = |team| {
        let timed = bench.clone();
        on(lanes, team, move |site| times(&timed, site, effort, &shapes))?
    };
    let on_cores = time(cores)?;
    bench.executors.give_attention(lane, Attention::Any);
    let on_device = time(device);
    bench.executors.give_attention(lane, Attention::None);
    let on_device = on_device?;
    if bench.executors.failed().contains(lane) {
        return Ok(());
    }
    let ends = shapes.map(|shape| Tokens((shape.context + shape.rows) as u32));
    let given = paying(&taken, ends, [on_device, on_cores]).map_or(Attention::None, Attention::Chunks);
    tracing::info!(?lane, ?on_device, ?on_cores, ?ends, ?given, "attention was measured");
    bench.executors.give_attention(lane, given);
    Ok(())
}

/// Seconds of a layer's attention in two passes: the fastest sample of each, which take turns. Layers with a window are the
/// cores' anyway, and those without attention have none to time.
fn times(bench: &Bench, site: Site<'_>, effort: Effort, shapes: &[Shape; 2]) -> Result<[f64; 2], ProfileError> {
    let layers = bench.model.blueprint().layers.iter().enumerate();
    let layers = layers.filter(|(_, layer)| layer.window.is_none() && layer.mixer == Mixer::Attention);
    let nodes: Vec<Node> = layers.map(|(layer, _)| Node::Attention { layer }).take(LAYERS).collect();
    let mut passes = shapes.iter().map(|&shape| bench.pass(&[shape])).collect::<Result<Vec<_>, _>>()?;
    let mut found = [const { Vec::new() }; 2];
    let samples = if effort == Effort::Quick { 6 } else { 30 };
    // The first sample makes memory ready.
    for sample in 0..=samples {
        for (pass, found) in passes.iter_mut().zip(&mut found) {
            let took = bench.time(pass, nodes.iter().copied(), site)?.as_secs_f64() / nodes.len().max(1) as f64;
            if sample > 0 {
                found.push(took);
            }
        }
    }
    Ok(found.map(fastest))
}

/// A chunk at the beginning, and one far behind.
fn shapes(taken: &ChunksTaken, context: Tokens) -> Option<[Shape; 2]> {
    let longest = taken.context_max.min(context);
    let rows = taken.rows_max.min(ROWS).min(longest);
    let far = CONTEXT.min(longest - rows).as_usize();
    let shape = |context| Shape { context, rows: rows.as_usize() };
    (rows >= taken.rows_min.max(Tokens(1))).then(|| [shape(0), shape(far)])
}

/// The contexts in which the device is sooner done, by the times of chunks that end at two positions.
fn paying(taken: &ChunksTaken, ends: [Tokens; 2], [device, cores]: [[f64; 2]; 2]) -> Option<AttendedChunks> {
    let [near, far] = [cores[0] - device[0], cores[1] - device[1]];
    let [first, last] = ends.map(|end| f64::from(end.0));
    // Where the line goes through zero; nowhere, where it is level.
    let crossing = first + (last - first) * near / (near - far);
    let crossing =
        Tokens(if crossing.is_finite() { crossing.clamp(0.0, f64::from(u32::MAX)) as u32 } else { u32::MAX });
    let (context_min, context_max) = match (near > 0.0, far > 0.0) {
        (true, true) if far >= near => (Tokens::ZERO, taken.context_max),
        (true, _) => (Tokens::ZERO, taken.context_max.min(crossing)),
        (false, true) => (crossing, taken.context_max),
        (false, false) => return None,
    };
    let ChunksTaken { rows_min, rows_max, .. } = *taken;
    (context_min < context_max).then_some(AttendedChunks { rows_min, rows_max, context_min, context_max })
}

/// A chunk as prompts are read in.
const ROWS: Tokens = Tokens(256);
/// Layers that a sample goes through, so that no cache holds what it reads.
const LAYERS: usize = 4;
/// Far behind, where the context is as long.
const CONTEXT: Tokens = Tokens(1024);

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: ChunksTaken = ChunksTaken { rows_min: Tokens(64), rows_max: Tokens(256), context_max: Tokens(4096) };

    fn contexts(device: [f64; 2], cores: [f64; 2]) -> Option<(u32, u32)> {
        let found = paying(&TAKEN, [Tokens(256), Tokens(1280)], [device, cores])?;
        assert_eq!((found.rows_min, found.rows_max), (TAKEN.rows_min, TAKEN.rows_max));
        Some((found.context_min.0, found.context_max.0))
    }

    #[test]
    fn attention_is_the_devices_where_it_is_sooner_done() {
        assert_eq!(contexts([1.0, 2.0], [2.0, 8.0]), Some((0, 4096)));
        assert_eq!(contexts([2.0, 8.0], [1.0, 2.0]), None);
        assert_eq!(contexts([2.0, 2.0], [1.0, 3.0]), Some((768, 4096)));
        assert_eq!(contexts([1.0, 3.0], [2.0, 2.0]), Some((0, 768)));
        // It pays in both, and less and less.
        assert_eq!(contexts([1.0, 7.0], [3.0, 8.0]), Some((0, 2304)));
        assert_eq!(contexts([1.0, 1.0], [1.0, 1.0]), None);
        assert_eq!(contexts([f64::NAN, 1.0], [1.0, 1.0]), None);
    }

    #[test]
    fn contexts_of_a_short_model_are_measured_as_far_as_they_go() {
        let ends = |taken: &ChunksTaken, context| {
            shapes(taken, Tokens(context)).map(|shapes| shapes.map(|shape| (shape.context, shape.rows)))
        };
        assert_eq!(ends(&TAKEN, 8192), Some([(0, 256), (1024, 256)]));
        assert_eq!(ends(&TAKEN, 600), Some([(0, 256), (344, 256)]));
        assert_eq!(ends(&TAKEN, 100), Some([(0, 100), (0, 100)]));
        assert_eq!(ends(&TAKEN, 50), None);
        assert_eq!(ends(&ChunksTaken { context_max: Tokens::ZERO, ..TAKEN }, 8192), None);
    }
}
