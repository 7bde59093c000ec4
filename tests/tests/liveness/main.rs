//! Liveness with a recovery window, on real processes (B1 to B14): whose silence it is, what a suspected client may
//! still do, and what is left of one that is gone.

mod codes;
mod metadata;
mod offboarding;
mod silence;
mod support;
