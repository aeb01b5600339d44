//! A model's prefill and decode through the graphs, and with the CPU's kernels alone, in turns on the same cores.

use super::line::{EndToEndLine, Line};
use super::{GraphsError, Settings};
use crate::bed::{Bed, timed};
use crate::cores::on_cores;
use crate::forward::{Forward, likeliest};
use crate::load::Progress;
use crate::samples::median;
use duet_kernels::crew::Crew;
use duet_model::forward::TokenWise;
use duet_model::kv::KvFormat;
use duet_offload::PlacedModel;
use duet_types::{Nanos, Tokens};

/// What one turn took.
#[derive(Clone, Copy)]
struct Turn {
    prefill: Nanos,
    decode: Nanos,
}

/// Both, turn by turn.
type Turns = Vec<[Turn; 2]>;

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    progress("the whole model, through the graphs and without");
    let placed = PlacedModel::ready_on(&bed.model, &*bed.device, Some(&bed.cache), &mut |_| {})?;
    let (output, samples) = (settings.output.max(1), settings.samples.max(1));
    let turns = on_lanes(bed, output, samples, placed)?;
    tell(Line::EndToEnd(line(bed, format!("prefill of {PROMPT}"), PROMPT, &turns, |turn| turn.prefill)?));
    tell(Line::EndToEnd(line(bed, format!("decode of {output} after {PROMPT}"), output, &turns, |turn| turn.decode)?));
    Ok(())
}

/// Takes the turns on pinned lanes, as an engine does.
fn on_lanes(bed: &Bed, output: usize, samples: usize, placed: PlacedModel) -> Result<Turns, GraphsError> {
    let (threads, bed) = (bed.threads, bed.clone());
    on_cores(threads, move |crew| {
        // The first turn warms up.
        let turns =
            (0..=samples).map(|_| Ok([turn(&bed, Some(&placed), crew, output)?, turn(&bed, None, crew, output)?]));
        turns.collect::<Result<Turns, GraphsError>>().map(|turns| turns[1..].to_vec())
    })
}

fn turn(bed: &Bed, device: Option<&PlacedModel>, crew: &dyn Crew, output: usize) -> Result<Turn, GraphsError> {
    let model = &*bed.model;
    let forward = Forward { model, device: device.map(|device| device as &dyn TokenWise), experts: None, crew };
    let pool = model.kv_pool(KvFormat::F16, Tokens((PROMPT + output + 1) as u32));
    let (prompt, mut logits) = (bed.text(PROMPT), Vec::new());
    let (prefill, kv) = timed(|| forward.read(pool.table(), &prompt, CHUNK, &mut logits));
    let (kv, first) = (kv?, likeliest(&logits[..model.config().vocabulary]));
    let (decode, decoded) = timed(|| forward.decode(kv, first, output, &mut || {}));
    decoded?;
    Ok(Turn { prefill, decode })
}

fn line(
    bed: &Bed,
    setting: String,
    tokens: usize,
    turns: &[[Turn; 2]],
    took: fn(&Turn) -> Nanos,
) -> Result<EndToEndLine, GraphsError> {
    let middle =
        |read: &dyn Fn(&[Turn; 2]) -> f64| median(turns.iter().map(read).collect()).ok_or(GraphsError::NoResult);
    let rate = |turn: &Turn| tokens as f64 / took(turn).as_secs_f64();
    let graphs_tok_s = middle(&|[graphs, _]| rate(graphs))?;
    Ok(EndToEndLine {
        setting,
        n: turns.len(),
        threads: bed.threads,
        graphs_tok_s,
        native_tok_s: middle(&|[_, native]| rate(native))?,
        ratio: middle(&|[graphs, native]| rate(graphs) / rate(native))?,
        ms_per_token: 1e3 / graphs_tok_s,
    })
}

/// The prompt.
pub(super) const PROMPT: usize = 512;
const CHUNK: usize = 256;
