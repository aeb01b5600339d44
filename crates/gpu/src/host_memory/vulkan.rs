//! `VK_EXT_external_memory_host`, beside what `wgpu` opens and binds.

use super::{GpuError, HostMemory, Region};
use ash::{ext::external_memory_host, vk};
use std::ops::Range;
use std::ptr::NonNull;
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan::{Buffer, CreateDeviceCallbackArgs};

const KIND: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// Opens an adapter so that it takes memory of the host's; nothing if it is not Vulkan's, or does not know how.
///
/// # Errors
/// If its driver does not open it.
pub(crate) fn open(
    adapter: &wgpu::Adapter,
    wanted: &wgpu::DeviceDescriptor<'_>,
) -> Result<Option<(wgpu::Device, wgpu::Queue, HostMemory)>, GpuError> {
    let refused = |error: &dyn std::fmt::Display| GpuError::Refused(error.to_string());
    // SAFETY: it is only looked at, and opened, which changes nothing of the adapter.
    let Some(hal) = (unsafe { adapter.as_hal::<Vulkan>() }) else { return Ok(None) };
    if !hal.physical_device_capabilities().supports_extension(external_memory_host::NAME)
        || adapter.get_info().backend != wgpu::Backend::Vulkan
    {
        return Ok(None);
    }
    let add = |args: CreateDeviceCallbackArgs<'_, '_, '_>| args.extensions.push(external_memory_host::NAME);
    // SAFETY: the extension was just found, and nothing else is changed.
    let opened = unsafe {
        hal.open_with_callback(
            wanted.required_features,
            &wanted.required_limits,
            &wanted.memory_hints,
            Some(Box::new(add)),
        )
    };
    let opened = opened.map_err(|error| refused(&error))?;
    let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut host);
    let instance = hal.shared_instance().raw_instance();
    // SAFETY: the device is this instance's, and both live.
    unsafe { instance.get_physical_device_properties2(hal.raw_physical_device(), &mut all) };
    let alignment = host.min_imported_host_pointer_alignment.max(1);
    // SAFETY: it was opened by this adapter, with these features.
    let (device, queue) = unsafe { adapter.create_device_from_hal(opened, wanted) }.map_err(|error| refused(&error))?;
    Ok(Some((device, queue, HostMemory { alignment })))
}

/// A part of a region as a buffer of a device that [`open`] opened, if it begins and ends where the device may be given memory.
///
/// # Errors
/// If the driver refuses them.
pub(super) fn import(
    device: &wgpu::Device,
    (region, part): (&Region, Range<usize>),
    (usage, alignment): (wgpu::BufferUsages, usize),
) -> Result<wgpu::Buffer, GpuError> {
    let refused = |error: vk::Result| GpuError::Refused(format!("memory of the host's: {error}"));
    let none = || GpuError::Refused("it takes no memory of the host's".to_owned());
    if part.is_empty() || part.end > region.bytes() {
        return Err(none());
    }
    // SAFETY: it lies there.
    let start = unsafe { region.start().add(part.start) };
    if !start.addr().get().is_multiple_of(alignment) || !part.len().is_multiple_of(alignment) {
        return Err(none());
    }
    let bytes = part.len() as u64;
    // SAFETY: what is made of it here is destroyed before it is, by the buffer that `wgpu` gets.
    let hal = unsafe { device.as_hal::<Vulkan>() }.ok_or_else(none)?;
    let raw = hal.raw_device();
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(KIND);
    let has = |what, flag| if usage.contains(what) { flag } else { vk::BufferUsageFlags::empty() };
    let flags = has(wgpu::BufferUsages::STORAGE, vk::BufferUsageFlags::STORAGE_BUFFER)
        | has(wgpu::BufferUsages::COPY_SRC, vk::BufferUsageFlags::TRANSFER_SRC)
        | has(wgpu::BufferUsages::COPY_DST, vk::BufferUsageFlags::TRANSFER_DST);
    let wanted = vk::BufferCreateInfo::default()
        .size(bytes)
        .usage(flags)
        .sharing_mode(vk::SharingMode::EXCLUSIVE)
        .push_next(&mut external);
    // SAFETY: the device lives, and what it is told is whole.
    let buffer = unsafe { raw.create_buffer(&wanted, None) }.map_err(refused)?;
    let memory = memory_of(&hal, buffer, (start, bytes)).map_err(|error| {
        // SAFETY: nothing uses it.
        unsafe { raw.destroy_buffer(buffer, None) };
        error.map_or_else(none, refused)
    })?;
    let (owner, kept) = (raw.clone(), region.clone());
    let done = Box::new(move || {
        // SAFETY: `wgpu` calls this once, when no submission uses the buffer any more, and before the device goes.
        unsafe {
            owner.destroy_buffer(buffer, None);
            owner.free_memory(memory, None);
        }
        // Not before.
        drop(kept);
    });
    // SAFETY: the buffer is alive until `done` is called, and nobody else destroys it.
    let buffer = unsafe { Buffer::from_raw_externally_owned(buffer, done) };
    let told =
        wgpu::BufferDescriptor { label: Some("memory of the host's"), size: bytes, usage, mapped_at_creation: false };
    // SAFETY: it is this device's, was made with this size and these usages, and all of its bytes are initialised: pages of the
    // system's are zeros until somebody writes.
    Ok(unsafe { device.create_buffer_from_hal::<Vulkan>(buffer, &told) })
}

/// Commands after which the host sees what was written to its memory by all that was submitted before: `wgpu` sees to that for the
/// buffers that it maps, and knows nothing of others.
pub(super) fn to_host(device: &wgpu::Device, mut encoder: wgpu::CommandEncoder) -> wgpu::CommandBuffer {
    // SAFETY: it is this device's own; the guard is dropped before the device is.
    if let Some(hal) = unsafe { device.as_hal::<Vulkan>() } {
        let written = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ);
        let writers = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let record = |commands: Option<&mut wgpu::hal::vulkan::CommandEncoder>| {
            let Some(commands) = commands else { return };
            // SAFETY: the commands are being recorded, outside of any pass, and are this device's; nothing of them is ended here.
            unsafe {
                hal.raw_device().cmd_pipeline_barrier(
                    commands.raw_handle(),
                    writers,
                    vk::PipelineStageFlags::HOST,
                    vk::DependencyFlags::empty(),
                    &[written],
                    &[],
                    &[],
                );
            }
        };
        // SAFETY: nothing is recorded by way of `wgpu`, before or after, and the commands are only added to.
        unsafe { encoder.as_hal_mut::<Vulkan, _, _>(record) };
    }
    encoder.finish()
}

/// Memory of a region as the device's, bound to a buffer; or why not, if the driver says.
fn memory_of(
    hal: &wgpu::hal::vulkan::Device,
    buffer: vk::Buffer,
    (start, bytes): (NonNull<u8>, u64),
) -> Result<vk::DeviceMemory, Option<vk::Result>> {
    let (raw, instance) = (hal.raw_device(), hal.shared_instance().raw_instance());
    let host = external_memory_host::Device::new(instance, raw);
    let mut found = vk::MemoryHostPointerPropertiesEXT::default();
    let at = start.as_ptr().cast();
    // SAFETY: the device was opened with the extension, and the pointer is one to live memory of the host's.
    let (wants, types) = unsafe {
        (host.fp().get_memory_host_pointer_properties_ext)(raw.handle(), KIND, at, &mut found).result()?;
        let types = instance.get_physical_device_memory_properties(hal.raw_physical_device());
        (raw.get_buffer_memory_requirements(buffer), types)
    };
    // What the cores write is to be there without being flushed.
    let shared = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
    let suits = |&index: &u32| {
        (wants.memory_type_bits & found.memory_type_bits) >> index & 1 == 1
            && types.memory_types[index as usize].property_flags.contains(shared)
    };
    let memory_type = (0..types.memory_type_count).find(suits).filter(|_| wants.size <= bytes).ok_or(None)?;
    let mut import = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(KIND).host_pointer(at);
    let wanted =
        vk::MemoryAllocateInfo::default().allocation_size(bytes).memory_type_index(memory_type).push_next(&mut import);
    // SAFETY: the region has so many bytes there, and the caller found both to be multiples of what the driver asks for; they
    // live until the memory is freed.
    let memory = unsafe { raw.allocate_memory(&wanted, None) }?;
    // SAFETY: the buffer is new and no larger than the memory, whose type is one of its own.
    unsafe { raw.bind_buffer_memory(buffer, memory, 0) }.map_err(|error| {
        // SAFETY: nothing is bound to it.
        unsafe { raw.free_memory(memory, None) };
        Some(error)
    })?;
    Ok(memory)
}
