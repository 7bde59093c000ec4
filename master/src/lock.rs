//! The locks of this crate. Nothing else names a lock type, so that what guards what can be read here and at the types.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
