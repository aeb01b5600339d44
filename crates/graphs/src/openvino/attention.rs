//! A chunk's attention as layers: heads apart, scores, mask, softmax, and values weighted by it.

use super::lower::binary;
use super::network::{Dim, Kind, Network, Tensor};
use crate::attention::{ChunkAttention, port};

/// The attention as a network.
pub(super) fn lower(shape: &ChunkAttention) -> Network {
    let mut network = Network::new("attention");
    let (rows, context, width) = (shape.rows.as_usize(), shape.context.as_usize(), shape.head_dim);
    let (kv, group) = (shape.kv_heads, shape.heads / shape.kv_heads);
    let mut input = |name: &str, dims: [usize; 2]| network.parameter(name, dims.map(Dim::Of).to_vec());
    let queries = input(port::QUERIES, [rows, shape.queries()]);
    let keys = input(port::KEYS, [context, shape.keys()]);
    let values = input(port::VALUES, [context, shape.keys()]);
    let mask = input(port::MASK, [rows, context]);
    let net = &mut network;
    // [rows, kv, group, width] to [kv, group, rows, width]; keys and values to [kv, 1, context, width].
    let queries = transposed(net, &queries, &[rows, kv, group, width], [1, 2, 0, 3]);
    let keys = transposed(net, &keys, &[context, kv, 1, width], [1, 2, 0, 3]);
    let values = transposed(net, &values, &[context, kv, 1, width], [1, 2, 0, 3]);
    let scale = net.floats(&[1, 1, 1, 1], &[shape.scale]);
    let queries = binary(net, "Multiply", &queries, &scale);
    let scores = product(net, [&queries, &keys], "true", &[kv, group, rows, context]);
    let scores = binary(net, "Add", &scores, &mask);
    let softmax = Kind { name: "SoftMax", opset: "opset8" };
    let weights = net.layer(softmax, &[("axis", "-1")], &[&scores], scores.dims.clone());
    let found = product(net, [&weights, &values], "false", &[kv, group, rows, width]);
    let order = net.integers(&[2, 0, 1, 3]);
    let back = [rows, kv, group, width].map(Dim::Of).to_vec();
    let found = net.layer(Kind::first("Transpose"), &[], &[&found, &order], back);
    let attended = reshaped(net, &found, &[rows, shape.queries()]);
    network.result(port::ATTENDED, &attended);
    network
}

fn product(network: &mut Network, [left, right]: [&Tensor; 2], transposed: &'static str, dims: &[usize]) -> Tensor {
    let attributes = [("transpose_a", "false"), ("transpose_b", transposed)];
    network.layer(Kind::first("MatMul"), &attributes, &[left, right], dims.iter().copied().map(Dim::Of).collect())
}

fn reshaped(network: &mut Network, x: &Tensor, dims: &[usize]) -> Tensor {
    let sizes: Vec<i64> = dims.iter().map(|&size| size as i64).collect();
    let sizes = network.integers(&sizes);
    let dims = dims.iter().copied().map(Dim::Of).collect();
    network.layer(Kind::first("Reshape"), &[("special_zero", "false")], &[x, &sizes], dims)
}

/// Apart in `dims`, these in another order.
fn transposed(network: &mut Network, x: &Tensor, dims: &[usize; 4], order: [usize; 4]) -> Tensor {
    let apart = reshaped(network, x, dims);
    let axes = network.integers(&order.map(|axis| axis as i64));
    let dims = order.map(|axis| Dim::Of(dims[axis])).to_vec();
    network.layer(Kind::first("Transpose"), &[], &[&apart, &axes], dims)
}
