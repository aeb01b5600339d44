//! The self-test of the HTP.

use crate::device::Device;
use duet_graphs::{Block, BlockBuilder, BlockError, Int8, LinearWeights, Rows, calibrate};
use duet_runtimes::{Error, GraphDevice, GraphSource, SelfTest, Square};
use duet_types::Tokens;

/// As [`duet_runtimes::self_test`], of a product in integers.
///
/// # Errors
/// Whatever keeps the device from it; [`Error::WrongResult`] if it computes something else.
pub fn self_test(device: &Device) -> Result<SelfTest, Error> {
    duet_runtimes::self_test(TOLERANCE, |square| {
        let block = block(square).expect("the product of every self-test is a block");
        let rows = Tokens(Square::SIZE as u32);
        let ranges = calibrate(&block, rows, &[&square.x]).expect("whole numbers have ranges");
        let source = GraphSource { block: &block, rows: Rows::Static(rows), ranges: Some(&ranges) };
        device.compile_graph(&device.emit(&source)?)
    })
}

/// The results are whole numbers up to 144. The emulator of some generations is off by twelve steps of their grid.
const TOLERANCE: f32 = 0.25;

fn block(square: &Square) -> Result<Block, BlockError> {
    let values = square.weights.iter().map(|weight| *weight as i8).collect();
    let weights = LinearWeights::int8(Square::SIZE, Int8 { values, scales: vec![1.0; Square::SIZE] });
    let (mut block, [x]) = BlockBuilder::new("self_test", [("x", Square::SIZE)]);
    let y = block.linear(x, weights.expect("whole numbers are weights"));
    block.output("y", y);
    block.finish()
}
