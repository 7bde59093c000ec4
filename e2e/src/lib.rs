//! A real cluster and the scenarios that run on it.
