//! A compiled graph: its ports, its bytes for the next start of the program, and requests to run it with.

use crate::handle::Handle;
use crate::infer::InferRequest;
use crate::raw;
use crate::text::c_text;
use duet_runtimes::{Dimension, Port, Ports};
use duet_runtimes::{Error, Side};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// A graph as a device runs it. Clones share it.
#[derive(Clone, Debug)]
pub struct CompiledGraph {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: Handle<raw::CompiledModel>,
    ports: Ports,
    /// What it was imported from: it reads constants there. Dropped after the graph.
    _blob: Option<Box<[u8]>>,
}

impl CompiledGraph {
    /// Takes over what OpenVINO has compiled, or imported from `blob`.
    ///
    /// # Errors
    /// [`Error::Element`] or [`Error::Rank`] if memory cannot be lent to one of its ports.
    pub(crate) fn new(raw: Handle<raw::CompiledModel>, blob: Option<Box<[u8]>>) -> Result<Self, Error> {
        let functions = &raw.library().functions;
        let inputs = read_ports(
            &raw,
            Side::Input,
            functions.ov_compiled_model_inputs_size,
            functions.ov_compiled_model_input_by_index,
        )?;
        let outputs = read_ports(
            &raw,
            Side::Output,
            functions.ov_compiled_model_outputs_size,
            functions.ov_compiled_model_output_by_index,
        )?;
        Ok(Self { inner: Arc::new(Inner { raw, ports: Ports { inputs, outputs }, _blob: blob }) })
    }

    /// Its inputs and outputs.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.inner.ports
    }

    /// A request to run it with. Several may run side by side.
    ///
    /// # Errors
    /// If the device has no room for what lies between the graph's nodes.
    pub fn request(&self) -> Result<InferRequest, Error> {
        InferRequest::new(self)
    }

    /// Its bytes, which [`crate::Device::import`] takes on a machine with the same device, driver and runtime. OpenVINO
    /// writes them to a file, which is read back and removed.
    ///
    /// # Errors
    /// If the device does not export, or there is no room in the folder for temporary files.
    pub fn export(&self) -> Result<Vec<u8>, Error> {
        let file = tempfile::NamedTempFile::new().map_err(Error::Export)?;
        let path = c_path(file.path())?;
        let library = self.raw().library();
        // SAFETY: the graph lives, and the path outlives the call.
        let status = unsafe { (library.functions.ov_compiled_model_export_model)(self.raw().as_ptr(), path.as_ptr()) };
        library.check("ov_compiled_model_export_model", status)?;
        std::fs::read(file.path()).map_err(Error::Export)
    }

    /// What the graph says of a property of OpenVINO, such as `INFERENCE_NUM_THREADS`; absent if it has none such.
    #[must_use]
    pub fn property(&self, key: &str) -> Option<String> {
        let key = c_text("a property's key", key).ok()?;
        let library = self.raw().library();
        let mut value = ptr::null_mut();
        let get = library.functions.ov_compiled_model_get_property;
        // SAFETY: the graph lives, the key outlives the call, and `value` is a place for a pointer.
        let status = unsafe { get(self.raw().as_ptr(), key.as_ptr(), &mut value) };
        library.check("ov_compiled_model_get_property", status).ok()?;
        // SAFETY: on success OpenVINO has handed over a text.
        Some(unsafe { library.take_text(value) })
    }

    pub(crate) fn raw(&self) -> &Handle<raw::CompiledModel> {
        &self.inner.raw
    }
}

type PortCount = unsafe extern "C" fn(*const raw::CompiledModel, *mut usize) -> raw::Status;
type PortAt = unsafe extern "C" fn(*const raw::CompiledModel, usize, *mut *mut raw::ConstPort) -> raw::Status;

fn read_ports(
    graph: &Handle<raw::CompiledModel>,
    side: Side,
    count: PortCount,
    port_at: PortAt,
) -> Result<Vec<Port>, Error> {
    let library = graph.library();
    let mut ports = 0;
    // SAFETY: the graph lives, and `ports` is a place for the number.
    library.check("ov_compiled_model_ports", unsafe { count(graph.as_ptr(), &mut ports) })?;
    let read = (0..ports).map(|index| {
        // SAFETY: the graph lives, and OpenVINO hands over what it makes.
        let port =
            unsafe { Handle::made(library, "ov_compiled_model_port", |port| port_at(graph.as_ptr(), index, port))? };
        check_element(&port, side, index)?;
        let shape = shape(&port)?.ok_or(Error::Rank { side, index })?;
        Ok(Port { name: name(&port), shape })
    });
    read.collect()
}

fn check_element(port: &Handle<raw::ConstPort>, side: Side, index: usize) -> Result<(), Error> {
    let library = port.library();
    let mut code = 0;
    // SAFETY: the port lives, and `code` is a place for the number.
    let status = unsafe { (library.functions.ov_port_get_element_type)(port.as_ptr(), &mut code) };
    library.check("ov_port_get_element_type", status)?;
    if code == raw::F32 {
        Ok(())
    } else {
        Err(Error::Element { side, index, found: format!("number {code} of OpenVINO's") })
    }
}

fn name(port: &Handle<raw::ConstPort>) -> Option<String> {
    let library = port.library();
    let mut name = ptr::null_mut();
    // SAFETY: the port lives, and `name` is a place for a pointer.
    let status = unsafe { (library.functions.ov_port_get_any_name)(port.as_ptr(), &mut name) };
    // A port without a name is an error for OpenVINO; here it is called by its number.
    library.check("ov_port_get_any_name", status).ok()?;
    // SAFETY: on success OpenVINO has handed over a text.
    Some(unsafe { library.take_text(name) })
}

/// The shape; none if not even its rank is known.
fn shape(port: &Handle<raw::ConstPort>) -> Result<Option<Vec<Dimension>>, Error> {
    let library = port.library();
    let unknown = raw::Dimension { min: 0, max: -1 };
    let mut shape = raw::PartialShape { rank: unknown, dims: ptr::null_mut() };
    // SAFETY: the port lives, and `shape` is a place for its shape.
    let status = unsafe { (library.functions.ov_port_get_partial_shape)(port.as_ptr(), &mut shape) };
    library.check("ov_port_get_partial_shape", status)?;
    let read = (shape.rank.min == shape.rank.max).then(|| {
        let rank = usize::try_from(shape.rank.min).unwrap_or(0);
        // SAFETY: OpenVINO has written so many dimensions, or none and maybe a null pointer.
        (0..rank).map(|index| dimension(unsafe { *shape.dims.add(index) })).collect()
    });
    // SAFETY: the dimensions are OpenVINO's and are not used any more.
    unsafe { (library.functions.ov_partial_shape_free)(&mut shape) };
    Ok(read)
}

fn dimension(dimension: raw::Dimension) -> Dimension {
    match usize::try_from(dimension.min) {
        Ok(size) if dimension.min == dimension.max => Dimension::Fixed(size),
        _ => Dimension::Any,
    }
}

#[cfg(unix)]
fn c_path(path: &Path) -> Result<std::ffi::CString, Error> {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::ZeroByte { what: "a path" })
}

#[cfg(not(unix))]
fn c_path(path: &Path) -> Result<std::ffi::CString, Error> {
    c_text("a path", &path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_with_one_value_is_fixed() {
        let of = |min, max| dimension(raw::Dimension { min, max });
        assert_eq!(of(256, 256), Dimension::Fixed(256));
        assert_eq!((of(0, -1), of(1, 512), of(-1, -1)), (Dimension::Any, Dimension::Any, Dimension::Any));
    }
}
