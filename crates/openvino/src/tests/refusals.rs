//! What OpenVINO refuses, in its own words.

use super::graphs::sum;
use super::{cpu, exact};
use crate::compile::{Ir, compile};
use crate::matmul::MatMul;
use duet_runtimes::product::whole_numbers;
use duet_runtimes::{Error, Side};

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let Some(cpu) = cpu() else { return };
    let error = cpu.runtime().device("TPU").unwrap_err();
    assert!(
        matches!(&error, Error::NoDevice { name, available, .. } if name == "TPU" && available.contains("CPU")),
        "{error}"
    );
    let product = MatMul::new(Some(16), 16, 16, &whole_numbers(256, 5));
    let error = compile(cpu.runtime(), "TPU", &product.ir(), &exact()).unwrap_err();
    assert!(error.to_string().contains("TPU"), "{error}");
    let error = compile(cpu.runtime(), "C\0PU", &product.ir(), &exact()).unwrap_err();
    assert!(matches!(error, Error::ZeroByte { .. }), "{error}");
}

#[test]
fn a_graph_that_is_none_is_refused() {
    let Some(cpu) = cpu() else { return };
    let product = MatMul::new(Some(16), 16, 16, &whole_numbers(256, 5));
    let (xml, bin) = (product.ir().xml, product.ir().bin);
    for (xml, bin) in [("", bin), ("<net/>", bin), ("no xml", bin), (&xml[..xml.len() / 2], bin), (xml, &bin[..1000])] {
        let error = cpu.compile(&Ir { xml, bin }, &exact()).unwrap_err();
        assert!(matches!(&error, Error::Refused { message, .. } if !message.is_empty()), "{error}");
    }
    cpu.compile(&Ir { xml, bin }, &exact()).unwrap();
}

#[test]
fn a_graph_to_which_floats_cannot_be_lent_is_refused() {
    let Some(cpu) = cpu() else { return };
    let xml = sum(16).ir().xml.replace("f32", "i32").replace("FP32", "I32");
    let error = cpu.compile(&Ir { xml: &xml, bin: &[] }, &exact()).unwrap_err();
    assert!(matches!(error, Error::Element { side: Side::Input, index: 0, .. }), "{error}");
}
