//! The master's liveness record, word for word, over loom's atomics. What it names of the master stands here in its
//! simplest form; the tests run every interleaving that the memory model allows.
#![cfg(test)]

/// What the record needs of `mooncake_master::clock`.
pub mod clock {
    use std::time::Duration;

    /// Nanoseconds on a clock.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub struct Instant(u64);

    impl Instant {
        /// From nanoseconds.
        pub const fn from_nanos(nanos: u64) -> Instant {
            Instant(nanos)
        }

        /// Nanoseconds.
        pub const fn as_nanos(self) -> u64 {
            self.0
        }

        /// `self + duration`.
        #[must_use]
        pub const fn saturating_add(self, duration: Duration) -> Instant {
            Instant(self.0.saturating_add(duration.as_nanos() as u64))
        }
    }
}

/// What it needs of `mooncake_master::types`.
pub mod types {
    /// An id.
    pub type ClientId = u64;

    /// B1.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(missing_docs)]
    pub enum LivenessState {
        Active,
        Suspected,
        Offline,
    }
}

pub mod liveness;
mod tests;
