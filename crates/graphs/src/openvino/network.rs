//! Layers and the tensors between them, before they are text.
//!
//! Every layer has at most one output, so a tensor is its layer; its port is the one after the layer's inputs. Layers
//! are in an order in which they can run, and a layer's number is its place.

/// What a tensor's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    I8,
    U8,
    I4,
    U4,
    I64,
}

/// One dimension of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dim {
    Of(usize),
    /// Known when the graph runs.
    Any,
}

/// What comes out of a layer.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) layer: usize,
    pub(super) element: Element,
    pub(super) dims: Vec<Dim>,
}

/// An operation of some operation set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) opset: &'static str,
}

/// A node of the network.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) kind: Kind,
    /// Absent where the number says enough.
    pub(super) name: Option<String>,
    pub(super) attributes: Vec<(&'static str, String)>,
    pub(super) inputs: Vec<Tensor>,
    pub(super) output: Option<(Element, Vec<Dim>)>,
    /// What callers find the output by, where it is a port of the block.
    pub(super) tensor_name: Option<String>,
}

/// A network that grows layer by layer.
#[derive(Debug)]
pub(super) struct Network {
    name: String,
    layers: Vec<Layer>,
    constants: Vec<u8>,
}

impl Network {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), layers: Vec::new(), constants: Vec::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub(super) fn into_constants(self) -> Vec<u8> {
        self.constants
    }

    /// An input of the network.
    pub(super) fn parameter(&mut self, name: &str, dims: Vec<Dim>) -> Tensor {
        let attributes = vec![("shape", shape_text(&dims)), ("element_type", Element::F32.name().to_owned())];
        let tensor = self.push(Kind::PARAMETER, attributes, Vec::new(), Element::F32, dims);
        self.layers[tensor.layer].name = Some(name.to_owned());
        self.name_tensor(&tensor, name);
        tensor
    }

    /// An output of the network.
    pub(super) fn result(&mut self, name: &str, tensor: &Tensor) {
        self.name_tensor(tensor, name);
        let (kind, inputs) = (Kind::RESULT, vec![tensor.clone()]);
        self.layers.push(Layer { kind, name: None, attributes: Vec::new(), inputs, output: None, tensor_name: None });
    }

    /// Numbers that are known now. They begin at a multiple of 64 bytes.
    pub(super) fn constant(&mut self, element: Element, dims: &[usize], bytes: impl IntoIterator<Item = u8>) -> Tensor {
        let offset = self.constants.len().next_multiple_of(ALIGNMENT);
        self.constants.resize(offset, 0);
        self.constants.extend(bytes);
        let size = self.constants.len() - offset;
        let dims: Vec<Dim> = dims.iter().copied().map(Dim::Of).collect();
        let attributes = vec![
            ("element_type", element.name().to_owned()),
            ("shape", shape_text(&dims)),
            ("offset", offset.to_string()),
            ("size", size.to_string()),
        ];
        self.push(Kind::CONST, attributes, Vec::new(), element, dims)
    }

    pub(super) fn floats(&mut self, dims: &[usize], values: &[f32]) -> Tensor {
        self.constant(Element::F32, dims, values.iter().flat_map(|value| value.to_le_bytes()))
    }

    pub(super) fn integers(&mut self, values: &[i64]) -> Tensor {
        self.constant(Element::I64, &[values.len()], values.iter().flat_map(|value| value.to_le_bytes()))
    }

    /// A layer that computes numbers of the same element as its first input.
    pub(super) fn layer(
        &mut self,
        kind: Kind,
        attributes: &[(&'static str, &str)],
        inputs: &[&Tensor],
        dims: Vec<Dim>,
    ) -> Tensor {
        let attributes = attributes.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let element = inputs.first().map_or(Element::F32, |input| input.element);
        self.push(kind, attributes, inputs.iter().copied().cloned().collect(), element, dims)
    }

    /// The numbers of a tensor as single precision.
    pub(super) fn converted(&mut self, input: &Tensor) -> Tensor {
        let attributes = vec![("destination_type", Element::F32.name().to_owned())];
        self.push(Kind::CONVERT, attributes, vec![input.clone()], Element::F32, input.dims.clone())
    }

    fn push(
        &mut self,
        kind: Kind,
        attributes: Vec<(&'static str, String)>,
        inputs: Vec<Tensor>,
        element: Element,
        dims: Vec<Dim>,
    ) -> Tensor {
        let output = Some((element, dims.clone()));
        self.layers.push(Layer { kind, name: None, attributes, inputs, output, tensor_name: None });
        Tensor { layer: self.layers.len() - 1, element, dims }
    }

    fn name_tensor(&mut self, tensor: &Tensor, name: &str) {
        self.layers[tensor.layer].tensor_name = Some(name.to_owned());
    }
}

impl Element {
    /// As attributes say it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I4 => "i4",
            Self::U4 => "u4",
            Self::I64 => "i64",
        }
    }

    /// As ports say it.
    pub(super) fn precision(self) -> &'static str {
        match self {
            Self::F32 => "FP32",
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::I4 => "I4",
            Self::U4 => "U4",
            Self::I64 => "I64",
        }
    }
}

impl Kind {
    pub(super) const PARAMETER: Self = Self::first("Parameter");
    pub(super) const RESULT: Self = Self::first("Result");
    pub(super) const CONST: Self = Self::first("Const");
    pub(super) const CONVERT: Self = Self::first("Convert");

    /// Of the first operation set.
    pub(super) const fn first(name: &'static str) -> Self {
        Self { name, opset: "opset1" }
    }
}

fn shape_text(dims: &[Dim]) -> String {
    let texts: Vec<String> = dims
        .iter()
        .map(|dim| match dim {
            Dim::Of(size) => size.to_string(),
            Dim::Any => "?".to_owned(),
        })
        .collect();
    texts.join(",")
}

/// What vector instructions like best; the toolchain maps the constants and reads them in place.
const ALIGNMENT: usize = 64;
