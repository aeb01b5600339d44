//! The smallest graph with weights: `y = x · wᵀ`, to test a device and to measure what a launch costs.

use crate::compile::Ir;
use duet_runtimes::Emitted;

/// A product of rows with a matrix, as a graph of one operation: `x` goes in, `y` comes out.
#[derive(Clone, Debug)]
pub struct MatMul {
    xml: String,
    bin: Vec<u8>,
}

impl MatMul {
    /// Of `rows` rows, or of any number where there are none given. `weights` are `outputs` rows of `inputs` values.
    ///
    /// # Panics
    /// If there are more or fewer weights.
    #[must_use]
    pub fn new(rows: Option<usize>, inputs: usize, outputs: usize, weights: &[f32]) -> Self {
        assert_eq!(weights.len(), inputs * outputs, "weights fill their matrix");
        let size = |rows: Option<usize>, none: &str| rows.map_or(none.to_owned(), |rows| rows.to_string());
        let (shape, dim) = (size(rows, "?"), size(rows, "-1"));
        let tensor = |first: &str, second: usize| format!("<dim>{first}</dim><dim>{second}</dim>");
        let (x, w) = (tensor(&dim, inputs), tensor(&outputs.to_string(), inputs));
        let y = tensor(&dim, outputs);
        let bytes = size_of_val(weights);
        let xml = format!(
            r#"<?xml version="1.0"?>
<net name="matmul" version="11">
<layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="{shape},{inputs}" element_type="f32"/>
<output><port id="0" precision="FP32" names="x">{x}</port></output></layer>
<layer id="1" name="w" type="Const" version="opset1">
<data element_type="f32" shape="{outputs},{inputs}" offset="0" size="{bytes}"/>
<output><port id="0" precision="FP32">{w}</port></output></layer>
<layer id="2" name="product" type="MatMul" version="opset1"><data transpose_a="false" transpose_b="true"/>
<input><port id="0" precision="FP32">{x}</port><port id="1" precision="FP32">{w}</port></input>
<output><port id="2" precision="FP32" names="y">{y}</port></output></layer>
<layer id="3" name="y" type="Result" version="opset1"><input><port id="0" precision="FP32">{y}</port></input></layer>
</layers>
<edges>
<edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
</edges>
</net>
"#
        );
        Self { xml, bin: weights.iter().flat_map(|weight| weight.to_le_bytes()).collect() }
    }

    /// The graph.
    #[must_use]
    pub fn ir(&self) -> Ir<'_> {
        Ir { xml: &self.xml, bin: &self.bin }
    }

    /// The graph, as devices emit blocks.
    #[must_use]
    pub fn emitted(&self) -> Emitted {
        Emitted { graph: self.xml.clone().into_bytes(), constants: self.bin.clone() }
    }
}
