//! Graphs as bytes, and bytes that are gone while graphs still run.

use super::{cpu, exact, product};
use crate::compiled::CompiledGraph;
use crate::device::Device;
use crate::matmul::MatMul;
use crate::options::{Activations, CompileOptions, Pinning, Precision};
use duet_runtimes::Buffer;
use duet_runtimes::product::{reference, whole_numbers};
use std::num::{NonZeroU16, NonZeroU32};

const INPUTS: usize = 64;
const ROWS: usize = 16;

fn assert_right(graph: &CompiledGraph, weights: &[f32]) {
    let x = Buffer::from(&*whole_numbers(ROWS * INPUTS, 3));
    let mut y = Buffer::zeroed(ROWS * weights.len() / INPUTS);
    graph.request().unwrap().run(&[&x], &mut [&mut y]).unwrap();
    assert_eq!(*y, reference(&x, weights, INPUTS));
}

#[test]
fn an_exported_graph_computes_the_same_when_it_is_imported() {
    let Some(cpu) = cpu() else { return };
    let weights = whole_numbers(INPUTS * INPUTS, 5);
    for rows in [None, Some(ROWS)] {
        let graph = product(&cpu, rows, INPUTS, &weights);
        let imported = cpu.import(&graph.export().unwrap(), &exact()).unwrap();
        assert_eq!(imported.ports(), graph.ports());
        assert_right(&imported, &weights);
    }
}

/// A graph of dynamic shape packs its weights when it first runs, so that bytes that OpenVINO has only borrowed would
/// be read then.
#[test]
fn bytes_may_go_before_a_graph_first_runs() {
    let Some(cpu) = cpu() else { return };
    let weights = whole_numbers(INPUTS * INPUTS, 5);
    for rows in [None, Some(ROWS)] {
        let source = MatMul::new(rows, INPUTS, INPUTS, &weights);
        let mut bin = source.ir().bin.to_vec();
        let graph = cpu.compile(&crate::Ir { bin: &bin, ..source.ir() }, &exact()).unwrap();
        bin.fill(0xff);
        let mut blob = graph.export().unwrap();
        let imported = cpu.import(&blob, &exact()).unwrap();
        blob.fill(0xff);
        drop((bin, blob));
        assert_right(&graph, &weights);
        assert_right(&imported, &weights);
    }
}

fn told(graph: &CompiledGraph, options: &CompileOptions) -> Vec<(&'static str, String)> {
    let keys = options.properties().into_iter().map(|(key, _)| key);
    keys.map(|key| (key, graph.property(key).unwrap_or_default())).collect()
}

fn options(threads: u16) -> CompileOptions {
    CompileOptions {
        threads: NonZeroU16::new(threads),
        pinning: Some(Pinning::Floating),
        activations: Some(Activations::Groups(NonZeroU32::new(64).unwrap())),
        precision: Some(Precision::F32),
        streams: NonZeroU16::new(1),
        npu_front_end: None,
    }
}

/// OpenVINO forgets options when it exports, and takes none when it imports.
#[test]
fn options_are_honoured_by_graphs_that_are_compiled_and_imported() {
    let Some(cpu) = cpu() else { return };
    let source = MatMul::new(Some(ROWS), INPUTS, INPUTS, &whole_numbers(INPUTS * INPUTS, 5));
    for options in [options(1), options(2), CompileOptions { activations: Some(Activations::Floats), ..options(1) }] {
        let graph = cpu.compile(&source.ir(), &options).unwrap();
        assert_eq!(told(&graph, &options), options.properties());
        let imported = cpu.import(&graph.export().unwrap(), &options).unwrap();
        assert_eq!(told(&imported, &options), options.properties());
    }
}

#[test]
fn bytes_that_are_no_graph_are_refused() {
    let Some(cpu) = cpu() else { return };
    let blob = exported(&cpu);
    for bytes in [&[][..], b"no graph", &blob[..16]] {
        assert!(cpu.import(bytes, &CompileOptions::default()).is_err());
    }
}

fn exported(cpu: &Device) -> Vec<u8> {
    product(cpu, Some(ROWS), INPUTS, &whole_numbers(INPUTS * INPUTS, 5)).export().unwrap()
}
