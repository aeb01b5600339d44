//! Reads ONNX and computes it, by the documentation of its operators, but rounds no activation: what is checked of a
//! grid is that the numbers that come to it have a place on it.

use crate::arrays::Array;
use prost::Message;
use std::collections::BTreeMap;

/// A model, with the tags of `onnx.proto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Model {
    #[prost(message, required, tag = "7")]
    graph: Graph,
}

#[derive(Clone, PartialEq, Message)]
struct Graph {
    #[prost(message, repeated, tag = "1")]
    node: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<Port>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<Port>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(float, tag = "2")]
    f: f32,
    #[prost(int64, tag = "3")]
    i: i64,
    #[prost(bytes = "vec", tag = "4")]
    s: Vec<u8>,
    #[prost(int64, repeated, tag = "8")]
    ints: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Port {
    #[prost(string, tag = "1")]
    name: String,
}

impl Model {
    /// The outputs, by name.
    pub(crate) fn run(&self, inputs: &BTreeMap<String, Array>) -> BTreeMap<String, Array> {
        let mut computed: BTreeMap<&str, Array> = BTreeMap::new();
        for tensor in &self.graph.initializer {
            assert!(computed.insert(&tensor.name, tensor.read()).is_none(), "two constants of one name");
        }
        for port in &self.graph.input {
            assert!(computed.insert(&port.name, inputs[&port.name].clone()).is_none());
        }
        for node in &self.graph.node {
            let operands: Vec<&Array> = node.input.iter().map(|name| &computed[name.as_str()]).collect();
            let result = node.compute(&operands);
            assert!(computed.insert(&node.output[0], result).is_none(), "{} is written twice", node.output[0]);
        }
        self.graph.output.iter().map(|port| (port.name.clone(), computed[port.name.as_str()].clone())).collect()
    }
}

impl Node {
    fn compute(&self, operands: &[&Array]) -> Array {
        let x = operands[0];
        let integers = |index: usize| -> Vec<usize> { operands[index].values.iter().map(|v| *v as usize).collect() };
        match self.op_type.as_str() {
            "QuantizeLinear" => quantize(x, operands[1], operands[2]),
            "DequantizeLinear" => self.dequantize(operands),
            "Add" => x.with(operands[1], |a, b| a + b),
            "Mul" => x.with(operands[1], |a, b| a * b),
            "Sigmoid" => x.map(|x| 1.0 / (1.0 + (-x).exp())),
            "Gelu" => {
                assert_eq!(self.attribute("approximate").s, b"tanh");
                x.map(|x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh()))
            }
            "RMSNormalization" => {
                let epsilon = f64::from(self.attribute("epsilon").f);
                let root = x.map(|x| x * x).mean(1).map(|mean| (mean + epsilon).sqrt());
                x.with(&root, |x, root| x / root).with(operands[1], |x, weight| x * weight)
            }
            "Slice" => {
                let (start, end) = (integers(1)[0], integers(2)[0]);
                assert_eq!(integers(3), [1]);
                x.gather(vec![x.dims[0], end - start], |at| vec![at[0], start + at[1]])
            }
            "Transpose" => {
                x.transposed(&self.attribute("perm").ints.iter().map(|axis| *axis as usize).collect::<Vec<_>>())
            }
            "Unsqueeze" => x.reshaped([1, x.dims[0], 1, x.dims[1]].to_vec()),
            "Squeeze" => x.reshaped([x.dims[1], x.dims[3]].to_vec()),
            "Gemm" => {
                assert_eq!(self.attribute("transB").i, 1);
                operands.get(2).iter().fold(x.product(operands[1]), |product, bias| product.with(bias, |a, b| a + b))
            }
            "Conv" => convolution(operands),
            other => panic!("no node of ours is a {other}"),
        }
    }

    /// One scale for all, for each index of the first axis, or for each block along the second.
    fn dequantize(&self, operands: &[&Array]) -> Array {
        let (x, [scale, zero]) = (operands[0], [operands[1], operands[2]]);
        assert_eq!(scale.dims, zero.dims);
        if scale.dims.is_empty() {
            return x.with(zero, |x, zero| x - zero).with(scale, |x, scale| x * scale);
        }
        let block =
            self.attribute.iter().find(|attribute| attribute.name == "block_size").map(|found| found.i as usize);
        assert_eq!(self.attribute("axis").i, if block.is_some() { 1 } else { 0 });
        let spread = |array: &Array| {
            array.gather(x.dims.clone(), |at| match block {
                Some(block) => [&[at[0], at[1] / block], &at[2..]].concat(),
                None => vec![at[0]],
            })
        };
        x.with(&spread(zero), |x, zero| x - zero).with(&spread(scale), |x, scale| x * scale)
    }

    fn attribute(&self, name: &str) -> &Attribute {
        self.attribute.iter().find(|attribute| attribute.name == name).unwrap()
    }
}

/// Not rounded; but each number has to have an integer of 16 bits that is near: within a ten-thousandth of all of them,
/// since ranges were found in single precision.
fn quantize(x: &Array, scale: &Array, zero: &Array) -> Array {
    let (scale, zero) = (scale.values[0], zero.values[0]);
    x.map(|x| {
        let place = x / scale + zero;
        assert!((-6.5..65541.5).contains(&place), "{x} has no place on a grid of {scale} with zero at {zero}");
        place
    })
}

/// One row of points: a product for each point.
fn convolution(operands: &[&Array]) -> Array {
    let (x, weights) = (operands[0], operands[1]);
    assert_eq!(weights.dims[2..], [1, 1]);
    let (channels, points) = (x.dims[1], x.dims[3]);
    let weights = weights.reshaped(weights.dims[..2].to_vec());
    let product = x.reshaped(vec![channels, points]).transposed(&[1, 0]).product(&weights);
    let sum = operands.get(2).iter().fold(product, |product, bias| product.with(bias, |a, b| a + b));
    sum.transposed(&[1, 0]).reshaped(vec![1, weights.dims[0], 1, points])
}

impl Tensor {
    fn read(&self) -> Array {
        let dims: Vec<usize> = self.dims.iter().map(|size| *size as usize).collect();
        let count = dims.iter().product();
        let bytes = &self.raw_data;
        let nibbles = || bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).take(count);
        let values = match self.data_type {
            1 => bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
            2 => bytes.iter().copied().map(f64::from).collect(),
            3 => bytes.iter().map(|byte| f64::from(*byte as i8)).collect(),
            4 => bytes.chunks(2).map(|b| f64::from(u16::from_le_bytes(b.try_into().unwrap()))).collect(),
            6 => bytes.chunks(4).map(|b| f64::from(i32::from_le_bytes(b.try_into().unwrap()))).collect(),
            7 => bytes.chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
            21 => nibbles().map(f64::from).collect(),
            22 => nibbles().map(|nibble| f64::from(nibble) - if nibble > 7 { 16.0 } else { 0.0 }).collect(),
            other => panic!("no constant of ours has type {other}"),
        };
        Array::new(dims, values)
    }
}
