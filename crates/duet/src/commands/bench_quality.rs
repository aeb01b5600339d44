//! `duet bench perplexity` and `duet bench quality`: how good answers are.

use crate::bad_input::BadInput;
use crate::cli::{PerplexityArgs, QualityArgs, ReadingArgs};
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::{models, offloading, session};
use anyhow::Context;
use duet_bench::quality::{self, BaseFile, BaseWriter, Chunks, ExactReference, Kernels, Quality, QualityError};
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::exact::{ExactReader, Rounding};
use duet_openvino::Activations;
use std::path::Path;
use std::sync::Arc;

/// Tokens of a chunk where nobody says another number: llama.cpp's.
const CONTEXT: usize = 512;

pub(super) fn perplexity(arguments: &PerplexityArgs) -> anyhow::Result<()> {
    let reading = &arguments.reading;
    let text = text(&arguments.text)?;
    let model = session::open_to_read(&reading.model, reading.threads, reading.expert_memory)?;
    let context = reading.context.unwrap_or(CONTEXT);
    let chunks = Chunks::of_text(&model, &text, context, reading.chunks).map_err(bad)?;
    let mut writer = writer(arguments.write_base.as_deref(), &chunks)?;
    let measured = with_kernels(&model, reading, &chunks, |kernels| {
        quality::perplexity(kernels, writer.as_mut(), &chunks, &mut tell).map_err(failed)
    })?;
    commit(writer)?;
    show(reading, &chunks, &measured)
}

pub(super) fn quality(arguments: &QualityArgs) -> anyhow::Result<()> {
    let reading = &arguments.reading;
    let text = arguments.text.as_deref().map(text).transpose()?;
    let model = session::open_to_read(&reading.model, reading.threads, reading.expert_memory)?;
    if let Some(path) = &arguments.base {
        let mut base = BaseFile::open(path, model.config().vocabulary).map_err(bad)?;
        let chunks = of_base(&model, &base, text.as_deref(), reading)?;
        let measured = with_kernels(&model, reading, &chunks, |kernels| {
            quality::divergence(kernels, &mut base, None, &chunks, &mut tell).map_err(failed)
        })?;
        return show(reading, &chunks, &measured);
    }
    let context = reading.context.unwrap_or(CONTEXT);
    let chunks = Chunks::of_text(&model, &text.unwrap_or_default(), context, reading.chunks).map_err(bad)?;
    let reader = ExactReader::open(&models::locate(&reading.model)?, Rounding::None)?;
    let mut writer = writer(arguments.write_base.as_deref(), &chunks)?;
    let measured = with_kernels(&model, reading, &chunks, |kernels| {
        let mut exact = ExactReference::new(&reader);
        quality::divergence(kernels, &mut exact, writer.as_mut(), &chunks, &mut tell).map_err(failed)
    })?;
    commit(writer)?;
    show(reading, &chunks, &measured)
}

/// A reference file for these chunks, if one is asked for.
fn writer(path: Option<&Path>, chunks: &Chunks) -> anyhow::Result<Option<BaseWriter>> {
    let begin = |path: &Path| {
        BaseWriter::begin(path, chunks.context(), chunks.vocabulary(), chunks.text())
            .map_err(|error| bad(format!("--write-base {}: {error}", path.display())))
    };
    path.map(begin).transpose()
}

fn commit(writer: Option<BaseWriter>) -> anyhow::Result<()> {
    writer.map_or(Ok(()), |writer| writer.commit().context("the reference could not be written"))
}

/// The chunks of a reference file, if it is of what was asked for.
fn of_base(model: &Model, base: &BaseFile, text: Option<&str>, reading: &ReadingArgs) -> anyhow::Result<Chunks> {
    if let Some(context) = reading.context.filter(|context| *context != base.context) {
        return Err(bad(format!("--context {context}: --base has chunks of {}", base.context)));
    }
    if let Some(text) = text {
        let here = Chunks::of_text(model, text, base.context, reading.chunks).map_err(bad)?;
        base.check_text(here.text()).map_err(bad)?;
    }
    Chunks::of_tokens(model, base.tokens.clone(), base.context, reading.chunks).map_err(bad)
}

/// Runs `measure` with what reads as `reading` says.
fn with_kernels<T>(
    model: &Arc<Model>,
    reading: &ReadingArgs,
    chunks: &Chunks,
    measure: impl FnOnce(&mut Kernels<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let device = reading.device.as_ref().map(|device| {
        let threads = (reading.threads, None);
        offloading::compiled(model, device, threads, Activations::ROUNDED)
    });
    let device = device.transpose()?;
    let threads = reading.threads.map_or_else(cores, usize::from);
    let crew = Scoped { threads };
    let device = device.as_deref();
    measure(&mut Kernels::new(model, device, &crew, reading.kv.format(), chunks.context()))
}

fn cores() -> usize {
    duet_device::available_cores().len()
}

fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).map_err(|error| bad(format!("--text {}: {error}", path.display())))
}

fn tell(done: usize, of: usize, quality: &Quality) {
    let divergence = quality.divergence.as_ref();
    let divergence = divergence.map(|found| format!(", divergence {:.5}", found.kld_mean)).unwrap_or_default();
    eprintln_quiet(&format!("bench: chunk {done} of {of}: perplexity {:.4}{divergence}", quality.perplexity));
}

fn bad(error: impl ToString) -> anyhow::Error {
    BadInput(error.to_string()).into()
}

fn failed(error: QualityError) -> anyhow::Error {
    if error.is_bad_input() { bad(error) } else { error.into() }
}

fn show(reading: &ReadingArgs, chunks: &Chunks, measured: &Quality) -> anyhow::Result<()> {
    let (context, kv) = (chunks.context(), reading.kv.format().name());
    if reading.json {
        let mut object = serde_json::to_value(measured)?;
        object["model"] = reading.model.as_str().into();
        object["context"] = context.into();
        object["kv"] = kv.into();
        object["chunks"] = chunks.count().into();
        if let Some(device) = &reading.device {
            object["device"] = device.to_string().into();
        }
        return print(&format!("{object}\n"));
    }
    let mut page = format!(
        "{}, {} chunks of {context}, {} positions, {kv} keys and values\nperplexity {:.4}\n",
        reading.model,
        chunks.count(),
        measured.n,
        measured.perplexity
    );
    if let Some(found) = &measured.divergence {
        page += &format!(
            "the reference's {:.4} ({:+.3} %)\n\
             divergence {:.6} nats on average, {:.5} at 99 %, {:.4} at most\n\
             the likeliest token is the same at {:.2} %\n",
            found.base_perplexity,
            100.0 * (measured.perplexity / found.base_perplexity - 1.0),
            found.kld_mean,
            found.kld_p99,
            found.kld_max,
            100.0 * found.same_top,
        );
    }
    print(&page)
}
