//! Graphs of one operation, for what a product cannot show.

use crate::compile::Ir;

/// A graph, and the constants that it refers to.
pub(super) struct Graph {
    xml: String,
    bin: Vec<u8>,
}

impl Graph {
    pub(super) fn ir(&self) -> Ir<'_> {
        Ir { xml: &self.xml, bin: &self.bin }
    }
}

/// `y = one + other`, of `rows` rows of four values.
pub(super) fn sum(rows: i64) -> Graph {
    let shape = [rows, 4];
    let layers = [parameter(0, "one", &shape), parameter(1, "other", &shape)];
    operation(&layers.concat(), "Add", "opset1", r#"<data auto_broadcast="numpy"/>"#, &[&shape, &shape], &shape, vec![])
}

/// `y = operation(x, numbers …)`, where `x` has rows that vary, of four values.
pub(super) fn shaped(name: &str, version: &str, numbers: &[Vec<i64>], result: &[i64]) -> Graph {
    let x = [-1, 4];
    let mut layers = parameter(0, "x", &x);
    let mut bin: Vec<u8> = Vec::new();
    let lengths: Vec<_> = numbers.iter().map(|numbers| [numbers.len() as i64]).collect();
    for (id, (numbers, shape)) in (1..).zip(numbers.iter().zip(&lengths)) {
        let (offset, size) = (bin.len(), size_of_val(numbers.as_slice()));
        bin.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        layers += &format!(
            r#"<layer id="{id}" name="c{id}" type="Const" version="opset1">
<data element_type="i64" shape="{}" offset="{offset}" size="{size}"/>
<output>{}</output></layer>"#,
            shape[0],
            port(0, "I64", "", shape)
        );
    }
    let mut inputs = vec![&x[..]];
    inputs.extend(lengths.iter().map(|shape| &shape[..]));
    let data = if name == "Reshape" { r#"<data special_zero="false"/>"# } else { "" };
    operation(&layers, name, version, data, &inputs, result, bin)
}

/// Layers 0, 1, … into one operation, and that into the result.
fn operation(
    layers: &str,
    name: &str,
    version: &str,
    data: &str,
    inputs: &[&[i64]],
    result: &[i64],
    bin: Vec<u8>,
) -> Graph {
    let count = inputs.len();
    let element = |index| if index == 0 || name == "Add" { "FP32" } else { "I64" };
    let ports: String = (0..).zip(inputs).map(|(index, shape)| port(index, element(index), "", shape)).collect();
    let edge = |id| format!(r#"<edge from-layer="{id}" from-port="0" to-layer="{count}" to-port="{id}"/>"#);
    let edges: String = (0..count).map(edge).collect();
    let (output, end) = (port(count, "FP32", r#" names="y""#, result), count + 1);
    let xml = format!(
        r#"<?xml version="1.0"?><net name="test" version="11"><layers>{layers}
<layer id="{count}" name="operation" type="{name}" version="{version}">{data}
<input>{ports}</input><output>{output}</output></layer>
<layer id="{end}" name="y" type="Result" version="opset1"><input>{}</input></layer></layers>
<edges>{edges}<edge from-layer="{count}" from-port="{count}" to-layer="{end}" to-port="0"/></edges></net>"#,
        port(0, "FP32", "", result)
    );
    Graph { xml, bin }
}

fn parameter(id: usize, name: &str, shape: &[i64]) -> String {
    // A parameter's shape has `?` where its port has -1.
    let sizes: Vec<_> = shape.iter().map(|&size| if size < 0 { "?".to_owned() } else { size.to_string() }).collect();
    let names = format!(r#" names="{name}""#);
    format!(
        r#"<layer id="{id}" name="{name}" type="Parameter" version="opset1"><data shape="{}" element_type="f32"/>
<output>{}</output></layer>"#,
        sizes.join(","),
        port(0, "FP32", &names, shape)
    )
}

fn port(id: usize, precision: &str, names: &str, shape: &[i64]) -> String {
    let dims: String = shape.iter().map(|size| format!("<dim>{size}</dim>")).collect();
    format!(r#"<port id="{id}" precision="{precision}"{names}>{dims}</port>"#)
}
