//! The allocator of this binary, which counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that the process holds.
pub(crate) static HELD: AtomicUsize = AtomicUsize::new(0);
/// The most bytes that the process held since a test last stored [`HELD`] here.
pub(crate) static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HELD_HERE: Cell<isize> = const { Cell::new(0) };
    static ASKED_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated, less those that it has freed.
pub(crate) fn held_here() -> isize {
    HELD_HERE.with(Cell::get)
}

/// Number of allocations and reallocations of this thread.
pub(crate) fn asked_here() -> usize {
    ASKED_HERE.with(Cell::get)
}

/// Counts a block that changes its size; a new block had size 0, and a freed block gets size 0.
fn count(before: usize, after: usize) {
    if after > before {
        let held = HELD.fetch_add(after - before, Ordering::Relaxed) + (after - before);
        PEAK.fetch_max(held, Ordering::Relaxed);
    } else {
        HELD.fetch_sub(before - after, Ordering::Relaxed);
    }
    HELD_HERE.with(|held| held.set(held.get() + after as isize - before as isize));
    if after > 0 {
        ASKED_HERE.with(|asked| asked.set(asked.get() + 1));
    }
}

// SAFETY: every call is passed on unchanged to the system allocator, which keeps the contract of the trait; `count`
// touches no memory of the caller and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: the caller promises what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A large block is moved without a copy (mremap), so it counts once.
        count(layout.size(), size);
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
