//! Pages of buffers that were dropped, for the next buffers of the same thread.
//!
//! The system clears each page that it gives, and a hypervisor may have to find one first: whoever drops as much as it takes
//! again, matrix by matrix, spends most of its time there. So while a thread [keeps](Spare) its pages, large buffers that it
//! drops are its next ones, if they are of about that size.

#[cfg(unix)]
use super::pages::Pages;
#[cfg(unix)]
use std::cell::RefCell;
use std::marker::PhantomData;

#[cfg(unix)]
thread_local! {
    /// Nothing where none are kept.
    static KEPT: RefCell<Option<Vec<Pages>>> = const { RefCell::new(None) };
}

/// This thread keeps the pages of large buffers that it drops while this lives. They are given back with it.
#[derive(Debug)]
pub struct Spare {
    /// It is of one thread.
    thread: PhantomData<*const ()>,
}

impl Spare {
    /// Begins to keep them.
    #[must_use]
    pub fn keep() -> Self {
        #[cfg(unix)]
        KEPT.with_borrow_mut(|kept| _ = kept.get_or_insert_default());
        Self { thread: PhantomData }
    }
}

#[cfg(unix)]
impl Drop for Spare {
    fn drop(&mut self) {
        // Taken out first: what is dropped then is kept by nobody.
        let kept = KEPT.with_borrow_mut(Option::take);
        kept.into_iter().flatten().for_each(Pages::give_back);
    }
}

/// Keeps pages for later; hands them back if this thread keeps none.
#[cfg(unix)]
pub(super) fn keep(pages: Pages) -> Option<Pages> {
    let mut pages = Some(pages);
    // A thread that ends has none any more.
    let _ = KEPT.try_with(|kept| {
        if let Some(kept) = kept.borrow_mut().as_mut() {
            kept.extend(pages.take());
        }
    });
    pages
}

/// At least `len` bytes that were kept, all zeros, and at most half as many again.
#[cfg(unix)]
pub(super) fn take(len: usize) -> Option<Pages> {
    let mut pages = KEPT.with_borrow_mut(|kept| {
        let kept = kept.as_mut()?;
        let fits = |pages: &Pages| (len..=len + len / 2).contains(&pages.len());
        let index = (0..kept.len()).filter(|&index| fits(&kept[index])).min_by_key(|&index| kept[index].len())?;
        Some(kept.swap_remove(index))
    })?;
    pages.clear();
    Some(pages)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::memory::Aligned;

    const LARGE: usize = 5 << 20;

    #[test]
    fn a_dropped_buffer_is_the_next_one_and_is_zero_again() {
        let spare = Spare::keep();
        let mut first = Aligned::<u8>::zeroed(LARGE);
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let smaller = Aligned::<u8>::zeroed(LARGE - 100_000);
        assert_eq!(smaller.as_ptr(), place);
        assert!(smaller.iter().all(|&byte| byte == 0));
        // One that is much smaller does not take it, and none that is larger can.
        drop(smaller);
        let others = [LARGE / 2, 2 * LARGE].map(Aligned::<u8>::zeroed);
        assert!(others.iter().all(|other| other.as_ptr() != place && other.iter().all(|&byte| byte == 0)));
        drop(spare);
        assert!(KEPT.with_borrow(Option::is_none));
    }

    #[test]
    fn buffers_outlive_who_kept_the_pages_and_may_go_with_another_thread() {
        let spare = Spare::keep();
        let mut held = Aligned::<u8>::zeroed(LARGE);
        let other = Aligned::<u8>::zeroed(LARGE);
        std::thread::spawn(move || drop(other)).join().unwrap();
        assert!(KEPT.with_borrow(|kept| kept.as_ref().is_some_and(Vec::is_empty)));
        drop(spare);
        held[LARGE - 1] = 1;
        assert_eq!(held[LARGE - 1], 1);
    }
}
