//! The messages of ONNX that a model of ours needs, with their tags in `onnx.proto`. (ONNX IR specification)

use prost::{Enumeration, Message, Oneof};

/// A model: one graph, in the operators of one set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(int64, tag = "1")]
    pub(super) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(super) producer_name: String,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<OperatorSet>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSet {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
}

/// An attribute has one of the values, and its type says which.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, optional, tag = "2")]
    pub(super) f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub(super) i: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) s: Option<Vec<u8>>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub(super) ints: Vec<i64>,
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub(super) kind: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
pub(super) enum AttributeType {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Ints = 7,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(enumeration = "Element", tag = "2")]
    pub(super) data_type: i32,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub(super) raw_data: Vec<u8>,
}

/// What a tensor's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
pub(super) enum Element {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int32 = 6,
    Int64 = 7,
    Uint4 = 21,
    Int4 = 22,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) kind: Option<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorType {
    #[prost(enumeration = "Element", tag = "1")]
    pub(super) element: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dims: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Dimension {
    #[prost(oneof = "Size", tags = "1, 2")]
    pub(super) size: Option<Size>,
}

/// A number, or a name for one that is known when the model runs.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Size {
    #[prost(int64, tag = "1")]
    Value(i64),
    #[prost(string, tag = "2")]
    Name(String),
}
