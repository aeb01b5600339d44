//! Memory that was freed, and that the allocator keeps for whoever asks next.

/// Gives it back to the system, where the allocator has a way to: glibc's keeps some megabytes in the heap of every thread.
/// Takes a millisecond or so, so it is for where much was freed at once.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and only memory that nobody has is given back.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Bytes that this process has in memory.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn what_lies_freed_below_what_is_held_is_given_back() {
        // Pieces so small that they come from the heap; the last one keeps its top where it is.
        let pieces: Vec<Vec<u8>> = (0..2000).map(|_| vec![1; 16 << 10]).collect();
        let held = vec![1_u8; 16 << 10];
        drop(pieces);
        let before = resident();
        give_back_freed();
        let after = resident();
        assert!(before - after > 20 << 20, "{before} -> {after}");
        assert_eq!(held[0], 1);
    }
}
