//! A graph that grows node by node. Every node has one output, and every tensor a name of its own.

use super::grid::Grid;
use super::messages::{
    Attribute, AttributeType, Dimension, Element, Graph, Model, Node, OperatorSet, Shape, Size, Tensor, TensorType,
    ValueInfo, ValueType,
};
use crate::shape::Rows;

/// The name of a tensor of floats.
#[derive(Clone, Debug)]
pub(super) struct Floats(pub(super) String);

/// A tensor of integers, with the names of their scale and zero point.
#[derive(Clone, Debug)]
pub(super) struct Quantized {
    pub(super) integers: String,
    pub(super) scale: String,
    pub(super) zero_point: String,
    pub(super) grid: Grid,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting<'a> {
    Float(f32),
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
}

#[derive(Debug)]
pub(super) struct Writer {
    graph: Graph,
    /// Names given so far.
    names: usize,
}

impl Writer {
    pub(super) fn new(name: &str) -> Self {
        Self { graph: Graph { name: name.to_owned(), ..Graph::default() }, names: 0 }
    }

    /// The graph, in the operators of [`OPSET`].
    pub(super) fn finish(self) -> Model {
        Model {
            ir_version: IR_VERSION,
            producer_name: "duet".to_owned(),
            graph: Some(self.graph),
            opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        }
    }

    /// An input of the graph: `[rows, width]`.
    pub(super) fn input(&mut self, name: &str, rows: Rows, width: usize) -> Floats {
        self.graph.inputs.push(port(name, rows, width));
        Floats(name.to_owned())
    }

    /// An output of the graph: `[rows, width]`.
    pub(super) fn output(&mut self, name: &str, rows: Rows, width: usize, value: &Quantized) {
        self.graph.outputs.push(port(name, rows, width));
        self.push("DequantizeLinear", value.parts(), &[], name.to_owned());
    }

    /// Numbers that are known now, as bytes.
    pub(super) fn constant(&mut self, element: Element, dims: &[usize], bytes: Vec<u8>) -> String {
        let name = self.fresh("constant");
        let dims = dims.iter().map(|size| *size as i64).collect();
        self.graph.initializers.push(Tensor { dims, data_type: element.into(), name: name.clone(), raw_data: bytes });
        name
    }

    pub(super) fn floats(&mut self, dims: &[usize], values: &[f32]) -> String {
        self.constant(Element::Float, dims, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    pub(super) fn integers(&mut self, values: &[i64]) -> String {
        self.constant(Element::Int64, &[values.len()], values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// A node; its output has a new name.
    pub(super) fn node(&mut self, op: &str, inputs: &[&str], settings: &[(&str, Setting<'_>)]) -> Floats {
        let output = self.fresh(op);
        self.push(op, inputs.iter().map(|input| (*input).to_owned()).collect(), settings, output.clone());
        Floats(output)
    }

    /// The nearest integers.
    pub(super) fn quantize(&mut self, value: &Floats, grid: Grid) -> Quantized {
        let scale = self.floats(&[], &[grid.scale]);
        let zero_point = self.constant(Element::Uint16, &[], grid.zero_point.to_le_bytes().to_vec());
        let integers = self.node("QuantizeLinear", &[&value.0, &scale, &zero_point], &[]).0;
        Quantized { integers, scale, zero_point, grid }
    }

    /// Constants that are rounded as activations are.
    pub(super) fn quantized_constant(&mut self, dims: &[usize], values: &[f32], grid: Grid) -> Quantized {
        let scale = self.floats(&[], &[grid.scale]);
        let zero_point = self.constant(Element::Uint16, &[], grid.zero_point.to_le_bytes().to_vec());
        let bytes = values.iter().flat_map(|value| grid.round(*value).to_le_bytes()).collect();
        let integers = self.constant(Element::Uint16, dims, bytes);
        Quantized { integers, scale, zero_point, grid }
    }

    /// What the integers stand for. Every reader asks anew: toolchains want a node of its own for each.
    pub(super) fn dequantize(&mut self, value: &Quantized) -> Floats {
        let output = self.fresh("DequantizeLinear");
        self.push("DequantizeLinear", value.parts(), &[], output.clone());
        Floats(output)
    }

    fn push(&mut self, op: &str, inputs: Vec<String>, settings: &[(&str, Setting<'_>)], output: String) {
        let attributes = settings.iter().map(|(name, setting)| setting.attribute(name)).collect();
        let name = format!("{op}:{}", self.graph.nodes.len());
        self.graph.nodes.push(Node { inputs, outputs: vec![output], name, op_type: op.to_owned(), attributes });
    }

    /// Ports have no colon in their names.
    fn fresh(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}:{}", self.names)
    }
}

impl Quantized {
    fn parts(&self) -> Vec<String> {
        vec![self.integers.clone(), self.scale.clone(), self.zero_point.clone()]
    }
}

impl Setting<'_> {
    fn attribute(self, name: &str) -> Attribute {
        let name = name.to_owned();
        let of = |kind: AttributeType| Attribute { name, kind: kind.into(), ..Attribute::default() };
        match self {
            Self::Float(f) => Attribute { f: Some(f), ..of(AttributeType::Float) },
            Self::Int(i) => Attribute { i: Some(i), ..of(AttributeType::Int) },
            Self::Ints(ints) => Attribute { ints: ints.to_vec(), ..of(AttributeType::Ints) },
            Self::Text(s) => Attribute { s: Some(s.as_bytes().to_vec()), ..of(AttributeType::String) },
        }
    }
}

fn port(name: &str, rows: Rows, width: usize) -> ValueInfo {
    let rows = match rows {
        Rows::Static(rows) => Size::Value(i64::from(rows.0)),
        Rows::Dynamic => Size::Name("rows".to_owned()),
    };
    let dims = [rows, Size::Value(width as i64)].map(|size| Dimension { size: Some(size) });
    let tensor = TensorType { element: Element::Float.into(), shape: Some(Shape { dims: dims.to_vec() }) };
    ValueInfo { name: name.to_owned(), kind: Some(ValueType { tensor: Some(tensor) }) }
}

/// The first operator set with `RMSNormalization`.
const OPSET: i64 = 23;

/// The file format that came with that operator set.
const IR_VERSION: i64 = 11;
