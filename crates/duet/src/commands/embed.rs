//! `duet embed`: vectors of texts on stdout, a JSON array on each line, in the order of the texts.

use crate::bad_input::BadInput;
use crate::cli::EmbedArgs;
use crate::failure::print;
use crate::session;
use crate::weight_cache::WeightCache;
use anyhow::Context;
use duet_kernels::crew::Scoped;
use duet_model::encoder::{Encoder, Overlong, Text};
use std::io::BufRead;

pub(super) fn embed(arguments: &EmbedArgs) -> anyhow::Result<()> {
    let encoder = session::open_encoder(&arguments.model, arguments.threads, WeightCache::of(None).as_ref())?;
    if !encoder.pooling().embeds() {
        return Err(BadInput(format!("{} makes scores of pairs of texts, and no vectors", arguments.model)).into());
    }
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let crew = Scoped { threads: arguments.threads.map_or_else(all, usize::from) };
    let overlong = if arguments.truncate { Overlong::Cut } else { Overlong::Refused };
    for given in &arguments.texts {
        if given != "-" {
            print_vector(&encoder, given, overlong, &crew)?;
            continue;
        }
        for line in std::io::stdin().lock().lines() {
            print_vector(&encoder, &line.context("cannot read stdin")?, overlong, &crew)?;
        }
    }
    Ok(())
}

fn print_vector(encoder: &Encoder, text: &str, overlong: Overlong, crew: &Scoped) -> anyhow::Result<()> {
    let made = if text.is_empty() { Err("the text is empty".to_owned()) } else { text_of(encoder, text, overlong) };
    let text = made.map_err(BadInput)?;
    let mut pass = encoder.begin([text].into())?;
    let rows = 0..pass.rows();
    encoder.run(&mut pass, 0..encoder.order().count(), rows, crew);
    let vectors = encoder.results(&pass);
    encoder.end(pass);
    vectors.iter().try_for_each(|vector| print(&(serde_json::to_string(vector)? + "\n")))
}

fn text_of(encoder: &Encoder, text: &str, overlong: Overlong) -> Result<Text, String> {
    encoder.text(text, overlong).map_err(|error| format!("{error}; --truncate cuts what is too long"))
}
