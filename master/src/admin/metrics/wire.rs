//! What is known of the native clients' generations (design §8). Written by data threads, read without a lock.

use super::families::Families;
use crate::rpc::native::generation::{Generation, NAMES};
use std::sync::atomic::{AtomicU64, Ordering};

/// Value of the label `generation` while it is not known.
const UNKNOWN: &str = "unknown";

/// A number for each generation, and one for "unknown".
#[derive(Debug)]
pub struct PerGeneration([AtomicU64; NAMES.len() + 1]);

impl PerGeneration {
    fn new() -> PerGeneration {
        PerGeneration(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn of(&self, generation: Option<&Generation>) -> &AtomicU64 {
        &self.0[generation.map_or(NAMES.len(), Generation::index)]
    }

    /// One more.
    pub fn add(&self, generation: Option<&Generation>) {
        self.of(generation).fetch_add(1, Ordering::Relaxed);
    }

    /// One less, of those that were added.
    pub fn take(&self, generation: Option<&Generation>) {
        self.of(generation).fetch_sub(1, Ordering::Relaxed);
    }

    /// How many there are.
    pub fn get(&self, generation: Option<&Generation>) -> u64 {
        self.of(generation).load(Ordering::Relaxed)
    }

    fn collect(&self, name: &str, families: &mut Families) {
        for (label, number) in NAMES.iter().chain([&UNKNOWN]).zip(&self.0) {
            families.number(name, &[("generation", label)], number.load(Ordering::Relaxed) as f64);
        }
    }
}

/// The figures.
#[derive(Debug)]
pub struct WireMetrics {
    /// Open native connections.
    pub connections: PerGeneration,
    /// Clients that have an open native connection on which they named themselves.
    pub clients: PerGeneration,
    /// Answers whose form had to be guessed.
    pub guesses: AtomicU64,
    /// Those after which the client closed the connection at once.
    pub wrong_guesses: AtomicU64,
    /// Clients of which nothing told the generation when they had to be answered.
    pub unknown_clients: AtomicU64,
    /// Addresses on which clients of several generations were found that cannot always be told apart.
    pub shared_addresses: AtomicU64,
}

impl WireMetrics {
    pub(super) fn new() -> WireMetrics {
        let zero = || AtomicU64::new(0);
        WireMetrics {
            connections: PerGeneration::new(),
            clients: PerGeneration::new(),
            guesses: zero(),
            wrong_guesses: zero(),
            unknown_clients: zero(),
            shared_addresses: zero(),
        }
    }

    pub(super) fn collect(&self, families: &mut Families) {
        self.connections.collect("mooncake_master_native_connections", families);
        self.clients.collect("mooncake_master_native_clients", families);
        for (name, counter) in [
            ("mooncake_master_wire_guesses_total", &self.guesses),
            ("mooncake_master_wire_wrong_guesses_total", &self.wrong_guesses),
            ("mooncake_master_wire_unknown_clients_total", &self.unknown_clients),
            ("mooncake_master_wire_shared_addresses_total", &self.shared_addresses),
        ] {
            families.plain(name, counter.load(Ordering::Relaxed));
        }
    }
}
