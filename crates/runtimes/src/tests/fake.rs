//! A device in plain Rust: products of rows of [`INPUTS`] values with the constants. It counts what it compiles, and
//! knows its own exports from other bytes.

use crate::buffer::{Buffer, Tensors};
use crate::error::{Error, Side};
use crate::graph_device::{Emitted, Graph, GraphDevice, GraphSource};
use crate::info::{DeviceInfo, DeviceKind};
use crate::port::{Dimension, Port, Ports};
use crate::product::reference;
use duet_graphs::LayoutRules;
use duet_types::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) const INPUTS: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Fake {
    info: DeviceInfo,
    toolchain: String,
    settings: String,
    compiled: Arc<AtomicU32>,
}

impl Fake {
    pub(super) fn new() -> Self {
        let info = DeviceInfo {
            name: "FAKE".to_owned(),
            kind: DeviceKind::Other,
            full_name: None,
            architecture: None,
            driver: Some("1".to_owned()),
            memory: None,
            peaks: Vec::new(),
        };
        Self { info, toolchain: "1.0".to_owned(), settings: String::new(), compiled: Arc::default() }
    }

    pub(super) fn with_driver(self, driver: &str) -> Self {
        Self { info: DeviceInfo { driver: Some(driver.to_owned()), ..self.info }, ..self }
    }

    pub(super) fn with_toolchain(self, version: &str) -> Self {
        Self { toolchain: version.to_owned(), ..self }
    }

    pub(super) fn with_settings(self, settings: &str) -> Self {
        Self { settings: settings.to_owned(), ..self }
    }

    /// How often something was compiled.
    pub(super) fn compiled(&self) -> u32 {
        self.compiled.load(Ordering::Relaxed)
    }

    fn graph(bytes: &[u8]) -> Box<dyn Graph> {
        let weights: Vec<_> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let port = |name: &str, width| Port {
            name: Some(name.to_owned()),
            shape: vec![Dimension::Any, Dimension::Fixed(width)],
        };
        let ports = Ports { inputs: vec![port("x", INPUTS)], outputs: vec![port("y", weights.len() / INPUTS)] };
        Box::new(FakeGraph { ports, weights, done: None })
    }
}

const SIGN: &[u8] = b"fake:";

/// What [`Fake`] compiles to a product with these weights.
pub(super) fn product(weights: &[f32]) -> Emitted {
    let constants = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
    Emitted { graph: b"product".to_vec(), constants }
}

impl GraphDevice for Fake {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn rules(&self) -> LayoutRules {
        LayoutRules::FREE
    }

    fn toolchain(&self) -> &str {
        &self.toolchain
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn tolerance(&self) -> f64 {
        0.0
    }

    /// Its graphs are products of weights that the tests make: see [`product`].
    fn emit(&self, source: &GraphSource<'_>) -> Result<Emitted, Error> {
        Err(Error::Uncalibrated { block: source.block.name().to_owned() })
    }

    fn compile_graph(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, Error> {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        Ok(Self::graph(&emitted.constants))
    }

    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn Graph>, Error> {
        let bytes = blob.strip_prefix(SIGN);
        bytes.map(Self::graph).ok_or_else(|| Error::refused("import_model", -1, "no export of mine".to_owned()))
    }
}

#[derive(Debug)]
struct FakeGraph {
    ports: Ports,
    weights: Vec<f32>,
    done: Option<Vec<Buffer>>,
}

impl Graph for FakeGraph {
    fn ports(&self) -> &Ports {
        &self.ports
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        let weights = self.weights.iter().flat_map(|weight| weight.to_le_bytes());
        Ok(SIGN.iter().copied().chain(weights).collect())
    }

    fn start(&mut self, mut tensors: Tensors) -> Result<(), Error> {
        let y = reference(&tensors.inputs[0], &self.weights, INPUTS);
        let given = tensors.outputs[0].len();
        if given != y.len() {
            return Err(Error::Length {
                side: Side::Output,
                index: 0,
                shape: self.ports.outputs[0].to_string(),
                given,
            });
        }
        tensors.outputs[0].copy_from_slice(&y);
        self.done = Some(tensors.outputs);
        Ok(())
    }

    fn wait(&mut self, _limit: Nanos) -> Result<Vec<Buffer>, Error> {
        self.done.take().ok_or(Error::NotStarted)
    }
}
