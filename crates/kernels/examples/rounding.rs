//! How long rows take to be rounded to bytes, in nanoseconds for a group of 32 values and a thread, the least of some rounds:
//! `cargo run --release -p duet-kernels --example rounding`.

use duet_kernels::crew::{Crew, Scoped, Worker};
use duet_kernels::isa::{Isa, IsaError};
use duet_kernels::memory::{Aligned, Shared};
use duet_kernels::quantize::{GROUP, Operands, QuantizedRows, Rows};
use std::time::Instant;

const ROUNDS: usize = 9;

/// Values that a round rounds, about.
const VALUES: usize = 10_000_000;

fn main() -> Result<(), IsaError> {
    let isa = Isa::chosen()?;
    println!("{isa}");
    for threads in [1, 2] {
        for (rows, columns) in [(8, 576), (8, 1536), (512, 576), (512, 1536), (512, 8960)] {
            let nanos = nanos_of_group(isa, threads, rows, columns);
            println!("{threads} threads, {rows} rows of {columns}: {nanos:.1} ns");
        }
    }
    Ok(())
}

fn nanos_of_group(isa: Isa, threads: usize, rows: usize, columns: usize) -> f64 {
    let mut quantized = QuantizedRows::new(rows, columns, Operands::Bytes);
    let mut values = Aligned::<f32>::zeroed(rows * columns);
    for (i, value) in values.iter_mut().enumerate() {
        *value = (i as f32).sin();
    }
    let (to, values) = (quantized.share(columns), Shared::new(&mut values));
    let times = (VALUES / (rows * columns)).max(4);
    let round = || {
        let begun = Instant::now();
        Scoped { threads }.run(&|worker: Worker<'_>| {
            for _ in 0..times {
                let source = Rows { values, stride: columns, columns, first: 0 };
                // SAFETY: this crew alone has the rows, and a sync lies between two rounds.
                unsafe { to.set_rows(isa, source, &worker) };
                worker.sync();
            }
        });
        begun.elapsed().as_secs_f64()
    };
    let least = (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min);
    least * 1e9 * threads as f64 / (times * rows * columns.div_ceil(GROUP)) as f64
}
