//! What it costs that lanes meet, in nanoseconds, the median of some rounds: a sync, a sync after a step whose things are
//! dealt out, and a call of all lanes: `cargo run --release -p duet-device --example meetings -- [THREADS]`.

use duet_device::{Cpu, CpuConfig};
use duet_kernels::crew::{Crew, Worker};
use std::sync::mpsc;
use std::time::Instant;

const ROUNDS: usize = 21;
const MEETINGS: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let cpu = Cpu::start(&CpuConfig::by_speed(threads))?;
    let (told, times) = mpsc::channel();
    let lanes = cpu.lanes();
    lanes.launch(lanes.all(), Box::new(move |team: &dyn Crew| told.send(measure(team)).expect("somebody waits")))?;
    for (what, nanos) in times.recv()? {
        println!("{threads} threads, {what}: {nanos:.0} ns");
    }
    Ok(())
}

fn measure(team: &dyn Crew) -> Vec<(&'static str, f64)> {
    let repeated = |step: &(dyn Fn(&Worker<'_>) + Sync)| {
        team.run(&|worker| {
            for _ in 0..MEETINGS {
                step(&worker);
                worker.sync();
            }
        });
    };
    let sync = || repeated(&|_| {});
    let shares = || repeated(&|worker| worker.share(THINGS).for_each(compute));
    let pieces = || repeated(&|worker| worker.pieces(THINGS, 2).flatten().for_each(compute));
    let calls = || (0..MEETINGS).for_each(|_| team.run(&|_| {}));
    let step = median(shares);
    vec![
        ("a sync", median(sync)),
        ("a sync and a step in shares", step),
        ("more for a step in pieces", median(pieces) - step),
        ("a call", median(calls)),
    ]
}

/// What a step deals out.
const THINGS: usize = 64;

/// Some hundred nanoseconds.
fn compute(thing: usize) {
    (0..100_u64).fold(thing as u64, |x, y| std::hint::black_box(x.wrapping_mul(y)));
}

/// Nanoseconds of one of the meetings.
fn median(meet: impl Fn()) -> f64 {
    let mut nanos: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            meet();
            begun.elapsed().as_secs_f64() * 1e9 / MEETINGS as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    nanos[ROUNDS / 2]
}
