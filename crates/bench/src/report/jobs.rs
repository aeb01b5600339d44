//! A pool for work that is independent: results in the order of their items, whatever the threads do.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// `work` of every item, on `threads` threads. A panic of `work` goes on here.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], threads: NonZeroUsize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    // Each thread takes the next item that nobody has.
    let some = || {
        let places = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        places.map_while(|place| Some((place, work(items.get(place)?)))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.get()).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_with_any_number_of_threads() {
        let items: Vec<u64> = (0..200).collect();
        // The first items take longest, so that later ones overtake them.
        let work =
            |item: &u64| (0..(200 - item) * 500).fold(*item, |sum, step| sum.wrapping_mul(31).wrapping_add(step));
        let alone: Vec<u64> = items.iter().map(work).collect();
        for threads in [1, 2, 7, 300] {
            assert_eq!(map(&items, NonZeroUsize::new(threads).unwrap(), work), alone, "{threads} threads");
        }
        assert!(map(&[], NonZeroUsize::MIN, work).is_empty());
    }

    #[test]
    #[should_panic(expected = "item 3")]
    fn a_panic_is_not_lost() {
        map(&[1, 2, 3, 4], NonZeroUsize::MIN, |item| assert!(*item != 3, "item {item}"));
    }
}
