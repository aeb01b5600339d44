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

/// While it lives, large memory that is freed is the system's again at once, where the allocator can be told so: glibc's takes
/// what is asked for often from the heaps of threads, which keep it. That costs a fault for each page of it that is used
/// again, so it is for a while in which least memory matters more. One at a time.
#[derive(Debug)]
pub struct FreedAtOnce(());

impl FreedAtOnce {
    /// Begins it.
    #[must_use]
    pub fn begin() -> Self {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: a number that the allocator compares sizes with, under its own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
        Self(())
    }
}

/// What is smaller goes to the heaps.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 256 << 10;

impl Drop for FreedAtOnce {
    fn drop(&mut self) {
        // Where glibc gets to by itself in a program that frees large memory: its threshold does not grow any more once it
        // was set.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: as above.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
        }
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
    fn large_memory_is_given_back_when_it_is_freed() {
        // Its threshold grows to the size of what is freed.
        drop(vec![1_u8; 24 << 20]);
        let _at_once = FreedAtOnce::begin();
        let held = std::hint::black_box([vec![1_u8; 20 << 20], vec![1; 1 << 10]]);
        let before = resident();
        let [large, _small] = held;
        drop(large);
        assert!(before - resident() > 8 << 20, "{before} -> {}", resident());
    }

    #[test]
    fn what_lies_freed_below_what_is_held_is_given_back() {
        // Pieces so small that they come from the heap. What is held above them keeps its top where it is; gaps that another
        // test left lie below.
        let pieces: Vec<Vec<u8>> = (0..2000).map(|_| vec![1; 16 << 10]).collect();
        let last = pieces.iter().map(|piece| piece.as_ptr().addr()).max();
        let mut held: Vec<Vec<u8>> = Vec::new();
        while held.len() < 4000 && held.last().map(|piece| piece.as_ptr().addr()) < last {
            held.push(vec![1; 16 << 10]);
        }
        drop(pieces);
        let before = resident();
        give_back_freed();
        let after = resident();
        assert!(before - after > 20 << 20, "{before} -> {after}");
        assert!(held.iter().all(|piece| piece[0] == 1));
    }
}
