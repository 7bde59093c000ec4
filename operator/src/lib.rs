//! The operator: observe, decide, build, apply, status.
