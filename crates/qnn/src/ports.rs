//! Inputs and outputs of a session.

use duet_runtimes::{Dimension, Error, Port, Ports, Side};
use ort::session::Session;
use ort::value::{Outlet, TensorElementType, ValueType};

/// The ports of a session, in its order.
///
/// # Errors
/// [`Error::Element`] if memory of floats cannot be lent to one of them.
pub(crate) fn ports(session: &Session) -> Result<Ports, Error> {
    let side = |side, outlets: &[Outlet]| -> Result<Vec<Port>, Error> {
        outlets.iter().enumerate().map(|(index, outlet)| port(side, index, outlet)).collect()
    };
    Ok(Ports { inputs: side(Side::Input, session.inputs())?, outputs: side(Side::Output, session.outputs())? })
}

fn port(side: Side, index: usize, outlet: &Outlet) -> Result<Port, Error> {
    let ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } = outlet.dtype() else {
        return Err(Error::Element { side, index, found: outlet.dtype().to_string() });
    };
    let dimension = |size: &i64| usize::try_from(*size).map_or(Dimension::Any, Dimension::Fixed);
    Ok(Port { name: Some(outlet.name().to_owned()), shape: shape.iter().map(dimension).collect() })
}
