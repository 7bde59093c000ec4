//! The atomics of the record. It names them through here, so that the crate `interleavings` can put those of loom in their
//! place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
