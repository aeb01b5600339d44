//! `duet moefy`: makes a mixture of experts of a dense model, and says what that costs.

use crate::bad_input::BadInput;
use crate::cli::MoefyArgs;
use crate::failure::{data_error, print};
use crate::progress::eprintln_quiet;
use crate::{models, session};
use anyhow::Context;
use duet_bench::load::{self, spread};
use duet_files::WholeFile;
use duet_model::Model;
use duet_model::gguf::GgufFile;
use duet_moefy::{Kept, Moefied, MoefyError, Shape, perplexity};
use duet_types::{TokenId, Tokens};
use serde::Serialize;
use std::io::BufWriter;
use std::path::Path;

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    experts: usize,
    top_k: usize,
    expert_ffn: usize,
    shared_expert_ffn: usize,
    /// Share of the neurons that a token goes to.
    active: f64,
    tokens: usize,
    held_out_tokens: usize,
    layers: Vec<LayerReport>,
    perplexity_dense: f64,
    perplexity: f64,
    ratio: f64,
    bytes: u64,
}

/// How much of what neurons contribute the experts keep that tokens go to.
#[derive(Debug, Serialize)]
struct LayerReport {
    layer: usize,
    kept: f64,
    kept_of_routed: f64,
}

pub(super) fn moefy(arguments: &MoefyArgs) -> anyhow::Result<()> {
    let path = models::locate(&arguments.model)?;
    refuse_the_model_itself(&path, &arguments.output)?;
    let threads = arguments.threads.map(u16::from);
    let model = session::open_with(&arguments.model, threads)?;
    let threads = threads.map_or_else(|| duet_device::available_cores().len(), usize::from);
    let shape = shape(arguments, &model)?;
    let texts = Texts::read(arguments, &model)?;
    let mut layers = Vec::new();
    let moefied = Moefied::of(&model, &texts.carve, shape, threads, &mut |layer, Kept { all, routed }| {
        eprintln_quiet(&format!(
            "layer {layer}: keeps {:.1} %, {:.1} % of what is routed",
            100.0 * all,
            100.0 * routed
        ));
        layers.push(LayerReport { layer, kept: all, kept_of_routed: routed });
    });
    write(&moefied.map_err(told)?, &model, &path, &arguments.output)?;
    eprintln_quiet("measuring perplexity");
    let output = &arguments.output.to_string_lossy();
    let carved = session::open_with(output, arguments.threads.map(u16::from))?;
    let of = |model: &Model| perplexity(model, &texts.held_out, threads).map_err(told);
    let (dense, sparse) = (of(&model)?, of(&carved)?);
    let count = |texts: &[Vec<TokenId>]| texts.iter().map(Vec::len).sum();
    let report = Report {
        experts: shape.experts,
        top_k: shape.chosen,
        expert_ffn: shape.width,
        shared_expert_ffn: shape.shared,
        active: shape.active(),
        tokens: count(&texts.carve),
        held_out_tokens: count(&texts.held_out),
        layers,
        perplexity_dense: dense,
        perplexity: sparse,
        ratio: sparse / dense,
        bytes: arguments.output.metadata().map_or(0, |file| file.len()),
    };
    if arguments.json {
        return print(&(serde_json::to_string(&report)? + "\n"));
    }
    print(&page(&report, &arguments.output))
}

fn shape(arguments: &MoefyArgs, model: &Model) -> anyhow::Result<Shape> {
    let shared = arguments.shared.map(|shared| shared as usize);
    Shape::for_model(model, arguments.experts.into(), arguments.top_k.into(), shared).map_err(told)
}

/// What is wrong with the arguments is told as such.
fn told(error: MoefyError) -> anyhow::Error {
    match error {
        MoefyError::Write(_) | MoefyError::Pass(_) => error.into(),
        MoefyError::Split { .. } => BadInput(format!("{error}; choose other --experts or --shared")).into(),
        MoefyError::Chosen { .. } => BadInput(format!("--top-k: {error}")).into(),
        MoefyError::NoText => BadInput(format!("--data: {error}")).into(),
        _ => BadInput(error.to_string()).into(),
    }
}

/// Texts to carve on, and others to measure on.
struct Texts {
    carve: Vec<Vec<TokenId>>,
    held_out: Vec<Vec<TokenId>>,
}

impl Texts {
    fn read(arguments: &MoefyArgs, model: &Model) -> anyhow::Result<Self> {
        let texts = load::texts(model, &arguments.data, TEXT_LENGTH).map_err(|error| data_error("--data", error))?;
        let (held_out, carve): (Vec<_>, Vec<_>) =
            texts.into_iter().enumerate().partition(|(index, _)| index % HELD_OUT == HELD_OUT - 1);
        let tokens = arguments.tokens as usize;
        let some = |texts: Vec<(usize, Vec<TokenId>)>, tokens| spread(texts.into_iter().map(|(_, text)| text), tokens);
        Ok(Self { carve: some(carve, tokens), held_out: some(held_out, tokens / 2) })
    }
}

/// Tokens of a text at most: so that texts are many.
const TEXT_LENGTH: Tokens = Tokens(256);
/// Every fifth text is held out: carving does not see it, and perplexity is measured on it.
const HELD_OUT: usize = 5;

fn refuse_the_model_itself(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.canonicalize().ok().is_some_and(|from| to.canonicalize().is_ok_and(|to| to == from)) {
        return Err(BadInput(format!("--output {}: this is the model itself", to.display())).into());
    }
    Ok(())
}

fn write(moefied: &Moefied, model: &Model, from: &Path, to: &Path) -> anyhow::Result<()> {
    let file = GgufFile::open(from)?;
    let named = || format!("--output {}", to.display());
    // Under its own name it is whole: who stops this meanwhile has no half a model.
    let mut out = BufWriter::new(WholeFile::begin(to).with_context(named)?);
    moefied.write(model, &file, &mut out).map_err(told)?;
    let out = out.into_inner().map_err(std::io::IntoInnerError::into_error);
    out.and_then(WholeFile::commit).with_context(named)
}

fn page(report: &Report, output: &Path) -> String {
    let mean = |of: fn(&LayerReport) -> f64| {
        100.0 * report.layers.iter().map(of).sum::<f64>() / report.layers.len().max(1) as f64
    };
    let mut page = "layer   keeps   of what is routed\n".to_owned();
    for LayerReport { layer, kept, kept_of_routed } in &report.layers {
        page += &format!("{layer:>5}  {:>5.1} %  {:>5.1} %\n", 100.0 * kept, 100.0 * kept_of_routed);
    }
    page += &format!(" mean  {:>5.1} %  {:>5.1} %\n\n", mean(|layer| layer.kept), mean(|layer| layer.kept_of_routed));
    page += &format!(
        "{}: {} experts of {}, {} a token; {} for all: {:.0} % of the neurons a token\n",
        output.display(),
        report.experts,
        report.expert_ffn,
        report.top_k,
        report.shared_expert_ffn,
        100.0 * report.active,
    );
    page += &format!(
        "perplexity on {} tokens that were not carved on: {:.2}, dense {:.2}: {:.2} times\n",
        report.held_out_tokens, report.perplexity, report.perplexity_dense, report.ratio,
    );
    page
}
