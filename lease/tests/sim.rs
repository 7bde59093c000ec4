//! Many candidates against a simulated API server, in simulated time, under faults drawn from a seed.
//!
//! Clocks differ in offset and rate; requests are lost, doubled, late or applied without an answer; processes die,
//! pause, restart with the same address and pod uid; strangers write to the Lease or delete it; the API server goes
//! away. After every step: never two permits at one true time, and epochs grow with every new holder. After the faults:
//! one leader.

#![allow(clippy::unwrap_used, reason = "a test")]

mod world;

use proptest::prelude::*;
use world::{Profile, World};

/// 300 worlds for each test, or as many as `LEASE_SIM_CASES` says. A failure prints its seed, which is the whole input.
fn config() -> ProptestConfig {
    let cases = std::env::var("LEASE_SIM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    ProptestConfig { cases, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn never_two_and_always_one_in_the_end(seed in any::<u64>(), candidates in 2_usize..=4, mixed in any::<bool>()) {
        let mut world = World::new(seed, Profile { candidates, mixed, members: false });
        world.chaos(90);
        world.calm(120);
    }

    #[test]
    fn the_same_with_an_in_sync_set(seed in any::<u64>(), candidates in 2_usize..=4) {
        let mut world = World::new(seed, Profile { candidates, mixed: false, members: true });
        world.chaos(90);
        world.calm(120);
    }
}
