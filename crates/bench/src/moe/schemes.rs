//! A prompt read and answered by the whole model: by the CPU alone, and by each way to place experts. (NPUMoE §5.3, §5.8)
//!
//! Each scheme takes turns with the CPU alone, reading in the same chunks, and with the naive scheme, so that ratios are of
//! neighbours in time. The device does what it does in serving where it is all there is: projections and the head in every
//! pass, experts in those that have rows for them.

use super::line::{Line, SchemeLine, Shares};
use super::{MoeError, Settings};
use crate::bed::{Bed, timed};
use crate::cores::on_cores;
use crate::forward::{Forward, likeliest};
use crate::load::Progress;
use crate::samples::median;
use duet_kernels::crew::Crew;
use duet_model::forward::{ExpertStats, ExpertWise, TokenWise};
use duet_model::kv::KvFormat;
use duet_offload::{ExpertScheme, PlacedExperts};
use duet_types::{Nanos, TokenId, Tokens};
use std::sync::Arc;

/// Who computes, and in chunks of how many rows prompts are read.
#[derive(Clone, Debug)]
struct Contender {
    name: &'static str,
    chunk: Tokens,
    /// Absent: the CPU alone.
    placed: Option<Arc<PlacedExperts>>,
}

/// A prompt and its answer.
struct Turn {
    ttft: Nanos,
    total: Nanos,
    tokens: Vec<TokenId>,
    /// What the device did while the prompt was read.
    done: ExpertStats,
}

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), MoeError> {
    let naive = settings.schemes.contains(&ExpertScheme::Naive);
    let naive = naive.then(|| placed(bed, settings, ExpertScheme::Naive, settings.chunk(), progress)).transpose()?;
    let mut alone: Vec<((Tokens, Tokens), Vec<Turn>)> = Vec::new();
    for (scheme, chunk) in contenders(settings) {
        let contender = match &naive {
            Some(naive) if scheme == ExpertScheme::Naive => naive.clone(),
            _ => placed(bed, settings, scheme, chunk, progress)?,
        };
        for &length in &settings.lengths {
            progress(&format!("prompts of {length}, {scheme} in chunks of {chunk}"));
            let cpu = Contender { name: "cpu-only", chunk, placed: None };
            let beside = naive.clone().filter(|_| scheme != ExpertScheme::Naive);
            let [cpu, beside, turns] = turns(bed, settings, length, [Some(cpu), beside, Some(contender.clone())])?;
            let naive = if scheme == ExpertScheme::Naive { &turns } else { &beside };
            tell(Line::Scheme(line(bed, settings, (&contender, length), &turns, (&cpu, naive))?));
            match alone.iter_mut().find(|(setting, _)| *setting == (length, chunk)) {
                Some((_, all)) => all.extend(cpu),
                None => alone.push(((length, chunk), cpu)),
            }
        }
    }
    for ((length, chunk), turns) in &alone {
        let cpu = Contender { name: "cpu-only", chunk: *chunk, placed: None };
        tell(Line::Scheme(line(bed, settings, (&cpu, *length), turns, (turns, &[]))?));
    }
    Ok(())
}

/// All schemes at the first chunk, and the one that serves at the others.
fn contenders(settings: &Settings) -> Vec<(ExpertScheme, Tokens)> {
    let first = settings.schemes.iter().map(|&scheme| (scheme, settings.chunk()));
    let others = settings.chunks.iter().skip(1).filter(|_| settings.schemes.contains(&ExpertScheme::All));
    first.chain(others.map(|&chunk| (ExpertScheme::All, chunk))).collect()
}

fn placed(
    bed: &Bed,
    settings: &Settings,
    scheme: ExpertScheme,
    chunk: Tokens,
    progress: Progress<'_>,
) -> Result<Contender, MoeError> {
    progress(&format!("making graphs: {scheme}, chunks of {chunk}"));
    let placed = settings.placed(bed, scheme, chunk)?;
    Ok(Contender { name: scheme.name(), chunk, placed: Some(Arc::new(placed)) })
}

/// Lets contenders take turns, on pinned cores, as an engine's lanes are.
fn turns(
    bed: &Bed,
    settings: &Settings,
    length: Tokens,
    all: [Option<Contender>; 3],
) -> Result<[Vec<Turn>; 3], MoeError> {
    let (bed, output, samples) = (bed.clone(), settings.output.max(1), settings.samples.max(1));
    on_cores(bed.threads, move |crew| {
        let mut turns: [Vec<Turn>; 3] = Default::default();
        // The first turns warm up.
        for sample in 0..=samples {
            for (contender, turns) in all.iter().zip(&mut turns) {
                let Some(contender) = contender else { continue };
                let turn = turn(&bed, contender, (length, output), crew)?;
                if sample > 0 {
                    turns.push(turn);
                }
            }
        }
        Ok(turns)
    })
}

fn turn(
    bed: &Bed,
    contender: &Contender,
    (length, output): (Tokens, usize),
    crew: &dyn Crew,
) -> Result<Turn, MoeError> {
    let (model, placed) = (&*bed.model, contender.placed.as_deref());
    let device = placed.map(|placed| placed as &dyn TokenWise);
    let forward = Forward { model, device, experts: placed.map(|placed| placed as &dyn ExpertWise), crew };
    let pool = model.kv_pool(KvFormat::F16, length + Tokens(output as u32));
    let (prompt, mut logits) = (bed.text(length.as_usize()), Vec::new());
    let before = placed.map(ExpertWise::stats).unwrap_or_default();
    let chunk = contender.chunk.as_usize().max(1);
    let (ttft, kv) = timed(|| forward.read(pool.table(), &prompt, chunk, &mut logits));
    let (kv, first) = (kv?, likeliest(&logits[..model.config().vocabulary]));
    let after = placed.map(ExpertWise::stats).unwrap_or_default();
    let (decode, decoded) = timed(|| forward.decode(kv, first, output - 1, &mut || {}));
    let (_, rest) = decoded?;
    Ok(Turn {
        ttft,
        total: ttft + decode,
        tokens: std::iter::once(first).chain(rest).collect(),
        done: after.since(&before),
    })
}

fn line(
    bed: &Bed,
    settings: &Settings,
    (contender, length): (&Contender, Tokens),
    turns: &[Turn],
    (cpu, naive): (&[Turn], &[Turn]),
) -> Result<SchemeLine, MoeError> {
    let middle = |read: &dyn Fn(&Turn) -> f64| median(turns.iter().map(read).collect()).ok_or(MoeError::NoResult);
    let ttft = |turn: &Turn| turn.ttft.as_millis_f64();
    let times_faster = |others: &[Turn]| median(others.iter().zip(turns).map(|(o, t)| ttft(o) / ttft(t)).collect());
    let (last, reference) = (turns.last().ok_or(MoeError::NoResult)?, cpu.last().ok_or(MoeError::NoResult)?);
    let ttft_ms = middle(&ttft)?;
    let decoded = settings.output.max(1) - 1;
    let decode_ms = middle(&|turn| turn.total.saturating_sub(turn.ttft).as_millis_f64())?;
    let &Contender { name, chunk, ref placed } = contender;
    let same = last.tokens.iter().zip(&reference.tokens).take_while(|(found, expected)| found == expected);
    Ok(SchemeLine {
        setting: format!("prompt {length}, chunks of {chunk}, {name}"),
        n: turns.len(),
        threads: bed.threads,
        scheme: name,
        prompt: length.0,
        chunk: chunk.0,
        counts: settings.counts.from,
        ttft_ms,
        total_ms: middle(&|turn| turn.total.as_millis_f64())?,
        ms_per_token: ttft_ms / f64::from(length.0),
        decode_ms_per_token: (decoded > 0).then(|| decode_ms / decoded as f64),
        resident_bytes: placed.as_ref().map(|_| last.done.resident.0),
        shares: Shares::of(&last.done.places, last.done.launches, last.done.slots),
        times_cpu_only: times_faster(cpu),
        times_naive: times_faster(naive),
        same_next: last.tokens.first() == reference.tokens.first(),
        same_tokens: same.count(),
    })
}
