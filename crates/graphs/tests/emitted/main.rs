//! What is emitted, read back and computed by readers that know nothing of the emitters.

mod arrays;
mod blocks;
mod ir;
mod onnx;

use arrays::Array;
use blocks::{Written, block, block_with_minima};
use duet_graphs::{LayoutRules, LinearForm, Port, Rows, calibrate, openvino, reference};
use duet_types::Tokens;
use ir::Network;
use onnx::Model;
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;

fn rules(linear: LinearForm) -> LayoutRules {
    LayoutRules { linear, ..LayoutRules::FREE }
}

type Arrays = BTreeMap<String, Array>;

fn inputs(written: &Written) -> Arrays {
    let input = |(port, values): (&Port, &Vec<f32>)| {
        let values = values.iter().copied().map(f64::from).collect();
        (port.name.clone(), Array::new(vec![written.rows.as_usize(), port.width], values))
    };
    written.block.inputs().iter().zip(&written.inputs).map(input).collect()
}

fn slices(written: &Written) -> Vec<&[f32]> {
    written.inputs.iter().map(Vec::as_slice).collect()
}

/// Every output is what the reference says, but for a ten-thousandth of the largest number.
fn check(written: &Written, found: &Arrays) -> Result<(), TestCaseError> {
    let expected = reference::run(&written.block, written.rows, &slices(written)).unwrap();
    prop_assert_eq!(found.len(), expected.len());
    for (port, expected) in written.block.outputs().iter().zip(&expected) {
        let found = &found[&port.name].values;
        let largest = expected.iter().fold(1e-2_f64, |largest, value| largest.max(f64::from(value.abs())));
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let is_near = (found - f64::from(*expected)).abs() <= 1e-4 * largest;
            prop_assert!(is_near, "{}: {found} is not {expected}", port.name);
        }
    }
    Ok(())
}

/// Static and dynamic rows, products and convolutions.
fn shapes(written: &Written) -> impl Iterator<Item = (Rows, LinearForm)> {
    let rows = [Rows::Static(written.rows), Rows::Dynamic];
    rows.into_iter().flat_map(|rows| [LinearForm::MatMul, LinearForm::Convolution].map(|form| (rows, form)))
}

proptest! {
    #[test]
    fn openvinos_network_computes_what_its_block_does(written in block_with_minima()) {
        for (rows, form) in shapes(&written) {
            let ir = openvino::emit(&written.block, rows, &rules(form)).unwrap();
            check(&written, &Network::read(&ir.xml).run(&ir.bin, &inputs(&written)))?;
        }
    }

    #[test]
    fn onnxs_model_computes_what_its_block_does(written in block()) {
        let ranges = calibrate(&written.block, written.rows, &slices(&written)).unwrap();
        for (rows, form) in shapes(&written) {
            let bytes = duet_graphs::onnx::emit(&written.block, &ranges, rows, &rules(form)).unwrap();
            let model = Model::decode(bytes.as_slice()).unwrap();
            check(&written, &model.run(&inputs(&written)))?;
        }
    }

    #[test]
    fn constants_are_the_same_for_every_shape(written in block_with_minima(), rows in 1_u32..500) {
        for form in [LinearForm::MatMul, LinearForm::Convolution] {
            let emit = |rows| openvino::emit(&written.block, rows, &rules(form)).unwrap();
            let (fixed, free) = (emit(Rows::Static(Tokens(rows))), emit(Rows::Dynamic));
            prop_assert_eq!(&fixed.bin, &free.bin);
            prop_assert_ne!(fixed.xml, free.xml);
        }
    }

    /// The reader checks offsets and sizes; this one, that nothing is in there twice.
    #[test]
    fn constants_take_little_more_than_the_block_says(written in block_with_minima()) {
        let ir = openvino::emit(&written.block, Rows::Dynamic, &LayoutRules::FREE).unwrap();
        let told = written.block.constant_bytes().0 as usize;
        // A norm has five more numbers, a product a few shapes, a slice its bounds; each may begin up to 63 bytes later.
        let beside = 8 * 72 * written.block.ops().len();
        prop_assert!(ir.bin.len() <= told + beside, "{} for {told}", ir.bin.len());
    }
}
