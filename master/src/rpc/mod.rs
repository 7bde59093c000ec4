//! Filled in by its own landing.
