//! The record in its surroundings.

/// Loom's atomics in the place of the real ones.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
}

#[path = "../../../master/src/core/liveness/listener.rs"]
#[allow(dead_code, reason = "only what the record needs of it is used here")]
mod listener;
#[path = "../../../master/src/core/liveness/record.rs"]
#[allow(dead_code, reason = "the same")]
mod record;

pub use listener::Listener;
pub(crate) use record::{ClientLivenessRecord, Observed, Verdict};
