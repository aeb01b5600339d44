//! How long each token-wise node of a model takes on a GPU, with what is copied there and back:
//! `cargo run --release -p duet-gpu --example nodes -- MODEL.gguf [GPU]`.

use duet_gpu::{Adapters, GpuModel};
use duet_model::forward::TokenWise;
use duet_model::{LoadOptions, Model};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the path of a model is wanted")?;
    let name = arguments.next().unwrap_or_else(|| "gpu:0".to_owned());
    let model = Arc::new(Model::load(Path::new(&path), &LoadOptions::default(), &mut |_| {})?);
    let adapters = Adapters::look();
    let adapter = adapters.named(&name)?;
    println!("{adapter}");
    let began = Instant::now();
    let gpu = GpuModel::new(Arc::clone(&model), adapter)?;
    println!("{} of weights copied in {:.1} s", gpu.bytes(), began.elapsed().as_secs_f64());
    let (b, work) = (model.blueprint(), model.work());
    let (queries, width) = (b.heads * b.head_dim, (b.heads + 2 * b.kv_heads) * b.head_dim);
    println!("rows  qkv ms (GMAC/s)  feed-forward ms (GMAC/s)  head ms (GMAC/s)");
    for rows in [1, 4, 8, 16, 64, 256] {
        let residual = vec![0.5; rows * b.hidden];
        let attended = vec![0.5; rows * queries];
        let mut out = vec![0.0; rows * width.max(b.hidden).max(b.vocabulary)];
        let qkv = best(|| gpu.qkv(0, &residual, &mut out[..rows * width]));
        let ffn = best(|| gpu.feed_forward(0, &attended, &residual, &mut out[..rows * b.hidden]));
        let head = best(|| gpu.head(&residual, &mut out[..rows * b.vocabulary]));
        let shown = |(time, macs): (Duration, u64)| {
            format!("{:.2} ({:.2})", time.as_secs_f64() * 1e3, (macs * rows as u64) as f64 / time.as_secs_f64() / 1e9)
        };
        let times = [(qkv, work.qkv.macs), (ffn, work.ffn.macs), (head, work.head.macs)].map(shown);
        println!("{rows:>4}  {}", times.join("  "));
    }
    Ok(())
}

/// The best of a few: what disturbs makes it slower.
fn best<E: std::fmt::Debug>(mut run: impl FnMut() -> Result<(), E>) -> Duration {
    let mut once = || {
        let began = Instant::now();
        run().expect("the GPU computes");
        began.elapsed()
    };
    (0..4).map(|_| once()).min().unwrap_or_default()
}
