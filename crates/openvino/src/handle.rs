//! An object of OpenVINO that Rust owns: freed once, by the function that belongs to it.

use crate::library::Library;
use crate::raw::{CompiledModel, ConstPort, Core, InferRequest, Model, Status, Tensor};
use duet_runtimes::Error;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// The object. Nothing else frees it.
pub(crate) struct Handle<T: Object> {
    raw: NonNull<T>,
    library: Arc<Library>,
}

/// A kind of object.
pub(crate) trait Object {
    /// The function that frees it.
    fn free(library: &Library) -> unsafe extern "C" fn(*mut Self);
}

macro_rules! objects {
    ($($name:ident freed by $free:ident;)*) => {$(
        impl Object for $name {
            fn free(library: &Library) -> unsafe extern "C" fn(*mut Self) {
                library.functions.$free
            }
        }
    )*};
}

objects! {
    Core freed by ov_core_free;
    Model freed by ov_model_free;
    CompiledModel freed by ov_compiled_model_free;
    ConstPort freed by ov_output_const_port_free;
    Tensor freed by ov_tensor_free;
    InferRequest freed by ov_infer_request_free;
}

// SAFETY: OpenVINO's objects are counted references without ties to a thread.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: OpenVINO documents that its core may be used by several threads at once.
unsafe impl Sync for Handle<Core> {}
// SAFETY: as above; making requests, reading ports and exporting do not change a compiled graph.
unsafe impl Sync for Handle<CompiledModel> {}

impl<T: Object> Handle<T> {
    /// Takes over what `make` makes: it is given the place for the pointer, and returns a status.
    ///
    /// # Safety
    /// Where `make` returns OK, it has written an object there that nobody else frees.
    ///
    /// # Errors
    /// If it returns another status, or writes nothing.
    pub(crate) unsafe fn made(
        library: &Arc<Library>,
        call: &'static str,
        make: impl FnOnce(*mut *mut T) -> Status,
    ) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        library.check(call, make(&mut raw))?;
        let nothing = || Error::refused(call, 0, "it made nothing".to_owned());
        Ok(Self { raw: NonNull::new(raw).ok_or_else(nothing)?, library: Arc::clone(library) })
    }

    /// The pointer, for a call that reads or writes the object.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// The library that made it.
    pub(crate) fn library(&self) -> &Arc<Library> {
        &self.library
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: the object was made by this library, is freed here only, and nothing refers to it any more.
        unsafe { T::free(&self.library)(self.raw.as_ptr()) }
    }
}

impl<T: Object> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.raw)
    }
}
