//! OpenVINO's tensors: views of memory that is lent, and memory of OpenVINO's own.

use crate::handle::Handle;
use crate::library::Library;
use crate::raw;
use duet_runtimes::Error;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// Memory that is lent to OpenVINO: a view of it is made, nothing is copied.
pub(crate) struct Lent {
    pub(crate) start: *mut f32,
    pub(crate) len: usize,
}

/// OpenVINO's view of lent memory. It does not keep the memory alive.
#[derive(Debug)]
pub(crate) struct View {
    tensor: Handle<raw::Tensor>,
    /// As it was lent.
    shape: Vec<i64>,
    /// Where the memory begins. Only compared.
    address: usize,
}

impl Lent {
    /// For reading.
    pub(crate) fn shared(values: &[f32]) -> Self {
        Self { start: values.as_ptr().cast_mut(), len: values.len() }
    }

    /// For writing.
    pub(crate) fn exclusive(values: &mut [f32]) -> Self {
        Self { start: values.as_mut_ptr(), len: values.len() }
    }
}

impl View {
    /// A view of `lent`, which holds as many values as `shape` has. Touches no memory behind it.
    pub(crate) fn new(library: &Arc<Library>, lent: &Lent, mut shape: Vec<i64>) -> Result<Self, Error> {
        debug_assert_eq!(usize::try_from(shape.iter().product::<i64>()), Ok(lent.len));
        let create = library.functions.ov_tensor_create_from_host_ptr;
        let dims = dims(&mut shape);
        // SAFETY: the dimensions outlive the call, which copies them, and makes a tensor of the pointer without reading
        // what is there.
        let tensor = unsafe {
            Handle::made(library, "ov_tensor_create_from_host_ptr", |tensor| {
                create(raw::F32, dims, lent.start.cast(), tensor)
            })?
        };
        Ok(Self { tensor, shape, address: lent.start as usize })
    }

    pub(crate) fn as_ptr(&self) -> *const raw::Tensor {
        self.tensor.as_ptr()
    }

    /// Whether `result` is in the memory and fills it. A graph of dynamic shape decides itself how much comes out;
    /// where that is less, it shrinks the tensor.
    pub(crate) fn holds(&self, result: &Handle<raw::Tensor>) -> Result<Result<(), Vec<i64>>, Error> {
        let came = shape(result)?;
        let is_here = data(result)? as usize == self.address;
        Ok(if is_here && came == self.shape { Ok(()) } else { Err(came) })
    }

    /// The shape as it was lent.
    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }
}

fn shape(tensor: &Handle<raw::Tensor>) -> Result<Vec<i64>, Error> {
    let library = tensor.library();
    let mut shape = raw::Shape { rank: 0, dims: ptr::null_mut() };
    // SAFETY: the tensor lives, and `shape` is a place for its shape.
    let status = unsafe { (library.functions.ov_tensor_get_shape)(tensor.as_ptr(), &mut shape) };
    library.check("ov_tensor_get_shape", status)?;
    let rank = usize::try_from(shape.rank).unwrap_or(0);
    // SAFETY: OpenVINO has written so many dimensions, or none and maybe a null pointer.
    let read = (0..rank).map(|index| unsafe { *shape.dims.add(index) }).collect();
    // SAFETY: the dimensions are OpenVINO's and are not used any more.
    let status = unsafe { (library.functions.ov_shape_free)(&mut shape) };
    library.check("ov_shape_free", status)?;
    Ok(read)
}

/// Where its values are.
fn data(tensor: &Handle<raw::Tensor>) -> Result<*mut c_void, Error> {
    let library = tensor.library();
    let mut data = ptr::null_mut();
    // SAFETY: the tensor lives, and `data` is a place for a pointer.
    let status = unsafe { (library.functions.ov_tensor_data)(tensor.as_ptr(), &mut data) };
    library.check("ov_tensor_data", status)?;
    Ok(data)
}

/// A copy of `bytes` that OpenVINO owns and counts: a graph that refers to it keeps it, so that neither the caller's
/// bytes nor this handle need outlive the call that reads the graph.
pub(crate) fn owned_copy(library: &Arc<Library>, bytes: &[u8]) -> Result<Handle<raw::Tensor>, Error> {
    let functions = &library.functions;
    // No allocation is larger than that.
    let mut shape = [i64::try_from(bytes.len()).unwrap_or(i64::MAX)];
    let dims = dims(&mut shape);
    // SAFETY: the dimensions outlive the call, which copies them.
    let tensor = unsafe {
        Handle::made(library, "ov_tensor_create", |tensor| (functions.ov_tensor_create)(raw::U8, dims, tensor))?
    };
    if !bytes.is_empty() {
        let data = data(&tensor)?;
        // SAFETY: the tensor has `bytes.len()` bytes at `data`, which nobody else refers to yet.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len()) };
    }
    Ok(tensor)
}

fn dims(shape: &mut [i64]) -> raw::Shape {
    raw::Shape { rank: i64::try_from(shape.len()).unwrap_or(i64::MAX), dims: shape.as_mut_ptr() }
}
