//! What each sort of launch takes on a GPU, by its own clock, in a chunk of a prompt and in a token of several sequences:
//! `cargo run --release -p duet-gpu --example launches -- MODEL.gguf [--gpu gpu:0] [--prompt 512] [--context 128] [--batch
//! 1,16] [--warm 1]`, the last in seconds. For each, how often it was launched, and microseconds of all of them and of one; before
//! that, what the processor does while launches are not timed.

#[path = "passes/bed.rs"]
mod bed;

use bed::{Bed, given};
use duet_gpu::{LaunchTime, Timed};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let prompt: usize = given("--prompt", "512").parse()?;
    let batches = given("--batch", "1,16").split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let context: usize = given("--context", "128").parse()?;
    let bed = Bed::new(batches.iter().max().map_or(0, |most| most * (context + 128)).max(2 * prompt + 128))?;
    // Compiles what is to be timed, and begins.
    let (warm, began) = (given("--warm", "1").parse()?, Instant::now());
    while began.elapsed().as_secs_f64() < warm {
        bed.read(prompt)?;
    }
    for timed in [Timed::Processor, Timed::Launches] {
        bed.gpu.time_launches(timed);
        let began = Instant::now();
        bed.read(prompt)?;
        show(&bed, &format!("a prompt of {prompt}"), began.elapsed(), &bed.gpu.launch_times());
    }
    for batch in batches {
        let mut tables = bed.sequences(batch, context)?;
        for timed in [Timed::Processor, Timed::Launches] {
            bed.gpu.time_launches(timed);
            bed.step(&mut tables, 0)?;
            bed.step(&mut tables, 1)?;
            // What led here.
            drop(bed.gpu.launch_times());
            let began = Instant::now();
            bed.step(&mut tables, 2)?;
            show(&bed, &format!("a token of {batch} behind {context}"), began.elapsed(), &bed.gpu.launch_times());
        }
    }
    Ok(())
}

fn show(bed: &Bed, what: &str, whole: Duration, launches: &[LaunchTime]) {
    let mut sorts: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for LaunchTime { name, took } in launches {
        let sort = sorts.entry(name).or_default();
        *sort = (sort.0 + 1, sort.1 + *took);
    }
    let mut sorts: Vec<_> = sorts.into_iter().collect();
    sorts.sort_by_key(|(_, (_, took))| std::cmp::Reverse(*took));
    let of_gpu = launches.iter().filter(|launch| !launch.name.starts_with('('));
    let all: Duration = of_gpu.clone().map(|launch| launch.took).sum();
    let [whole, of_launches] = [whole, all].map(|time| time.as_secs_f64() * 1e3);
    println!("{}, {what}: {whole:.3} ms, of which {} launches {of_launches:.3} ms", bed.adapter, of_gpu.count());
    for (name, (count, took)) in sorts {
        let micros = took.as_secs_f64() * 1e6;
        println!("{count:>6} {micros:>10.0} {:>9.1}  {name}", micros / count as f64);
    }
}
