//! Windows: `GetLogicalProcessorInformationEx`, `GetProcessAffinityMask`, `SetThreadGroupAffinity`.

use crate::topology::{
    Core, CoreId,
    windows::{GROUP, cores_of},
};
use windows_sys::Win32::System::SystemInformation::{
    GROUP_AFFINITY, GetLogicalProcessorInformationEx, RelationAll, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX,
};
use windows_sys::Win32::System::Threading::{
    GetActiveProcessorGroupCount, GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask, SetThreadGroupAffinity,
};

/// The cores; nothing if the system does not tell.
pub(super) fn cores() -> Vec<Core> {
    let mask = process_mask();
    cores_of(&records(), |id| mask.is_none_or(|mask| id.0 < GROUP && mask >> id.0 & 1 == 1))
}

/// There is no quota that would not be in the process's mask; and `parallelism` is that of one group, of which a machine may
/// have more.
pub(super) fn quota(_parallelism: usize) -> usize {
    usize::MAX
}

/// Binds the calling thread to a core. May do nothing: a refusal only costs speed.
pub(crate) fn keep_on(core: CoreId) {
    let Ok(group) = u16::try_from(core.0 / GROUP) else { return };
    let affinity = GROUP_AFFINITY { Mask: 1 << (core.0 % GROUP), Group: group, Reserved: [0; 3] };
    // SAFETY: the handle is the calling thread's own and needs no closing; the affinity outlives the call, which wants
    // nothing in return.
    unsafe { SetThreadGroupAffinity(GetCurrentThread(), &raw const affinity, std::ptr::null_mut()) };
}

/// The hardware threads that this process may use, where the machine has one group of them. Where it has several, a process
/// is bound to some of one group at most by its parents' will, of which the system does not tell here: it may use all.
fn process_mask() -> Option<usize> {
    let (mut process, mut system) = (0, 0);
    // SAFETY: the handle is the process's own and needs no closing; both masks outlive the call.
    let told = unsafe {
        GetActiveProcessorGroupCount() == 1
            && GetProcessAffinityMask(GetCurrentProcess(), &raw mut process, &raw mut system) != 0
    };
    (told && process != 0).then_some(process)
}

/// What the system has to tell of cores and caches.
fn records() -> Vec<u8> {
    let mut length = 0;
    // SAFETY: without a buffer the call only says how long it must be.
    unsafe { GetLogicalProcessorInformationEx(RelationAll, std::ptr::null_mut(), &raw mut length) };
    // Records begin at multiples of eight.
    let mut buffer = vec![0_u64; (length as usize).div_ceil(8)];
    let to = buffer.as_mut_ptr().cast::<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX>();
    // SAFETY: the buffer has `length` bytes, aligned as records are; the call writes no more, and how many.
    let told = unsafe { GetLogicalProcessorInformationEx(RelationAll, to, &raw mut length) } != 0;
    if !told {
        return Vec::new();
    }
    let mut bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(length as usize);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_its_cores() {
        assert!(!cores().is_empty());
    }
}
