//! Clients of these tests: each with a segment of its own and a connection of its own for heartbeats.

use mooncake_master::types::Uuid;
use mooncake_tests::{Master, MasterBuilder, NativeClient, fault::ENABLE, wait_for};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

pub(crate) const MIB: u64 = 1 << 20;

/// The n-th client and its segment.
pub(crate) const fn id(n: u64) -> Uuid {
    Uuid { first: 0x11fe, second: n }
}

pub(crate) fn endpoint(n: u64) -> String {
    format!("127.0.0.1:{}", 20_000 + n)
}

/// With these TTLs in seconds, no grace of the start, and faults allowed.
pub(crate) fn start(active: u32, suspicion: u32, args: &[&str]) -> Master {
    let builder = MasterBuilder::default()
        .arg(ENABLE)
        .arg(format!("--client_active_ttl_sec={active}"))
        .arg(format!("--client_suspicion_ttl_sec={suspicion}"))
        .arg("--client_offline_grace_sec=0");
    args.iter().fold(builder, |builder, arg| builder.arg(*arg)).start()
}

pub(crate) fn native(master: &Master) -> NativeClient {
    NativeClient::connect(master.rpc_address()).expect("the master accepts")
}

/// Mounts 16 MiB for client `n`, which takes allocations at once, and makes it remount-ready.
pub(crate) fn mount(client: &mut NativeClient, n: u64) {
    let base = (n + 1) << 32;
    client.mount(id(n), id(n), &endpoint(n), base, 16 * MIB).expect("an answer").expect("mounted");
    client.remount(id(n), id(n), &endpoint(n), base, 16 * MIB).expect("an answer").expect("re-mounted");
}

/// How a [`Beating`] client sends its heartbeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// On one connection, and waiting for its answer however long that takes.
    Patient,
    /// Each on a connection of its own.
    Anew,
}

/// A client that is pinged five times a second until it is dropped.
pub(crate) struct Beating {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beating {
    pub(crate) fn start(master: &Master, n: u64, way: Way) -> Beating {
        let address = master.rpc_address();
        let mut connection = native(master);
        // Served once before this returns: the connection has its thread.
        connection.ping(id(n)).expect("an answer").expect("a status");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if way == Way::Anew {
                    connection = NativeClient::connect(address).expect("the backlog has room");
                }
                if connection.ping(id(n)).is_err() {
                    // It waited too long, or the process is gone.
                    let Ok(again) = NativeClient::connect(address) else { return };
                    connection = again;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Beating { stop, thread: Some(thread) }
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// A gauge or counter of clients, e.g. `suspected_clients`.
pub(crate) fn liveness(master: &Master, name: &str) -> u64 {
    let name = format!("master_client_liveness_{name}");
    let value = mooncake_tests::fault::metric(master, &name);
    value.unwrap_or_else(|| panic!("{name} is not there")) as u64
}

/// Waits until that gauge or counter has that value.
pub(crate) fn wait_liveness(master: &Master, name: &str, value: u64, seconds: u64) {
    wait_for(&format!("{name} is {value}"), seconds, || (liveness(master, name) == value).then_some(()));
}
