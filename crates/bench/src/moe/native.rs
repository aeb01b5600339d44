//! The model on the CPU alone, in turns with another engine on the same file if there is one.

use super::line::{Line, NativeLine};
use super::llama_bench::Rates;
use super::{MoeError, Settings};
use crate::bed::{Bed, timed};
use crate::cores::on_cores;
use crate::forward::{Forward, likeliest};
use crate::load::Progress;
use crate::samples::median;
use duet_model::kv::KvFormat;
use duet_types::Tokens;

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), MoeError> {
    for &length in &settings.lengths {
        progress(&format!("the CPU alone, a prompt of {length}"));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first turn warms up.
        for _ in 0..=settings.samples.max(1) {
            ours.push(turn(bed, length)?);
            if let Some(other) = &settings.llama_bench {
                theirs.push(other.rates(length, GENERATED, bed.threads)?);
            }
        }
        let all = (&ours[1..], theirs.get(1..).unwrap_or_default());
        tell(Line::Native(line(bed, format!("prefill of {length}"), all, |rates| rates.prefill)?));
        tell(Line::Native(line(bed, format!("decode of {GENERATED}"), all, |rates| rates.decode)?));
    }
    Ok(())
}

/// A prompt and its answer by the CPU's kernels.
fn turn(bed: &Bed, length: Tokens) -> Result<Rates, MoeError> {
    let own = bed.clone();
    on_cores(bed.threads, move |crew| {
        let model = &*own.model;
        let forward = Forward { model, device: None, experts: None, crew };
        let (prompt, mut logits) = (own.text(length.as_usize()), Vec::new());
        let pool = model.kv_pool(KvFormat::F16, length + Tokens(GENERATED as u32));
        let (prefill, kv) = timed(|| forward.read(pool.table(), &prompt, CHUNK, &mut logits));
        let (kv, first) = (kv?, likeliest(&logits[..model.config().vocabulary]));
        // The other engine decodes from an empty context.
        drop(kv);
        let (decode, decoded) = timed(|| forward.decode(pool.table(), first, GENERATED, &mut || {}));
        decoded?;
        Ok(Rates {
            prefill: f64::from(length.0) / prefill.as_secs_f64(),
            decode: GENERATED as f64 / decode.as_secs_f64(),
        })
    })
}

fn line(
    bed: &Bed,
    what: String,
    (ours, theirs): (&[Rates], &[Rates]),
    of: fn(&Rates) -> f64,
) -> Result<NativeLine, MoeError> {
    let rates = |all: &[Rates]| median(all.iter().map(of).collect());
    let tok_s = rates(ours).ok_or(MoeError::NoResult)?;
    Ok(NativeLine {
        setting: format!("cpu alone, {what}"),
        n: ours.len(),
        threads: bed.threads,
        tok_s,
        ms_per_token: 1e3 / tok_s,
        llama_tok_s: rates(theirs),
        ratio: median(ours.iter().zip(theirs).map(|(ours, theirs)| of(ours) / of(theirs)).collect()),
    })
}

const CHUNK: usize = 256;
/// Tokens decoded from an empty context.
pub(super) const GENERATED: usize = 32;
