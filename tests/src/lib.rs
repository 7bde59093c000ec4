//! Helpers for tests that run real processes.
