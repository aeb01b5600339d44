//! Prints how fast a model is loaded where its weights have to be packed: `cargo run --profile optimised -p duet-model --example packing -- MODEL.gguf [ROUNDS]`.
//!
//! All of the file is read first, so that no disk is in the figures. Beside them is how fast as many threads copy that many
//! bytes into memory that the system has just given, which is the least that packing has to do.

use duet_model::{LoadOptions, Model};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), rounds) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        eprintln!("usage: packing MODEL.gguf [ROUNDS]");
        return ExitCode::from(2);
    };
    let rounds = rounds.and_then(|rounds| rounds.to_str()?.parse().ok()).unwrap_or(3);
    let file = match std::fs::read(&path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("error: {}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    let options = LoadOptions::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        let copies = copy(&file, options.threads);
        let copied = file.len() as f64 / begun.elapsed().as_secs_f64() / 1e9;
        drop(copies);
        let begun = Instant::now();
        let model = match Model::load(&path, &options, &mut |_| {}) {
            Ok(model) => model,
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let packed = model.weight_bytes().0 as f64 / 1e9;
        println!("packed {packed:.2} GB in {seconds:.2} s: {:.1} GB/s; copied {copied:.1} GB/s", packed / seconds);
    }
    ExitCode::SUCCESS
}

/// The bytes once more, a part a thread.
fn copy(bytes: &[u8], threads: usize) -> Vec<Vec<u8>> {
    let parts = bytes.chunks(bytes.len().div_ceil(threads).max(1));
    std::thread::scope(|scope| {
        let copies: Vec<_> = parts.map(|part| scope.spawn(|| part.to_vec())).collect();
        copies.into_iter().filter_map(|copy| copy.join().ok()).collect()
    })
}
