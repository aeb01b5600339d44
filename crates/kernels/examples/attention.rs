//! Speed of attention over deep contexts, by format and number of rows, on one thread:
//! `cargo run --release -p duet-kernels --example attention [TEXT]`, of the shapes whose line contains TEXT.
//!
//! Of each shape the median of several rounds in which the formats take turns; a ratio is the median of those within a
//! round, so that a machine that drifts does not show.

use duet_kernels::attention::{KvFormat, KvLayout, PAGE, PageMemory};
use duet_kernels::crew::Solo;
use duet_kernels::fused::{AttentionShape, BufferShape, Buffers, SequenceRows, attention};
use duet_kernels::isa::{Isa, IsaError};
use duet_kernels::quantize::Operands;
use std::time::Instant;

const ROUNDS: usize = 9;

/// Layers whose pages are read in turn, as a pass does: together more than a core's cache holds.
const LAYERS: usize = 12;

/// Key heads, query heads of each, and dimensions.
const SHAPES: [(&str, usize, usize, usize); 4] =
    [("SmolLM2 135M", 3, 3, 64), ("Qwen2.5 0.5B", 2, 7, 64), ("Qwen2.5 1.5B", 2, 6, 128), ("Gemma 3 270M", 1, 4, 256)];

fn main() -> Result<(), IsaError> {
    let isa = Isa::chosen()?;
    let wanted = std::env::args().nth(1).unwrap_or_default();
    println!(
        "{isa}, {LAYERS} layers; ns for a query head and position with keys and values of f16, int8 and int4, and the others' of f16's"
    );
    for (name, kv_heads, group, head_dim) in SHAPES {
        for context in [64, 512, 4096] {
            for rows in [1, 2, 4, 8, 128] {
                let label = format!("{name}, {context} positions, {rows} rows");
                if !label.contains(&wanted) {
                    continue;
                }
                let mut formats = KvFormat::ALL.map(|format| {
                    Case::new(KvLayout::uniform(LAYERS, kv_heads, head_dim, format), group, context, rows)
                });
                let mut seconds = [const { Vec::new() }; KvFormat::ALL.len()];
                let mut ratios = seconds.clone();
                for _ in 0..ROUNDS {
                    let round = formats.each_mut().map(|case| case.time(isa));
                    for (index, took) in round.into_iter().enumerate() {
                        seconds[index].push(took);
                        ratios[index].push(took / round[0]);
                    }
                }
                let ([f16, int8, int4], [_, eight, four]) = (seconds.map(median), ratios.map(median));
                println!("{label}: {f16:.2}, {int8:.2}, {int4:.2}: {eight:.2}, {four:.2}");
            }
        }
    }
    Ok(())
}

/// Some rows at the end of a context.
struct Case {
    layout: KvLayout,
    heads: usize,
    rows: usize,
    context: usize,
    pages: Vec<PageMemory>,
    buffers: Buffers,
}

impl Case {
    fn new(layout: KvLayout, group: usize, context: usize, rows: usize) -> Self {
        let heads = layout.kv_heads * group;
        let queries = heads * layout.head_dim;
        let qkv = queries + 2 * layout.kv_heads * layout.head_dim;
        let shape = BufferShape {
            hidden: 64,
            qkv,
            queries,
            ffn: 64,
            experts: None,
            angles: layout.head_dim / 2,
            layer_inputs: 0,
            operands: Operands::Bytes,
        };
        let mut buffers = Buffers::new(shape, rows);
        if let Some((_, projected)) = buffers.projected(0..rows) {
            for (i, x) in projected.iter_mut().enumerate() {
                *x = (i as f32 * 0.7).sin();
            }
        }
        let pages = PageMemory::slab(layout, context.div_ceil(PAGE));
        let mut case = Self { layout, heads, rows, context, pages, buffers };
        for (i, byte) in case.pages.iter_mut().flat_map(|page| page.bytes_mut()).enumerate() {
            // As half precision numbers below one, as bytes any.
            *byte = if i % 2 == 1 { 0x30 } else { (i * 37 % 251) as u8 };
        }
        case
    }

    /// Nanoseconds for a query head and position that is seen.
    fn time(&mut self, isa: Isa) -> f64 {
        let shape = AttentionShape { heads: self.heads, scale: 0.1, window: None, sinks: None, key_bias: None };
        let pages: Vec<&PageMemory> = self.pages.iter().collect();
        let products = (self.heads * self.rows * self.context * LAYERS) as f64;
        let repeat = (1e8 / products / self.layout.head_dim as f64).ceil() as usize;
        let start = Instant::now();
        for _ in 0..repeat {
            for layer in 0..LAYERS {
                let (rows, start) = (self.rows, self.context - self.rows);
                let sequence = SequenceRows { pages: pages.clone(), first_row: 0, rows, start, tree: None };
                attention(isa, &Solo, &shape, &mut self.buffers, &self.layout, layer, &[sequence]);
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / repeat as f64 / products
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
