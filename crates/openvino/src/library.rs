//! OpenVINO's C library, loaded: its functions, bound once.
//!
//! A library that lacks one of them is refused with the function's name, so that nothing is missing later. It is never
//! unloaded: its plugins start threads that outlive every object that they were started for.

use crate::raw::{
    AvailableDevices, Callback, CompiledModel, ConstPort, Core, ElementType, InferRequest, Model, OK, PartialShape,
    Property, Shape, Status, Tensor, Version,
};
use duet_runtimes::Error;
use duet_runtimes::{Found, OPENVINO};
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

/// The functions, and where they came from.
pub(crate) struct Library {
    pub(crate) functions: Functions,
    path: PathBuf,
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// What duet calls of OpenVINO. A pointer stays valid for the life of the process.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Safety
            /// What the library calls by these names must have these signatures.
            unsafe fn bind(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller vouches for the signature.
                        let symbol = unsafe { library.get(stringify!($name)) };
                        *symbol.map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }
    };
}

functions! {
    ov_get_openvino_version(*mut Version) -> Status;
    ov_version_free(*mut Version);
    ov_get_last_err_msg() -> *const c_char;
    ov_free(*const c_char);
    ov_core_create(*mut *mut Core) -> Status;
    ov_core_free(*mut Core);
    ov_core_get_available_devices(*const Core, *mut AvailableDevices) -> Status;
    ov_available_devices_free(*mut AvailableDevices);
    ov_core_get_property(*const Core, *const c_char, *const c_char, *mut *mut c_char) -> Status;
    ov_core_set_properties(*const Core, *const c_char, usize, *const Property) -> Status;
    ov_core_read_model_from_memory_buffer(*const Core, *const c_char, usize, *const Tensor, *mut *mut Model) -> Status;
    ov_core_compile_model_props(
        *const Core, *const Model, *const c_char, usize, *const Property, *mut *mut CompiledModel
    ) -> Status;
    ov_core_import_model(*const Core, *const c_char, usize, *const c_char, *mut *mut CompiledModel) -> Status;
    ov_model_free(*mut Model);
    ov_compiled_model_inputs_size(*const CompiledModel, *mut usize) -> Status;
    ov_compiled_model_outputs_size(*const CompiledModel, *mut usize) -> Status;
    ov_compiled_model_input_by_index(*const CompiledModel, usize, *mut *mut ConstPort) -> Status;
    ov_compiled_model_output_by_index(*const CompiledModel, usize, *mut *mut ConstPort) -> Status;
    ov_compiled_model_get_property(*const CompiledModel, *const c_char, *mut *mut c_char) -> Status;
    ov_compiled_model_export_model(*const CompiledModel, *const c_char) -> Status;
    ov_compiled_model_create_infer_request(*const CompiledModel, *mut *mut InferRequest) -> Status;
    ov_compiled_model_free(*mut CompiledModel);
    ov_output_const_port_free(*mut ConstPort);
    ov_port_get_any_name(*const ConstPort, *mut *mut c_char) -> Status;
    ov_port_get_element_type(*const ConstPort, *mut ElementType) -> Status;
    ov_port_get_partial_shape(*const ConstPort, *mut PartialShape) -> Status;
    ov_partial_shape_free(*mut PartialShape);
    ov_shape_free(*mut Shape) -> Status;
    ov_tensor_create(ElementType, Shape, *mut *mut Tensor) -> Status;
    ov_tensor_create_from_host_ptr(ElementType, Shape, *mut c_void, *mut *mut Tensor) -> Status;
    ov_tensor_data(*const Tensor, *mut *mut c_void) -> Status;
    ov_tensor_get_shape(*const Tensor, *mut Shape) -> Status;
    ov_tensor_free(*mut Tensor);
    ov_infer_request_set_input_tensor_by_index(*mut InferRequest, usize, *const Tensor) -> Status;
    ov_infer_request_set_output_tensor_by_index(*mut InferRequest, usize, *const Tensor) -> Status;
    ov_infer_request_get_output_tensor_by_index(*const InferRequest, usize, *mut *mut Tensor) -> Status;
    ov_infer_request_infer(*mut InferRequest) -> Status;
    ov_infer_request_start_async(*mut InferRequest) -> Status;
    ov_infer_request_wait(*mut InferRequest) -> Status;
    ov_infer_request_cancel(*mut InferRequest) -> Status;
    ov_infer_request_set_callback(*mut InferRequest, *const Callback) -> Status;
    ov_infer_request_free(*mut InferRequest);
}

impl Library {
    /// Loads what was found and binds the functions. Takes about 20 ms.
    ///
    /// # Errors
    /// [`Error::Load`] if the system cannot load it, [`Error::Symbol`] if it lacks a function.
    pub(crate) fn load(found: &Found) -> Result<Self, Error> {
        let path = found.path.clone();
        let library = open(&path).map_err(|reason| Error::Load {
            path: path.clone(),
            reason: reason.to_string(),
            requirements: OPENVINO.requirements,
        })?;
        // SAFETY: the signatures are those of OpenVINO's C headers. A library without `ov_core_compile_model_props` is
        // refused, so that it is one of 2026 or later, and its interface only grows.
        let bound = unsafe { Functions::bind(&library) };
        // The functions, and the threads that they start, need it for the life of the process.
        std::mem::forget(library);
        let functions = bound.map_err(|symbol| Error::Symbol {
            path: path.clone(),
            symbol,
            requirements: OPENVINO.requirements,
        })?;
        Ok(Self { functions, path })
    }

    /// The file that it was loaded from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An error for every status but OK, with OpenVINO's words.
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<(), Error> {
        if status == OK { Ok(()) } else { Err(Error::refused(call, status, self.last_message())) }
    }

    /// Takes over a text that OpenVINO has allocated.
    ///
    /// # Safety
    /// `text` is null, or a text that OpenVINO has handed over and that nobody else frees.
    pub(crate) unsafe fn take_text(&self, text: *const c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: it is a C text that is not freed before the next line.
        let owned = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: the caller vouches that it is ours to free.
        unsafe { (self.functions.ov_free)(text) };
        owned
    }

    fn last_message(&self) -> String {
        // SAFETY: it takes nothing, and returns null or a copy of its own.
        let message = unsafe { self.take_text((self.functions.ov_get_last_err_msg)()) };
        // The first line is a place in OpenVINO's source, the last ones say what is wrong.
        let lines: Vec<_> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said: Vec<_> = lines.iter().copied().filter(|line| !is_place(line)).collect();
        match (&*said, &*lines) {
            ([], []) => "OpenVINO gives no reason".to_owned(),
            ([], lines) => lines.join(" "),
            (said, _) => said.join(" "),
        }
    }
}

/// `Exception from src/inference/src/cpp/core.cpp:104:`
fn is_place(line: &str) -> bool {
    line.starts_with("Exception from ") && line.ends_with(':') || line.starts_with("Check '") && line.ends_with(':')
}

#[cfg(not(windows))]
fn open(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: loading runs the library's initialisers. It is the file that the user has installed as OpenVINO; its
    // neighbours are found through its own RPATH.
    unsafe { libloading::Library::new(path) }
}

#[cfg(windows)]
fn open(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::windows::{LOAD_WITH_ALTERED_SEARCH_PATH, Library};
    // SAFETY: as above; the flag makes the system look for its neighbours beside it.
    unsafe { Library::load_with_flags(path, LOAD_WITH_ALTERED_SEARCH_PATH) }.map(Into::into)
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Library({})", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_runtimes::Place;

    fn load(path: PathBuf) -> Error {
        Library::load(&Found { path, place: Place::System }).unwrap_err()
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = load(file.path().to_owned());
        assert!(matches!(&error, Error::Load { path, .. } if path == file.path()), "{error}");
    }

    /// Any library that is not OpenVINO will do; Rust's tests are linked with one.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_lacks_a_function_is_refused_with_its_name() {
        let error = load(PathBuf::from("libc.so.6"));
        assert!(matches!(error, Error::Symbol { symbol: "ov_get_openvino_version", .. }), "{error}");
    }

    #[test]
    fn places_in_the_source_are_not_what_is_said() {
        assert!(is_place("Exception from src/inference/src/cpp/core.cpp:104:"));
        assert!(!is_place("Device with \"NPX\" name is not registered in the OpenVINO Runtime"));
    }
}
