//! A model with experts whose routing a report is of; of a dense one, experts are made first (`duet moefy`).

use crate::bad_input::BadInput;
use crate::failure::data_error;
use crate::{models, session};
use anyhow::Context;
use duet_bench::load::{self, spread};
use duet_model::Model;
use duet_model::gguf::GgufFile;
use duet_moefy::{Moefied, MoefyError, Shape};
use duet_types::{TokenId, Tokens};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model, and what to call it.
pub(super) struct Routed {
    pub(super) model: Arc<Model>,
    pub(super) name: String,
}

impl Routed {
    /// Opens a model. The experts of a dense one are carved on the beginnings of the prompts, all of them: a router is not
    /// what is calibrated.
    pub(super) fn open(name: &str, workload: &[PathBuf], threads: usize, told: &dyn Fn(&str)) -> anyhow::Result<Self> {
        let path = models::locate(name)?;
        let model = session::open_with(name, None)?;
        let called = model.config().name.clone();
        if model.blueprint().experts.is_some() {
            return Ok(Self { model, name: called });
        }
        let texts = load::texts(&model, workload, TEXT_LENGTH).map_err(|error| data_error("--workload", error))?;
        let texts = spread(texts.into_iter(), TOKENS);
        let carved = carve(&model, &path, &texts, threads, told)?;
        let path = carved.path().to_string_lossy().into_owned();
        let name = format!("{called}, carved into {EXPERTS} experts");
        Ok(Self { model: session::open_with(&path, None)?, name })
    }
}

/// The paper's Phi models have as many; two of the four that are chosen are what is read.
const EXPERTS: usize = 16;
const CHOSEN: usize = 4;
/// Tokens to carve on: where rows go is settled long before how well experts do.
const TOKENS: usize = 4096;
/// Of a text, so that texts are many.
const TEXT_LENGTH: Tokens = Tokens(256);

fn carve(
    model: &Model,
    path: &Path,
    texts: &[Vec<TokenId>],
    threads: usize,
    told: &dyn Fn(&str),
) -> anyhow::Result<tempfile::NamedTempFile> {
    let shape = Shape::for_model(model, EXPERTS, CHOSEN, None).map_err(explained)?;
    let layers = model.config().layers;
    let moefied = Moefied::of(model, texts, shape, threads, &mut |layer, _| {
        if (layer + 1) % TOLD == 0 {
            told(&format!("{} of {layers} layers carved into experts", layer + 1));
        }
    });
    let mut file = tempfile::Builder::new().suffix(".gguf").tempfile().context("a temporary file for the experts")?;
    let mut out = BufWriter::new(&mut file);
    moefied.map_err(explained)?.write(model, &GgufFile::open(path)?, &mut out).map_err(explained)?;
    out.flush()?;
    drop(out);
    Ok(file)
}

/// Layers between two reports of progress.
const TOLD: usize = 10;

fn explained(error: MoefyError) -> anyhow::Error {
    match error {
        MoefyError::Write(_) | MoefyError::Pass(_) => error.into(),
        _ => BadInput(format!("--model: {error}; give a model with experts, or a dense one that `duet moefy` takes"))
            .into(),
    }
}
