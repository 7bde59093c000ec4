//! The front ends: they translate between a wire and the core.

pub mod native;
