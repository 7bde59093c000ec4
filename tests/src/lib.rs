//! Helpers for tests that run real processes on loopback.

pub mod fault;
pub mod master;
pub mod namespace;
pub mod native;
pub mod promql;
pub mod released;
pub mod upstream;

pub use master::{Master, MasterBuilder};
pub use native::NativeClient;

/// Polls until `condition` gives something, or panics naming `what` after `seconds`.
pub fn wait_for<T>(what: &str, seconds: u64, mut condition: impl FnMut() -> Option<T>) -> T {
    #[allow(clippy::disallowed_types, reason = "a test waits in real time for a real process")]
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        #[allow(clippy::disallowed_types, reason = "as above")]
        let now = std::time::Instant::now();
        assert!(now < deadline, "timed out after {seconds} s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
