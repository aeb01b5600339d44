//! How much memory there is, and how much of it a program may still take.
//!
//! On Linux: what the kernel says of the machine (`/proc/meminfo`), and of the control groups that the process is in
//! (`memory.max` of each of them, cgroup v2): a container's limit is a machine's end. Memory that a group has filled with
//! files that nobody uses just now counts as available, as the kernel counts it for the machine. Other systems are not
//! asked.

use duet_types::Bytes;
use std::fs;
use std::path::{Path, PathBuf};

/// What memory there is. What the system does not say is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// In all, whoever has it now.
    pub total: Option<Bytes>,
    /// That a new program could take without anything being written to swap.
    pub available: Option<Bytes>,
}

impl MachineMemory {
    /// As it is now.
    #[must_use]
    pub fn now() -> Self {
        Self::read(Path::new("/"))
    }

    /// As the files below `root` say.
    fn read(root: &Path) -> Self {
        let mut memory = Self::of_machine(&fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default());
        for group in groups(root) {
            let Some(limit) = number(&group.join("memory.max")) else { continue };
            // What the kernel would give back before it refuses.
            let reclaimable = stat(&group, "inactive_file");
            let used = number(&group.join("memory.current")).unwrap_or_default().saturating_sub(reclaimable);
            memory.total = lower(memory.total, limit);
            memory.available = lower(memory.available, limit.saturating_sub(used));
        }
        memory
    }

    fn of_machine(meminfo: &str) -> Self {
        let bytes = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
            kibibytes.checked_mul(1024).map(Bytes)
        };
        Self { total: bytes("MemTotal:"), available: bytes("MemAvailable:") }
    }
}

fn lower(known: Option<Bytes>, limit: u64) -> Option<Bytes> {
    Some(known.map_or(Bytes(limit), |known| Bytes(known.0.min(limit))))
}

/// The folders of the control group that this process is in and of those around it.
fn groups(root: &Path) -> Vec<PathBuf> {
    let mount = root.join("sys/fs/cgroup");
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    // The line of version 2; those of version 1 have the names of controllers between the colons.
    let Some(group) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    // `..` is a group outside of what is mounted here.
    let inside = Path::new(group).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let group = if inside { mount.join(group) } else { mount.clone() };
    group.ancestors().take_while(|folder| folder.starts_with(&mount)).map(Path::to_owned).collect()
}

/// The number in a file; none if it says `max`.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn stat(group: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these files say: total and available, in MiB.
    fn check(files: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let MachineMemory { total, available } = MachineMemory::read(root.path());
        let mebibytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 >> 20);
        (mebibytes(total), mebibytes(available))
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n");
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_machine_without_groups_is_what_it_says() {
        assert_eq!(check(&[MEMINFO]), (Some(16 << 10), Some(8 << 10)));
        assert_eq!(check(&[]), (None, None));
        assert_eq!(check(&[("proc/meminfo", "MemTotal: many kB\n")]), (None, None));
        // Version 1 is not read.
        assert_eq!(check(&[MEMINFO, ("proc/self/cgroup", "7:memory:/a\n")]), (Some(16 << 10), Some(8 << 10)));
    }

    #[test]
    fn a_container_has_what_its_limit_leaves() {
        let container = |max: &str| {
            check(&[
                MEMINFO,
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", max),
                ("sys/fs/cgroup/memory.current", &(900 * MIB).to_string()),
                ("sys/fs/cgroup/memory.stat", &format!("anon 5\nfile 9\ninactive_file {}\n", 400 * MIB)),
            ])
        };
        assert_eq!(container(&(2048 * MIB).to_string()), (Some(2048), Some(1548)));
        assert_eq!(container("max\n"), (Some(16 << 10), Some(8 << 10)));
        assert_eq!(container(&(100 * MIB).to_string()), (Some(100), Some(0)), "it is over its limit just now");
        // A limit above what the machine has is none.
        assert_eq!(container(&(1_u64 << 40).to_string()), (Some(16 << 10), Some(8 << 10)));
    }

    #[test]
    fn the_lowest_limit_around_a_group_counts() {
        let group = |line: &str| {
            check(&[
                MEMINFO,
                ("proc/self/cgroup", line),
                ("sys/fs/cgroup/user.slice/memory.max", &(1024 * MIB).to_string()),
                ("sys/fs/cgroup/user.slice/memory.current", &(1000 * MIB).to_string()),
                ("sys/fs/cgroup/user.slice/app/memory.max", &(4096 * MIB).to_string()),
                ("sys/fs/cgroup/user.slice/app/memory.current", "0\n"),
            ])
        };
        assert_eq!(group("0::/user.slice/app\n"), (Some(1024), Some(24)));
        assert_eq!(group("0::/other\n"), (Some(16 << 10), Some(8 << 10)));
        assert_eq!(group("0::/../user.slice\n"), (Some(16 << 10), Some(8 << 10)), "nothing outside is read");
    }
}
