//! Speed of the matrix products beside the machine's ceilings, of all forms and some numbers of rows, or of those that are
//! named: `cargo run --release -p duet-kernels --example gemm -- [Q4K …] [8 …]`.

use duet_kernels::crew::{Crew, Scoped, Solo, Worker};
use duet_kernels::isa::{Isa, IsaError};
use duet_kernels::matmul::{Epilogue, Target, matmul};
use duet_kernels::memory::{Aligned, Shared};
use duet_kernels::packed::{Form, Packable, PackedMatrix, WeightGroup};
use duet_kernels::probe::{ReadProbe, int8_macs_per_second};
use duet_kernels::quantize::{Operands, QuantizedRows};
use std::time::Instant;

fn group(form: Form, seed: usize) -> Packable {
    if form.is_float() {
        return [(seed % 16) as f32; 32].into();
    }
    WeightGroup { scale: 0.01, min: 0.1, small: [1; 2], quants: [(seed % 16) as u8; 32] }.into()
}

fn main() -> Result<(), IsaError> {
    let isa = Isa::chosen()?;
    println!("{isa}");
    let probe = ReadProbe::new(256 << 20);
    for crew in [&Solo as &dyn Crew, &Scoped { threads: 2 }] {
        for _ in 0..3 {
            println!(
                "{} threads: {:.0} GMAC/s, {:.1} GB/s",
                crew.size(),
                int8_macs_per_second(isa, crew) / 1e9,
                probe.bytes_per_second(isa, crew) / 1e9
            );
        }
    }
    let (mut numbers_of_rows, mut named) = (Vec::new(), Vec::new());
    for word in std::env::args().skip(1) {
        match word.parse::<usize>() {
            Ok(rows) => numbers_of_rows.push(rows),
            Err(_) => named.push(word),
        }
    }
    if numbers_of_rows.is_empty() {
        numbers_of_rows = vec![1, 2, 8, 256];
    }
    let chosen = |form: &Form| named.is_empty() || named.contains(&format!("{form:?}"));
    for form in Form::ALL.into_iter().filter(chosen) {
        for (n, k) in [(1536, 1536), (1536, 8960)] {
            let weights: Vec<PackedMatrix> = (0..8)
                .map(|_| PackedMatrix::new(n, k, form, |o, i| group(form, o + i)).expect("scales in range"))
                .collect();
            for &rows in &numbers_of_rows {
                let mut quantized = QuantizedRows::new(rows, k, Operands::BytesAndFloats);
                let mut out = Aligned::<f32>::zeroed(rows * n);
                let values: Vec<f32> = (0..k).map(|i| (i as f32).sin()).collect();
                let shared = quantized.share(k);
                for row in 0..rows {
                    // SAFETY: one thread.
                    unsafe { shared.set_row(isa, row, &values) };
                }
                let epilogue = Epilogue::Store(Target { out: Shared::new(&mut out), first_row: 0, stride: n });
                let mut rates: Vec<(f64, f64)> = Vec::new();
                for _ in 0..5 {
                    let repeat = (2_000_000_000 / (n * k * rows.max(16)) / weights.len()).max(1);
                    let peak = int8_macs_per_second(isa, &Solo);
                    let start = Instant::now();
                    for _ in 0..repeat {
                        for weights in &weights {
                            Solo.run(&|worker: Worker<'_>| {
                                // SAFETY: the rows are quantised, and this crew alone has the target.
                                unsafe { matmul(isa, weights, &shared, rows, &epilogue, &worker) }
                            });
                        }
                    }
                    let seconds = start.elapsed().as_secs_f64() / (repeat * weights.len()) as f64;
                    let rate = (n * k * rows) as f64 / seconds;
                    rates.push((rate / 1e9, rate / peak));
                }
                rates.sort_by(|a, b| a.1.total_cmp(&b.1));
                let (rate, share) = rates[rates.len() / 2];
                let best = rates.iter().fold(0.0_f64, |best, (rate, _)| best.max(*rate));
                println!(
                    "{form:?} {n}x{k} rows {rows}: {rate:.0} GMAC/s, {share:.2} of the peak; {best:.0} GMAC/s at best"
                );
            }
        }
    }
    Ok(())
}
