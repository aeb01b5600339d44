//! A model on a GPU alone, in tokens a second: prompts, and answers of several sequences, head included; and the head alone of as
//! many rows, in milliseconds and in bytes that come back, with all logits and with the best of each row:
//! `cargo run --release -p duet-gpu --example passes -- MODEL.gguf [--gpu gpu:0] [--prompt 512] [--context 128] [--gen 16]
//! [--batch 1,16] [--best 4] [--warm 1] [--prompts 5]`: `--warm` in seconds, and of so many prompts the median counts. One JSON object on stdout.

#[path = "passes/bed.rs"]
mod bed;

use bed::{Bed, CHUNK, given};
use duet_model::forward::TokenWise;
use std::error::Error;
use std::time::Instant;

/// How often a head is timed; the first compiles.
const HEADS: usize = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let (prompt, context): (usize, usize) = (given("--prompt", "512").parse()?, given("--context", "128").parse()?);
    let new: usize = given("--gen", "16").parse()?;
    let batches = given("--batch", "1,16").split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let most = batches.iter().max().copied().unwrap_or(1);
    // Sequences round their positions up to whole pages.
    let bed = Bed::new((most * (context + new + 64)).max(2 * prompt + 128))?;
    // Compiles what is to be timed; and a GPU that has nothing to do runs slowly, for some time after.
    let (warm, began) = (given("--warm", "1").parse()?, Instant::now());
    while began.elapsed().as_secs_f64() < warm {
        bed.read(CHUNK.min(prompt))?;
    }
    let prompts = given("--prompts", "5").parse::<usize>()?.max(1);
    let mut prefills = (0..prompts).map(|_| prefill(&bed, prompt)).collect::<Result<Vec<_>, _>>()?;
    prefills.sort_by(f64::total_cmp);
    let prefill = prefills[prompts / 2];
    let decode = batches.iter().map(|&batch| {
        let speed = decode(&bed, batch, context, new)?;
        Ok(format!("\"decode {batch}\": {speed:.2}"))
    });
    let decode = decode.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(", ");
    let count: usize = given("--best", "4").parse()?;
    let heads = batches.iter().map(|&rows| {
        let (all, best) = (head(&bed, rows, None)?, head(&bed, rows, Some(count))?);
        Ok(format!("\"head {rows}\": {all}, \"head {rows}, best {count}\": {best}"))
    });
    let heads = heads.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(", ");
    println!("{{\"adapter\": \"{}\", \"prefill\": {prefill:.2}, {decode}, {heads}}}", bed.adapter);
    Ok(())
}

/// Tokens a second of a prompt.
fn prefill(bed: &Bed, prompt: usize) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    bed.read(prompt)?;
    Ok(prompt as f64 / began.elapsed().as_secs_f64())
}

/// Tokens a second of so many sequences together.
fn decode(bed: &Bed, batch: usize, context: usize, new: usize) -> Result<f64, Box<dyn Error>> {
    let mut tables = bed.sequences(batch, context)?;
    bed.step(&mut tables, 0)?;
    let began = Instant::now();
    (1..new).try_for_each(|index| bed.step(&mut tables, index))?;
    Ok(((new - 1) * batch) as f64 / began.elapsed().as_secs_f64())
}

/// What the head costs for so many rows, with all their logits or with the best of each: the least of a few times.
fn head(bed: &Bed, rows: usize, best: Option<usize>) -> Result<String, Box<dyn Error>> {
    let (hidden, vocabulary) = (bed.model.blueprint().hidden, bed.model.config().vocabulary);
    let residual: Vec<f32> = (0..rows * hidden).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let mut logits = vec![0.0; rows * vocabulary];
    let (mut least, mut bytes) = (f64::INFINITY, 0);
    for _ in 0..HEADS {
        let (began, before) = (Instant::now(), bed.gpu.read_bytes());
        match best {
            None => bed.gpu.head(&residual, &mut logits)?,
            Some(count) => {
                bed.gpu.head_best(&residual, count)?.ok_or("a GPU does not look for so many")?;
            }
        }
        least = least.min(began.elapsed().as_secs_f64());
        bytes = (bed.gpu.read_bytes() - before).0;
    }
    Ok(format!("{{\"ms\": {:.3}, \"bytes\": {bytes}}}", 1e3 * least))
}
