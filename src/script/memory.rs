//! The process's allocator: the system's, with a count of live bytes for each thread.
//!
//! A script runs on one thread of its own, so what that thread has allocated and not freed is what
//! the script holds: engine heap, values under conversion and module state alike. Rhai has no memory
//! limit of its own, and Luau's does not see the host's side; both are bounded through this count.
//!
//! The count is signed: a thread that frees what another one allocated goes below zero, so callers
//! compare against a reading of their own (`Meter`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(change: i64) {
    // The cell has no destructor, so it can be reached for as long as the thread lives.
    let _ = LIVE.try_with(|live| live.set(live.get().wrapping_add(change)));
}

// SAFETY: every call is passed on to the system allocator unchanged; counting never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            count(layout.size() as i64);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            count(layout.size() as i64);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `memory` and `layout` is passed on.
        unsafe { System.dealloc(memory, layout) };
        count(-(layout.size() as i64));
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise about `memory`, `layout` and `size` is passed on.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            count(size as i64 - layout.size() as i64);
        }
        moved
    }
}

/// Counts bytes that another thread allocated and this one will free.
pub fn adopt(bytes: usize) {
    count(i64::try_from(bytes).unwrap_or(i64::MAX));
}

/// Measures what the current thread has come to hold since the meter was made.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    start: i64,
}

impl Meter {
    /// Starts from what the thread holds now.
    pub fn start() -> Self {
        Self {
            start: LIVE.with(Cell::get),
        }
    }

    /// Bytes held beyond the start; zero when there are fewer. Call it on the meter's own thread.
    pub fn held(self) -> usize {
        let change = LIVE.with(Cell::get).wrapping_sub(self.start);
        usize::try_from(change).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_sees_its_own_thread_alone() {
        let meter = Meter::start();
        let kept = vec![0u8; 1 << 20];
        let other = std::thread::spawn(|| Meter::start().held()).join();
        assert!(meter.held() >= 1 << 20, "{}", meter.held());
        assert_eq!(other.ok(), Some(0));
        drop(kept);
        assert!(meter.held() < 1 << 19, "{}", meter.held());
    }
}
