//! How fast products of a few rows read weights, beside the machine's ceiling, on all cores: matrices of the shapes and types of
//! three models, more of them than caches hold: `cargo run --release -p duet-kernels --example reading -- [ROUNDS] [TEXT]`, of
//! the models whose names contain TEXT.

use duet_kernels::crew::{Crew, Scoped, Worker};
use duet_kernels::isa::{Isa, IsaError};
use duet_kernels::matmul::{Epilogue, Target, matmul};
use duet_kernels::memory::{Aligned, Shared};
use duet_kernels::packed::{Form, PackedMatrix, WeightGroup};
use duet_kernels::probe::ReadProbe;
use duet_kernels::quantize::{Operands, QuantizedRows};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Outputs, inputs and form of a layer's matrices, and how many layers.
type Model = (&'static str, &'static [(usize, usize, Form)], usize);

const MODELS: [Model; 4] = [
    (
        "SmolLM2-135M Q4_1",
        &[(960, 576, Form::Q4_1), (576, 576, Form::Q4_1), (3072, 576, Form::Q4_1), (576, 1536, Form::Q4_1)],
        60,
    ),
    (
        "SmolLM2-135M Q8_0",
        &[(960, 576, Form::Q8_0), (576, 576, Form::Q8_0), (3072, 576, Form::Q8_0), (576, 1536, Form::Q8_0)],
        45,
    ),
    (
        "Qwen2.5 0.5B Q4_K_M",
        &[(1152, 896, Form::Q5_0), (896, 896, Form::Q5_0), (9728, 896, Form::Q5_0), (896, 4864, Form::Q6K)],
        20,
    ),
    (
        "Qwen2.5 1.5B Q4_K_M",
        &[(2048, 1536, Form::Q4K), (1536, 1536, Form::Q4K), (17920, 1536, Form::Q4K), (1536, 8960, Form::Q6K)],
        7,
    ),
];

fn main() -> Result<(), IsaError> {
    let isa = Isa::chosen()?;
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let crew = Scoped { threads: std::thread::available_parallelism().map_or(1, usize::from) };
    let probe = ReadProbe::new(256 << 20);
    for (name, shapes, layers) in MODELS.into_iter().filter(|(name, ..)| name.contains(&wanted)) {
        let weights: Vec<PackedMatrix> = (0..layers).flat_map(|_| shapes).map(matrix).collect();
        let bytes: usize = weights.iter().map(PackedMatrix::bytes).sum();
        for rows in [1, 2, 3, 4, 6, 8, 9, 12, 16, 32] {
            // A share of the ceiling of the same moment: what memory gives drifts.
            let mut shares: Vec<(f64, f64)> = (0..rounds)
                .map(|_| {
                    let before = probe.bytes_per_second(isa, &crew);
                    let rate = bytes as f64 / seconds(isa, &crew, &weights, rows);
                    (2.0 * rate / (before + probe.bytes_per_second(isa, &crew)), rate)
                })
                .collect();
            shares.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (share, rate) = shares[shares.len() / 2];
            println!("{name}, {rows} rows, {isa}: {:.1} GB/s, {share:.2} of the ceiling", rate / 1e9);
        }
    }
    Ok(())
}

fn matrix(&(outputs, inputs, form): &(usize, usize, Form)) -> PackedMatrix {
    let group = |output: usize, index: usize| WeightGroup {
        scale: 0.01,
        min: 0.1,
        small: [1; 2],
        quants: [((output + index) % 4) as u8; 32],
    };
    PackedMatrix::new(outputs, inputs, form, group).expect("scales are in range")
}

/// How long the products with all matrices take, once in memory's own order.
fn seconds(isa: Isa, crew: &dyn Crew, weights: &[PackedMatrix], rows: usize) -> f64 {
    let mut quantized: Vec<QuantizedRows> =
        weights.iter().map(|weights| QuantizedRows::new(rows, weights.inputs(), Operands::Bytes)).collect();
    let shared: Vec<_> =
        quantized.iter_mut().zip(weights).map(|(rows, weights)| rows.share(weights.inputs())).collect();
    for (shared, weights) in shared.iter().zip(weights) {
        let values: Vec<f32> = (0..weights.inputs()).map(|i| (i as f32).sin()).collect();
        for row in 0..rows {
            // SAFETY: one thread.
            unsafe { shared.set_row(isa, row, &values) };
        }
    }
    let stride = weights.iter().map(PackedMatrix::outputs).max().unwrap_or(0);
    let mut out = Aligned::<f32>::zeroed(rows * stride);
    let epilogue = Epilogue::Store(Target { out: Shared::new(&mut out), first_row: 0, stride });
    let nanos = AtomicU64::new(0);
    crew.run(&|worker: Worker<'_>| {
        // To wake threads is not what is measured.
        worker.sync();
        let begun = Instant::now();
        for (weights, shared) in weights.iter().zip(&shared) {
            // SAFETY: the rows are quantised, this crew alone has the target, and a sync follows.
            unsafe { matmul(isa, weights, shared, rows, &epilogue, &worker) };
            worker.sync();
        }
        if worker.rank() == 0 {
            nanos.store(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    });
    nanos.into_inner() as f64 / 1e9
}
