//! Work that is divided over the machine's threads.

use std::sync::Mutex;

/// Calls `work` with each of `items`, on as many threads as the machine has, `most` at most. Each takes the next item when it is
/// done with one.
pub(super) fn each_on_threads<T: Send>(most: usize, items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = most.clamp(1, cores);
    if threads == 1 {
        return items.for_each(work);
    }
    let items = Mutex::new(items);
    // A panic of one thread is told when the scope ends; the others find no more items.
    let next = || items.lock().ok().and_then(|mut items| items.next());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        for most in [0, 1, 7] {
            let mut counts = vec![0; 100];
            each_on_threads(most, counts.iter_mut().enumerate(), |(at, count)| *count += at);
            assert_eq!(counts, (0..100).collect::<Vec<_>>());
        }
    }
}
