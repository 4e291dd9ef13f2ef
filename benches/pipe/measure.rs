//! Cost of a run for the process: processor time, memory, allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// The system's allocator, which counts while it is told to.
pub(crate) struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            HELD.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if COUNTS.load(Ordering::Relaxed) {
            HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Turns counting on or off. Call it once, at the start: memory that was allocated before and is freed later makes
/// [`held`] too small.
pub(crate) fn count(on: bool) {
    COUNTS.store(on, Ordering::Relaxed);
}

/// Number of allocations.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Bytes on the heap.
pub(crate) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Processor time of this process, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Peak memory of this process, in MB; zero where the system does not tell.
pub(crate) fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or_default() * 1024.0 / 1e6
}

/// Keeps this process, and the processes that it starts later, on one processor. Does nothing except on Linux.
pub(crate) fn stay_on_one_processor() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

        let allowed = sched_getaffinity(None)?;
        if let Some(first) = (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)) {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one)?;
        }
    }
    Ok(())
}
