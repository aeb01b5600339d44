//! The self-test of a device of OpenVINO.

use crate::device::Device;
use crate::graph_device::ReadyGraph;
use crate::matmul::MatMul;
use crate::options::CompileOptions;
use duet_runtimes::{Error, SelfTest, Square};

/// As [`duet_runtimes::self_test`], on a device that is left to itself. The result has to be exact.
///
/// # Errors
/// Whatever keeps the device from it; [`Error::WrongResult`] if it computes something else.
pub fn self_test(device: &Device) -> Result<SelfTest, Error> {
    duet_runtimes::self_test(0.0, |square| {
        let product = MatMul::new(Some(Square::SIZE), Square::SIZE, Square::SIZE, &square.weights);
        Ok(Box::new(ReadyGraph::new(device.compile(&product.ir(), &CompileOptions::default())?)))
    })
}
