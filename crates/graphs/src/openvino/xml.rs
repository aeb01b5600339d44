//! A network as text.

use super::network::{Dim, Element, Layer, Network};
use quick_xml::Writer;
use std::io;

type Xml = Writer<Vec<u8>>;

/// The layers and the edges between them.
pub(super) fn write(network: &Network) -> String {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 1);
    write_network(&mut xml, network).expect("memory takes what is written to it");
    String::from_utf8(xml.into_inner()).expect("names and numbers are text")
}

fn write_network(xml: &mut Xml, network: &Network) -> io::Result<()> {
    let attributes = [("name", network.name()), ("version", "11")];
    xml.create_element("net").with_attributes(attributes).write_inner_content(|xml| {
        xml.create_element("layers").write_inner_content(|xml| {
            network.layers().iter().enumerate().try_for_each(|(id, layer)| write_layer(xml, id, layer))
        })?;
        xml.create_element("edges").write_inner_content(|xml| {
            network.layers().iter().enumerate().try_for_each(|(id, layer)| write_edges(xml, network, id, layer))
        })?;
        Ok(())
    })?;
    Ok(())
}

fn write_layer(xml: &mut Xml, id: usize, layer: &Layer) -> io::Result<()> {
    let name = layer.name.clone().unwrap_or_else(|| format!("{}:{id}", layer.kind.name));
    let id = id.to_string();
    let attributes = [("id", id.as_str()), ("name", &name), ("type", layer.kind.name), ("version", layer.kind.opset)];
    xml.create_element("layer").with_attributes(attributes).write_inner_content(|xml| {
        if !layer.attributes.is_empty() {
            let attributes = layer.attributes.iter().map(|(name, value)| (*name, value.as_str()));
            xml.create_element("data").with_attributes(attributes).write_empty()?;
        }
        write_ports(xml, layer)
    })?;
    Ok(())
}

fn write_ports(xml: &mut Xml, layer: &Layer) -> io::Result<()> {
    if !layer.inputs.is_empty() {
        xml.create_element("input").write_inner_content(|xml| {
            let mut ports = layer.inputs.iter().enumerate();
            ports.try_for_each(|(id, input)| write_port(xml, id, (input.element, &input.dims), None))
        })?;
    }
    if let Some((element, dims)) = &layer.output {
        xml.create_element("output").write_inner_content(|xml| {
            write_port(xml, layer.inputs.len(), (*element, dims), layer.tensor_name.as_deref())
        })?;
    }
    Ok(())
}

fn write_port(xml: &mut Xml, id: usize, (element, dims): (Element, &[Dim]), name: Option<&str>) -> io::Result<()> {
    let id = id.to_string();
    let mut port =
        xml.create_element("port").with_attributes([("id", id.as_str()), ("precision", element.precision())]);
    if let Some(name) = name {
        port = port.with_attribute(("names", name));
    }
    if dims.is_empty() {
        port.write_empty()?;
        return Ok(());
    }
    port.write_inner_content(|xml| {
        dims.iter().try_for_each(|dim| {
            let text = match dim {
                Dim::Of(size) => size.to_string(),
                Dim::Any => "-1".to_owned(),
            };
            xml.create_element("dim").write_text_content(quick_xml::events::BytesText::new(&text)).map(|_| ())
        })
    })?;
    Ok(())
}

fn write_edges(xml: &mut Xml, network: &Network, id: usize, layer: &Layer) -> io::Result<()> {
    for (port, input) in layer.inputs.iter().enumerate() {
        let from_port = network.layers()[input.layer].inputs.len();
        let numbers = [input.layer, from_port, id, port].map(|number| number.to_string());
        let names = ["from-layer", "from-port", "to-layer", "to-port"];
        let attributes = names.into_iter().zip(numbers.iter().map(String::as_str));
        xml.create_element("edge").with_attributes(attributes).write_empty()?;
    }
    Ok(())
}
