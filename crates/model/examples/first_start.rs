//! Prints how much memory the first start of a model takes, and a later one: `cargo run --profile optimised -p duet-model --example first_start -- MODEL.gguf FOLDER`.
//!
//! Weights are packed into a file in the folder, if none is there, and mapped from it; then a prompt of some tokens is read, for
//! which all weights are. Engines have their buffers, keys and values beside that.

use duet_kernels::crew::Scoped;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::gguf::GgufFile;
use duet_model::kv::KvFormat;
use duet_model::{LoadError, LoadOptions, Model, PackedFileUse};
use duet_types::{TokenId, Tokens};
use std::error::Error;
use std::fs::File;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: first_start MODEL.gguf FOLDER".into());
    };
    let begun = Instant::now();
    let options = LoadOptions { packed: Some(folder.into()), ..LoadOptions::default() };
    let threads = options.threads;
    let of = |packed_file| Model::load(path.as_ref(), &LoadOptions { packed_file, ..options.clone() }, &mut |_| {});
    let model = match of(PackedFileUse::OrRefuse) {
        Err(LoadError::NotPacked { path: place, .. }) => {
            Model::pack_into(&GgufFile::open(path.as_ref())?, &File::create(&place)?, &options, &mut |_| {})?;
            say("packed", begun);
            of(PackedFileUse::JustWritten)?
        }
        loaded => loaded?,
    };
    say("loaded", begun);
    let (kv, tokens) = (model.kv_pool(KvFormat::Int8, Tokens(64)).table(), (0..TOKENS).map(TokenId).collect());
    let activations = Activations::new(&model, TOKENS as usize);
    let mut pass = Pass::new(&model, activations, vec![Segment::new(kv, tokens)]).map_err(|refused| refused.error)?;
    model.run_span(&mut pass, 0..model.node_count(), &Scoped { threads });
    model.logits(&mut pass, &[TOKENS as usize - 1], &mut Vec::new(), &Scoped { threads });
    say("read", begun);
    println!("packed weights: {}", model.weight_bytes());
    Ok(())
}

/// Tokens of the prompt.
const TOKENS: u32 = 30;

/// What the system says of the process's memory.
fn say(what: &str, begun: Instant) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1024
    };
    let [most, own, mapped] = ["VmHWM:", "RssAnon:", "RssFile:"].map(of);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{what} after {seconds:.2} s: at most {most} MiB, now {own} MiB of its own and {mapped} MiB of files");
}
