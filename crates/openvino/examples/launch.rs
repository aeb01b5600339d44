//! What a device of OpenVINO costs beside computing: `cargo run --release -p duet-openvino --example launch [DEVICE]`.
//!
//! Compiling, exporting and importing a graph with 2.3 MiB of weights, static and dynamic, and the launch of one so
//! small that nothing else is left. Medians; the first of each is left out, since it prepares the device.

use duet_openvino::{
    BlobCache, BlobKey, BlobSource, Buffer, CompileOptions, Device, Digest, Error, GraphDevice, MatMul, Runtime,
    Tensors,
};
use duet_types::{Bytes, Nanos};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Error> {
    let runtime = Runtime::load()?;
    let name = std::env::args().nth(1).unwrap_or_else(|| "CPU".to_owned());
    let device = runtime.device(&name)?;
    println!("OpenVINO {}, {:?}", runtime.version(), device.info().full_name);
    let options = CompileOptions::one_core();
    for rows in [Some(256), Some(32), None] {
        graph_costs(&device, &options, rows)?;
    }
    launch_costs(&device, &options)
}

fn graph_costs(device: &Device, options: &CompileOptions, rows: Option<usize>) -> Result<(), Error> {
    const INPUTS: usize = 576;
    const OUTPUTS: usize = 1024;
    let source = MatMul::new(rows, INPUTS, OUTPUTS, &numbers(INPUTS * OUTPUTS));
    let compile = median(9, || device.compile(&source.ir(), options).map(drop))?;
    let graph = device.compile(&source.ir(), options)?;
    let export = median(9, || graph.export().map(drop))?;
    let blob = graph.export()?;
    let import = median(9, || device.import(&blob, options).map(drop))?;
    let folder = tempfile::tempdir().map_err(Error::Keep)?;
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let digest = Digest::of(b"example");
    let key = BlobKey::new(&BlobSource { model: digest, block: digest, shape: "x".to_owned() }, device);
    cache.put(&key, &blob).map_err(Error::Keep)?;
    let get = median(9, || {
        std::hint::black_box(cache.get(&key));
        Ok(())
    })?;
    let rows = rows.map_or("any".to_owned(), |rows| rows.to_string());
    println!(
        "rows {rows:>4}: compile {compile:.2?}, export {export:.2?}, import {import:.2?}, out of the cache {get:.2?}, {}",
        Bytes(blob.len() as u64)
    );
    Ok(())
}

fn launch_costs(device: &Device, options: &CompileOptions) -> Result<(), Error> {
    const SIZE: usize = 16;
    const SAMPLES: usize = 2001;
    for rows in [Some(SIZE), None] {
        let source = MatMul::new(rows, SIZE, SIZE, &numbers(SIZE * SIZE));
        let graph = device.compile(&source.ir(), options)?;
        let (x, mut y) = (Buffer::from(&*numbers(SIZE * SIZE)), Buffer::zeroed(SIZE * SIZE));
        let mut request = graph.request()?;
        let borrowed = median(SAMPLES, || request.run(&[&x], &mut [&mut y]))?;
        let mut ready = device.clone().with_options(*options).compile_graph(&source.emitted())?;
        let (x, mut outputs) = (Arc::new(x), vec![y]);
        let started = median(SAMPLES, || {
            let tensors = Tensors { inputs: vec![Arc::clone(&x)], outputs: std::mem::take(&mut outputs) };
            outputs = ready.run(tensors, PATIENCE)?;
            Ok(())
        })?;
        let rows = rows.map_or("any".to_owned(), |rows| rows.to_string());
        println!("rows {rows:>4}: launch and wait {borrowed:.2?}, with a watchdog {started:.2?}");
    }
    Ok(())
}

const PATIENCE: Nanos = Nanos(10_000_000_000);

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|index| ((index * 7919) % 255) as f32 / 127.0 - 1.0).collect()
}

/// The time in the middle of `samples`; one before them is not counted.
fn median(samples: usize, mut work: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    work()?;
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[samples / 2])
}
