//! Reads OpenVINO's representation and computes it, by the documentation of its operations.

use crate::arrays::Array;
use quick_xml::Reader;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesStart, Event};
use std::collections::BTreeMap;

type Attributes = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct Layer {
    kind: String,
    name: String,
    data: Attributes,
    /// Port number to names of the tensor and dimensions; `-1` is any.
    ports: BTreeMap<usize, (String, Vec<i64>)>,
}

/// Layers by number, and where each input port comes from: `(layer, port)`.
#[derive(Debug, Default)]
pub(crate) struct Network {
    layers: BTreeMap<usize, Layer>,
    edges: BTreeMap<(usize, usize), (usize, usize)>,
}

impl Network {
    pub(crate) fn read(xml: &str) -> Self {
        let mut reader = Reader::from_str(xml);
        reader.config_mut().trim_text(true);
        let (mut network, mut layer, mut port) = (Self::default(), 0, 0);
        loop {
            match reader.read_event().unwrap() {
                Event::Start(tag) | Event::Empty(tag) => network.open(&tag, &mut layer, &mut port),
                Event::Text(text) => {
                    let dim = text.parse().unwrap();
                    network.layers.get_mut(&layer).unwrap().ports.get_mut(&port).unwrap().1.push(dim);
                }
                Event::Eof => return network,
                _ => {}
            }
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>, layer: &mut usize, port: &mut usize) {
        let attributes = attributes(tag);
        let number = |name: &str| attributes[name].parse().unwrap();
        match tag.name().as_ref() {
            "net" => assert_eq!(attributes["version"], "11"),
            "layer" => {
                *layer = number("id");
                assert!(!self.layers.values().any(|layer| layer.name == attributes["name"]), "two layers of one name");
                let (kind, name) = (attributes["type"].clone(), attributes["name"].clone());
                assert!(self.layers.insert(*layer, Layer { kind, name, ..Layer::default() }).is_none());
            }
            "data" => self.layers.get_mut(layer).unwrap().data = attributes,
            "port" => {
                *port = number("id");
                let names = attributes.get("names").cloned().unwrap_or_default();
                let ports = &mut self.layers.get_mut(layer).unwrap().ports;
                assert!(ports.insert(*port, (names, Vec::new())).is_none());
            }
            "edge" => {
                let (from, to) = ((number("from-layer"), number("from-port")), (number("to-layer"), number("to-port")));
                assert!(self.edges.insert(to, from).is_none());
            }
            _ => {}
        }
    }

    /// The results, by the name of their tensor. Every array has the dimensions that its port says.
    pub(crate) fn run(&self, bin: &[u8], inputs: &BTreeMap<String, Array>) -> BTreeMap<String, Array> {
        let mut computed: BTreeMap<usize, Array> = BTreeMap::new();
        let mut results = BTreeMap::new();
        for (id, layer) in &self.layers {
            let sources = (0..).map_while(|port| self.edges.get(&(*id, port)));
            let operands: Vec<&Array> = sources.clone().map(|(from, _)| &computed[from]).collect();
            if layer.kind == "Result" {
                let (from, port) = self.edges[&(*id, 0)];
                assert!(results.insert(self.layers[&from].ports[&port].0.clone(), operands[0].clone()).is_none());
                continue;
            }
            let array = match layer.kind.as_str() {
                "Parameter" => inputs[&layer.ports[&0].0].clone(),
                "Const" => constant(&layer.data, bin),
                _ => layer.compute(&operands),
            };
            let (_, dims) = layer.ports.last_key_value().unwrap().1;
            assert_eq!(dims.len(), array.dims.len());
            assert!(dims.iter().zip(&array.dims).all(|(told, found)| *told == -1 || *told == *found as i64));
            computed.insert(*id, array);
        }
        results
    }
}

impl Layer {
    fn compute(&self, operands: &[&Array]) -> Array {
        let x = operands[0];
        let integers = |index: usize| -> Vec<usize> { operands[index].values.iter().map(|v| *v as usize).collect() };
        match self.kind.as_str() {
            "Convert" => x.clone(),
            "Add" => x.with(operands[1], |a, b| a + b),
            "Subtract" => x.with(operands[1], |a, b| a - b),
            "Multiply" => x.with(operands[1], |a, b| a * b),
            "Divide" => x.with(operands[1], |a, b| a / b),
            "Power" => x.with(operands[1], f64::powf),
            "Sqrt" => x.map(f64::sqrt),
            "ReduceMean" => x.mean(integers(1)[0]),
            "Swish" => x.map(|x| x / (1.0 + (-x).exp())),
            "Gelu" => {
                assert_eq!(self.data["approximation_mode"], "TANH");
                x.map(|x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh()))
            }
            "Slice" => {
                let (start, end, step, axis) = (integers(1)[0], integers(2)[0], integers(3)[0], integers(4)[0]);
                assert_eq!((step, axis), (1, 1));
                x.gather(vec![x.dims[0], end - start], |at| vec![at[0], start + at[1]])
            }
            "Reshape" => {
                let mut dims: Vec<i64> = operands[1].values.iter().map(|size| *size as i64).collect();
                if let Some(rest) = dims.iter().position(|size| *size == -1) {
                    dims[rest] = x.values.len() as i64 / -dims.iter().product::<i64>();
                }
                x.reshaped(dims.into_iter().map(|size| size as usize).collect())
            }
            "ReduceSum" => {
                let last = x.dims.len() - 1;
                assert_eq!((self.data["keep_dims"].as_str(), integers(1)), ("false", vec![last]));
                let count = x.dims[last] as f64;
                x.mean(last).map(|mean| mean * count).reshaped(x.dims[..last].to_vec())
            }
            "Transpose" => x.transposed(&integers(1)),
            "Unsqueeze" => {
                let mut dims = x.dims.clone();
                integers(1).into_iter().for_each(|axis| dims.insert(axis, 1));
                x.reshaped(dims)
            }
            "Squeeze" => {
                let mut dims = x.dims.clone();
                integers(1).into_iter().rev().for_each(|axis| assert_eq!(dims.remove(axis), 1));
                x.reshaped(dims)
            }
            "MatMul" => {
                assert_eq!((self.data["transpose_a"].as_str(), self.data["transpose_b"].as_str()), ("false", "true"));
                x.product(operands[1])
            }
            // One row of points: a product for each point.
            "Convolution" => {
                let (channels, points) = (x.dims[1], x.dims[3]);
                let weights = operands[1].reshaped(operands[1].dims[..2].to_vec());
                let rows = x.reshaped(vec![channels, points]).transposed(&[1, 0]).product(&weights);
                rows.transposed(&[1, 0]).reshaped(vec![1, weights.dims[0], 1, points])
            }
            other => panic!("no layer of ours is a {other}"),
        }
    }
}

fn constant(data: &Attributes, bin: &[u8]) -> Array {
    let number = |name: &str| -> usize { data[name].parse().unwrap() };
    let bytes = &bin[number("offset")..][..number("size")];
    let dims: Vec<usize> = data["shape"].split(',').map(|size| size.parse().unwrap()).collect();
    let nibbles = || bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).take(dims.iter().product());
    let values: Vec<f64> = match data["element_type"].as_str() {
        "f32" => bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        "i64" => bytes.chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
        "i8" => bytes.iter().map(|byte| f64::from(*byte as i8)).collect(),
        "u8" => bytes.iter().copied().map(f64::from).collect(),
        "u4" => nibbles().map(f64::from).collect(),
        "i4" => nibbles().map(|nibble| f64::from(nibble) - if nibble > 7 { 16.0 } else { 0.0 }).collect(),
        other => panic!("no constant of ours is {other}"),
    };
    Array::new(dims, values)
}

fn attributes(tag: &BytesStart<'_>) -> Attributes {
    let pair = |attribute: Attribute<'_>| (attribute.key.as_ref().to_owned(), attribute.value.into_owned());
    tag.attributes().map(|found| pair(found.unwrap())).collect()
}
