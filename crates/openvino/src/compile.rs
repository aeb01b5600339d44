//! Compiling graphs for a device, and importing graphs that were compiled before.

use crate::compiled::CompiledGraph;
use crate::handle::Handle;
use crate::library::Library;
use crate::options::CompileOptions;
use crate::raw;
use crate::runtime::Runtime;
use crate::tensor::owned_copy;
use crate::text::c_text;
use duet_runtimes::Error;
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// A graph in OpenVINO's intermediate representation, version 11.
#[derive(Clone, Copy, Debug)]
pub struct Ir<'a> {
    /// The graph (`.xml`).
    pub xml: &'a str,
    /// The constants that it refers to (`.bin`); OpenVINO takes a copy.
    pub bin: &'a [u8],
}

/// Compiles `ir` for the device called `device`.
pub(crate) fn compile(
    runtime: &Runtime,
    device: &str,
    ir: &Ir<'_>,
    options: &CompileOptions,
) -> Result<CompiledGraph, Error> {
    let (library, core) = (runtime.library(), runtime.core());
    let model = read(library, core, ir)?;
    let device = c_text("a device's name", device)?;
    let properties = Properties::of(options)?;
    let list = properties.list();
    let compile = library.functions.ov_core_compile_model_props;
    // SAFETY: core and model live; the name and the properties outlive the call, which copies them.
    let raw = unsafe {
        Handle::made(library, "compile_model", |graph| {
            compile(core.as_ptr(), model.as_ptr(), device.as_ptr(), list.len(), list.as_ptr(), graph)
        })?
    };
    CompiledGraph::new(raw, None)
}

/// Takes up a graph that was compiled for the device called `device`.
pub(crate) fn import(
    runtime: &Runtime,
    device: &str,
    blob: &[u8],
    options: &CompileOptions,
) -> Result<CompiledGraph, Error> {
    let library = runtime.library();
    let device = c_text("a device's name", device)?;
    let core = runtime.importer(&device, options)?;
    let import = library.functions.ov_core_import_model;
    let blob: Box<[u8]> = blob.into();
    // SAFETY: the core lives; the name outlives the call. The CPU's graph goes on reading constants where the blob lies, so
    // it is kept as long as the graph.
    let raw = unsafe {
        Handle::made(library, "import_model", |graph| {
            import(core.as_ptr(), blob.as_ptr().cast(), blob.len(), device.as_ptr(), graph)
        })?
    };
    CompiledGraph::new(raw, Some(blob))
}

/// Sets `options` on `core`, for graphs that it imports for `device`.
pub(crate) fn configure(core: &Handle<raw::Core>, device: &CStr, options: &CompileOptions) -> Result<(), Error> {
    let properties = Properties::of(options)?;
    let list = properties.list();
    if list.is_empty() {
        return Ok(());
    }
    let library = core.library();
    let set = library.functions.ov_core_set_properties;
    // SAFETY: the core lives; the name and the properties outlive the call, which copies them.
    let status = unsafe { set(core.as_ptr(), device.as_ptr(), list.len(), list.as_ptr()) };
    library.check("set_properties", status)
}

fn read(library: &Arc<Library>, core: &Handle<raw::Core>, ir: &Ir<'_>) -> Result<Handle<raw::Model>, Error> {
    let constants = owned_copy(library, ir.bin)?;
    let read = library.functions.ov_core_read_model_from_memory_buffer;
    // SAFETY: core and constants live; the text outlives the call, which copies it. The model shares the constants.
    unsafe {
        Handle::made(library, "read_model", |model| {
            read(core.as_ptr(), ir.xml.as_ptr().cast(), ir.xml.len(), constants.as_ptr(), model)
        })
    }
}

/// Options as OpenVINO takes them.
struct Properties {
    texts: Vec<(CString, CString)>,
}

impl Properties {
    fn of(options: &CompileOptions) -> Result<Self, Error> {
        let text = |(key, value): (&str, String)| Ok((c_text("a key", key)?, c_text("a value", &value)?));
        Ok(Self { texts: options.properties().into_iter().map(text).collect::<Result<_, Error>>()? })
    }

    /// Pointers to the texts, valid as long as `self`.
    fn list(&self) -> Vec<raw::Property> {
        let property =
            |(key, value): &(CString, CString)| raw::Property { key: key.as_ptr(), value: value.as_ptr().cast() };
        self.texts.iter().map(property).collect()
    }
}
