//! High availability: role, lease thread, and what the lease thread can do alone.

pub mod connections;
