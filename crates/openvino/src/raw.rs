//! OpenVINO's C interface as it lies in memory: opaque objects, and the few structures that cross the border.
//!
//! The layouts are those of the C headers of OpenVINO 2026. Codes that OpenVINO returns are plain integers here: a Rust
//! enumeration would be undefined behaviour for a value that a newer version has added.

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            _bytes: [u8; 0],
            // It can neither be moved nor shared by what Rust knows of it.
            _marker: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque! {
    /// `ov_core_t`: the plugins and their settings.
    Core
    /// `ov_model_t`: a graph as it was read.
    Model
    /// `ov_compiled_model_t`: a graph as a device runs it.
    CompiledModel
    /// `ov_infer_request_t`: one inference at a time.
    InferRequest
    /// `ov_tensor_t`: memory with a shape.
    Tensor
    /// `ov_output_const_port_t`: an input or output of a compiled graph.
    ConstPort
}

/// `ov_status_e`.
pub(crate) type Status = c_int;

/// `ov_status_e::OK`.
pub(crate) const OK: Status = 0;

/// `ov_element_type_e`, as numbered since OpenVINO 2025.1. Older libraries lack functions that are bound here, so that
/// they are refused and their numbers never met.
pub(crate) type ElementType = u32;

/// `ov_element_type_e::F32`.
pub(crate) const F32: ElementType = 4;

/// `ov_element_type_e::U8`.
pub(crate) const U8: ElementType = 16;

/// `ov_shape_t`.
#[repr(C)]
pub(crate) struct Shape {
    pub(crate) rank: i64,
    pub(crate) dims: *mut i64,
}

/// `ov_dimension_t`: from `min` to `max`, where a `max` of -1 is without bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Dimension {
    pub(crate) min: i64,
    pub(crate) max: i64,
}

/// `ov_partial_shape_t`.
#[repr(C)]
pub(crate) struct PartialShape {
    pub(crate) rank: Dimension,
    pub(crate) dims: *mut Dimension,
}

/// `ov_property_t`.
#[repr(C)]
pub(crate) struct Property {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_void,
}

/// `ov_version_t`.
#[repr(C)]
pub(crate) struct Version {
    pub(crate) build_number: *const c_char,
    pub(crate) description: *const c_char,
}

/// `ov_available_devices_t`.
#[repr(C)]
pub(crate) struct AvailableDevices {
    pub(crate) devices: *mut *mut c_char,
    pub(crate) size: usize,
}

/// `ov_callback_t`. OpenVINO keeps its address, not its contents.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Callback {
    pub(crate) function: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) argument: *mut c_void,
}

// SAFETY: it is made once and only read then; what it points to is a `Completion`, which threads may share.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}
