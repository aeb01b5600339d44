//! An inference on memory that is lent: ONNX Runtime reads and writes it where it lies.

use crate::error::refused;
use duet_runtimes::{Buffer, Error, LentRows, Ports, Side, Tensors};
use ort::AsPointer;
use ort::session::Session;
use ort::value::{TensorRef, TensorRefMut};
use std::ffi::{CString, c_char};
use std::ptr;

/// The names of a graph's ports, as ONNX Runtime is given them.
#[derive(Debug)]
pub(crate) struct Names {
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

impl Names {
    /// # Errors
    /// [`Error::ZeroByte`] if a name is none of C's texts.
    pub(crate) fn of(ports: &Ports) -> Result<Self, Error> {
        let of = |side| {
            let names = ports.of(side).iter().map(|port| port.name.clone().unwrap_or_default());
            let texts = names.map(|name| CString::new(name).map_err(|_| Error::ZeroByte { what: "a port's name" }));
            texts.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { inputs: of(Side::Input)?, outputs: of(Side::Output)? })
    }
}

/// Runs the session on `tensors`, which are in the order of its ports, and returns the outputs.
///
/// # Errors
/// If the tensors do not fit, or the device fails.
pub(crate) fn run(
    session: &mut Session,
    ports: &Ports,
    names: &Names,
    mut tensors: Tensors,
) -> Result<Vec<Buffer>, Error> {
    check_count(ports, Side::Input, tensors.inputs.len())?;
    check_count(ports, Side::Output, tensors.outputs.len())?;
    let mut rows = LentRows::default();
    let mut inputs = Vec::with_capacity(tensors.inputs.len());
    for (index, buffer) in tensors.inputs.iter().enumerate() {
        let shape = rows.fit(&ports.inputs[index], Side::Input, index, buffer.len())?;
        inputs.push(TensorRef::from_array_view((shape, &buffer[..])).map_err(not_made)?);
    }
    let mut outputs = Vec::with_capacity(tensors.outputs.len());
    for (index, buffer) in tensors.outputs.iter_mut().enumerate() {
        let shape = rows.fit(&ports.outputs[index], Side::Output, index, buffer.len())?;
        outputs.push(TensorRefMut::from_array_view_mut((shape, &mut buffer[..])).map_err(not_made)?);
    }
    let read: Vec<_> = inputs.iter().map(|tensor| tensor.ptr()).collect();
    let mut written: Vec<_> = outputs.iter().map(|tensor| tensor.ptr().cast_mut()).collect();
    let (input_names, output_names) = (pointers(&names.inputs), pointers(&names.outputs));
    // `ort` runs sessions, too, but copies what it binds.
    // SAFETY: session, names and tensors live, and there are as many names as tensors on either side, which was checked
    // above. The tensors are views of memory that is borrowed until after the call: shared what is read, exclusively
    // what is written. The session is borrowed exclusively, so that it runs once at a time.
    let status = unsafe {
        (ort::api().Run)(
            session.ptr_mut(),
            ptr::null(),
            input_names.as_ptr(),
            read.as_ptr(),
            read.len(),
            output_names.as_ptr(),
            written.len(),
            written.as_mut_ptr(),
        )
    };
    // SAFETY: the status is what the call has handed over.
    unsafe { ort::Error::result_from_status(status) }.map_err(|error| refused("Run", error))?;
    drop((inputs, outputs));
    Ok(tensors.outputs)
}

fn not_made(error: ort::Error) -> Error {
    refused("CreateTensorWithDataAsOrtValue", error)
}

fn check_count(ports: &Ports, side: Side, given: usize) -> Result<(), Error> {
    let wanted = ports.of(side).len();
    if wanted == given { Ok(()) } else { Err(Error::Count { side, wanted, given }) }
}

fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}
