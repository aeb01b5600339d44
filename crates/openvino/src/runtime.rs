//! The runtime: OpenVINO loaded, its version, and the devices that it has here.

use crate::compile::configure;
use crate::describe::describe;
use crate::device::Device;
use crate::handle::Handle;
use crate::library::Library;
use crate::options::CompileOptions;
use crate::raw;
use crate::text::c_text;
use duet_runtimes::Error;
use duet_runtimes::{OPENVINO, find};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// OpenVINO, loaded. Clones share it; it may be used by several threads at once.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    core: Handle<raw::Core>,
    importers: Mutex<Importers>,
    version: String,
}

/// Cores by the device and the options that they import for.
type Importers = BTreeMap<(CString, CompileOptions), Arc<Handle<raw::Core>>>;

impl Runtime {
    /// Finds the runtime and loads it. Takes about 20 ms; device plugins are loaded when they are first asked.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed, [`Error::Load`] or [`Error::Symbol`] if what is installed cannot be
    /// used, [`Error::Refused`] if it does not start.
    pub fn load() -> Result<Self, Error> {
        let library = Arc::new(Library::load(&find(&OPENVINO)?)?);
        let version = version(&library)?;
        Ok(Self { inner: Arc::new(Inner { core: core(&library)?, importers: Mutex::default(), version }) })
    }

    /// OpenVINO's version, with its build: `2026.4.1-…`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    /// The file that it was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library().path()
    }

    /// The devices that OpenVINO can use here, described. Asks every plugin: the first time this takes some tenths of a
    /// second, because it looks for hardware.
    ///
    /// # Errors
    /// If OpenVINO cannot list them.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let names = self.device_names()?;
        let device = |name: &String| Device::new(self.clone(), describe(name, &|key| self.property(name, key)));
        Ok(names.iter().map(device).collect())
    }

    /// The device called `name`: `CPU`, `NPU`, `GPU`, or `GPU.1` where there are several.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the names there are.
    pub fn device(&self, name: &str) -> Result<Device, Error> {
        let names = self.device_names()?;
        // Where there is one GPU only, OpenVINO calls it `GPU`, but takes `GPU.0` as well.
        if names.iter().any(|known| known == name || name.strip_suffix(".0") == Some(known)) {
            let info = describe(name, &|key| self.property(name, key));
            return Ok(Device::new(self.clone(), info));
        }
        Err(Error::NoDevice { runtime: OPENVINO.title, name: name.to_owned(), available: names.join(", ") })
    }

    /// The NPU's plugin with its front end, computing on the CPU: what an NPU's graphs can be tested with where there is
    /// none. It tells nothing of an NPU's speed, nor whether its compiler takes them.
    #[must_use]
    pub fn npu_front_end_on_cpu(&self) -> Device {
        let info = describe("NPU", &|key| self.property("NPU", key));
        Device::npu_front_end_on_cpu(self.clone(), info)
    }

    /// What a device's plugin says of `key`; absent if it does not know it, or needs hardware that is not there.
    pub(crate) fn property(&self, device: &str, key: &str) -> Option<String> {
        let value = self.property_of(self.core(), device, key).ok()?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The same of a core that has settings of its own.
    ///
    /// # Errors
    /// If the plugin does not know the property, or throws at what the core was told for it.
    pub(crate) fn property_of(&self, core: &Handle<raw::Core>, device: &str, key: &str) -> Result<String, Error> {
        let (device, key) = (c_text("a device's name", device)?, c_text("a property's key", key)?);
        let mut value = ptr::null_mut();
        let get = self.library().functions.ov_core_get_property;
        // SAFETY: the core lives, both texts outlive the call, and `value` is a place for a pointer.
        let status = unsafe { get(core.as_ptr(), device.as_ptr(), key.as_ptr(), &mut value) };
        self.library().check("ov_core_get_property", status)?;
        // SAFETY: on success OpenVINO has handed over a text.
        Ok(unsafe { self.library().take_text(value) })
    }

    /// A core that imports graphs for `device` with `options`: importing takes no properties of its own, and those of
    /// the core that compiles must stay as they are. There are as many as there are different options, which is few.
    pub(crate) fn importer(&self, device: &CStr, options: &CompileOptions) -> Result<Arc<Handle<raw::Core>>, Error> {
        let mut importers = self.inner.importers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (device.to_owned(), *options);
        if let Some(core) = importers.get(&key) {
            return Ok(Arc::clone(core));
        }
        let core = Arc::new(core(self.library())?);
        configure(&core, device, options)?;
        importers.insert(key, Arc::clone(&core));
        Ok(core)
    }

    pub(crate) fn core(&self) -> &Handle<raw::Core> {
        &self.inner.core
    }

    pub(crate) fn library(&self) -> &Arc<Library> {
        self.inner.core.library()
    }

    fn device_names(&self) -> Result<Vec<String>, Error> {
        let functions = &self.library().functions;
        let mut devices = raw::AvailableDevices { devices: ptr::null_mut(), size: 0 };
        // SAFETY: the core lives, and `devices` is a place for the list.
        let status = unsafe { (functions.ov_core_get_available_devices)(self.core().as_ptr(), &mut devices) };
        self.library().check("ov_core_get_available_devices", status)?;
        // SAFETY: OpenVINO has written `size` texts, or none and a null pointer.
        let names = (0..devices.size).map(|index| unsafe { c_string(*devices.devices.add(index)) }).collect();
        // SAFETY: the list is OpenVINO's and is not used any more.
        unsafe { (functions.ov_available_devices_free)(&mut devices) };
        Ok(names)
    }
}

/// A core of its own, with settings of its own.
pub(crate) fn core(library: &Arc<Library>) -> Result<Handle<raw::Core>, Error> {
    // SAFETY: it takes the place for the pointer alone, and hands over what it makes.
    unsafe { Handle::made(library, "ov_core_create", |core| (library.functions.ov_core_create)(core)) }
}

fn version(library: &Library) -> Result<String, Error> {
    let mut version = raw::Version { build_number: ptr::null(), description: ptr::null() };
    // SAFETY: `version` is a place for the two texts.
    let status = unsafe { (library.functions.ov_get_openvino_version)(&mut version) };
    library.check("ov_get_openvino_version", status)?;
    // SAFETY: OpenVINO has written a text, which is freed below.
    let number = unsafe { c_string(version.build_number) };
    // SAFETY: the texts are OpenVINO's and are not used any more.
    unsafe { (library.functions.ov_version_free)(&mut version) };
    Ok(number)
}

/// A copy of a text of OpenVINO's; empty if there is none.
///
/// # Safety
/// `text` is null or a C text.
unsafe fn c_string(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
