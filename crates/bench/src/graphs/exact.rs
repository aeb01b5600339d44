//! What a graph for exactly a prompt's rows is worth: making it, against reading the prompt in padded chunks.
//! (Agent.xpu §4.3 ⑤)
//!
//! The same prompt is read by the same threads, in turns: in chunks whose graphs are there, the last one padded; in one
//! pass on graphs for exactly its rows; and by the CPU's kernels. The head is left out: it is the same in all. A graph pays
//! where it is made while the prompt waits anyway, and never where somebody waits for it; both times are printed.

use super::line::{ExactLine, Line};
use super::{GraphsError, Settings};
use crate::bed::{Bed, timed};
use crate::cores::on_cores;
use crate::forward::Forward;
use crate::load::Progress;
use crate::samples::median;
use duet_kernels::crew::Crew;
use duet_model::forward::{Activations, NotPrepared, Prepared, PreparesRows, TokenWise};
use duet_model::kv::KvFormat;
use duet_offload::ExactModel;
use duet_types::{Bytes, Nanos, Tokens};
use std::sync::Arc;

/// What reading the prompt once in each way took.
#[derive(Clone, Copy)]
struct Turn {
    padded: Nanos,
    exact: Nanos,
    native: Nanos,
}

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    progress("graphs for exactly a prompt's rows");
    let samples = settings.samples.max(1);
    let cache = Some(&bed.cache);
    let model = ExactModel::ready_on(Arc::clone(&bed.model), Arc::clone(&bed.device), cache, &mut |_| {})?;
    let model = Arc::new(model);
    let mut made = Vec::with_capacity(samples);
    for _ in 0..samples {
        // One at a time: they are large.
        made.push(made_once(&model)?.0);
    }
    let (took, prepared) = made_once(&model)?;
    made.push(took);
    let turns = turns(bed, &model, &prepared, samples)?;
    tell(Line::Exact(line(bed, &made, prepared.bytes, &turns)?));
    Ok(())
}

fn made_once(model: &ExactModel) -> Result<(Nanos, Prepared), GraphsError> {
    let (took, made) = timed(|| model.prepare(PROMPT, &|| true));
    match made {
        Ok(prepared) => Ok((took, prepared)),
        Err(NotPrepared::Failed(error)) => Err(GraphsError::NotPrepared(error)),
        Err(NotPrepared::CalledOff) => Err(GraphsError::NoResult),
    }
}

fn turns(bed: &Bed, model: &Arc<ExactModel>, prepared: &Prepared, samples: usize) -> Result<Vec<Turn>, GraphsError> {
    let (chunks, exact): (Arc<dyn TokenWise>, _) = (Arc::clone(model) as _, Arc::clone(&prepared.kernels));
    let of_job = bed.clone();
    on_cores(bed.threads, move |crew| {
        let turn = || {
            Ok(Turn {
                padded: read(&of_job, Some(&*chunks), crew, CHUNK)?,
                exact: read(&of_job, Some(&*exact), crew, PROMPT)?,
                native: read(&of_job, None, crew, PROMPT)?,
            })
        };
        // The first turn warms up.
        turn()?;
        (0..samples).map(|_| turn()).collect()
    })
}

/// How long the prompt takes in chunks of `chunk` rows, up to the head.
fn read(bed: &Bed, device: Option<&dyn TokenWise>, crew: &dyn Crew, chunk: Tokens) -> Result<Nanos, GraphsError> {
    let model = &*bed.model;
    let forward = Forward { model, device, experts: None, crew };
    let (prompt, pool) = (bed.text(PROMPT.as_usize()), model.kv_pool(KvFormat::F16, PROMPT));
    let mut activations = Activations::new(model, chunk.min(PROMPT).as_usize());
    let (took, read) = timed(|| {
        let mut kv = pool.table();
        for rows in prompt.chunks(chunk.as_usize()) {
            let passed = forward.pass(activations, kv, rows, &[], &mut Vec::new())?;
            (activations, kv) = (passed.activations, passed.kv);
        }
        Ok::<_, GraphsError>(())
    });
    read.map(|()| took)
}

fn line(bed: &Bed, made: &[Nanos], bytes: Bytes, turns: &[Turn]) -> Result<ExactLine, GraphsError> {
    let middle = |times: Vec<f64>| median(times).ok_or(GraphsError::NoResult);
    let ms = |took: Nanos| 1e3 * took.as_secs_f64();
    let of = |took: fn(&Turn) -> Nanos| middle(turns.iter().map(|turn| ms(took(turn))).collect());
    Ok(ExactLine {
        setting: "exact",
        n: turns.len(),
        threads: bed.threads,
        prompt: PROMPT.0,
        compile_ms: middle(made.iter().map(|&took| ms(took)).collect())?,
        padded_ms: of(|turn| turn.padded)?,
        exact_ms: of(|turn| turn.exact)?,
        native_ms: of(|turn| turn.native)?,
        ratio: middle(turns.iter().map(|turn| ms(turn.exact) / ms(turn.padded)).collect())?,
        bytes: bytes.0,
    })
}

/// The prompt: a chunk, and a small part of another.
pub(super) const PROMPT: Tokens = Tokens(300);
const CHUNK: Tokens = Tokens(256);
