//! What of the master reads bytes that others wrote.
//!
//! It is compiled from its sources and not through the master's crate: with the flags of a fuzzer that would build a
//! hundred crates that have no part in it.
#![allow(dead_code, unused_imports, reason = "what of these modules only other parts of the master use")]

#[path = "../../master/src/clock.rs"]
pub mod clock;
#[path = "../../master/src/config/mod.rs"]
pub mod config;
#[path = "../../master/src/error.rs"]
pub mod error;
#[path = "../../master/src/lock.rs"]
pub mod lock;
#[path = "../../master/src/types/mod.rs"]
pub mod types;

/// The figures that the wire's generations keep; nobody scrapes them here.
#[path = "../../master/src/admin/metrics"]
pub mod admin {
    mod wire;
    pub use wire::{PerGeneration, WireMetrics};

    mod families {
        /// Takes figures and shows them to nobody.
        pub(super) struct Families;

        impl Families {
            pub(super) fn number(&mut self, _name: &str, _labels: &[(&str, &str)], _value: f64) {}
            pub(super) fn plain(&mut self, _name: &str, _value: u64) {}
        }
    }

    /// As much of the master's metrics as there is to it.
    #[derive(Debug)]
    pub struct Metrics(WireMetrics);

    impl Default for Metrics {
        fn default() -> Metrics {
            Metrics(WireMetrics::new())
        }
    }

    impl Metrics {
        pub fn wire(&self) -> &WireMetrics {
            &self.0
        }
    }
}

#[path = "../../master/src/rpc"]
pub mod rpc {
    mod generations;
    pub mod native;

    /// Here, because what a connection knows of its generation is of this module's concern only.
    #[path = "../../../fuzz/src/conversations.rs"]
    pub mod conversations;
}
