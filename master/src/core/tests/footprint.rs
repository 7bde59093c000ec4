//! Bytes per key, counted at the allocator.

use super::*;
use crate::types::{Walk, WalkCursor};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Counts, per thread, what glibc's malloc would take for the blocks: 8 bytes of header, multiples of 16, at least 32.
struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn block(layout: Layout) -> i64 {
    ((layout.size() as i64 + 8 + 15) & !15).max(32)
}

fn count(by: i64) {
    // A thread that is ending has no counter any more; its blocks are nobody's measurement.
    let _ = LIVE.try_with(|live| live.set(live.get() + by));
}

// SAFETY: every call is handed to the system allocator unchanged; counting touches a plain thread-local cell and
// allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(block(layout));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-block(layout));
        // SAFETY: as above; the block came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_key_takes_at_most_200_bytes() {
    let keys: u64 = 1_000_000;
    let rig = Rig::new();
    for n in 1..=8 {
        rig.core.mount_segment(client(n), spec(n, 1 << 34)).unwrap();
    }
    let before = LIVE.get();
    for n in 0..keys {
        let key = format!("{n:022}");
        rig.start(1, key.as_bytes(), 4096 + n % 7 * 512).unwrap();
        rig.end(1, key.as_bytes()).unwrap();
    }
    let per_key = (LIVE.get() - before) as f64 / keys as f64;
    let told = rig.core.stats().metadata_bytes as f64 / keys as f64;
    println!("{per_key:.1} bytes per key at {keys} keys of 22 bytes");
    assert!(per_key <= 200.0, "{per_key}");
    assert!((told / per_key - 1.0).abs() < 0.1, "the metric says {told}");
    let mut cursor = WalkCursor::default();
    while rig.core.remove_matching(None, true, &mut cursor) != Ok(Walk::Done) {}
    assert_eq!((cursor.acted, rig.core.stats().allocated_bytes), (keys, 0));
    let left = LIVE.get() - before;
    println!("{left} bytes left after all were removed");
    assert!(left < 1 << 20, "{left}");
}
