//! What time does to objects, puts and clients, end to end with short times.

use crate::support::{ENDPOINT, MIB, answered, base_of, id, metric, native};
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{generation::Method, value::Value},
    types::Uuid,
};
use mooncake_tests::{Master, MasterBuilder, NativeClient, native::uuid, wait_for};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

const DONE: Value = Value::Void;

fn remove(client: &mut NativeClient, key: &str) -> Result<Value, ErrorCode> {
    answered(client.call(Method::Remove, vec![Value::str(key), Value::Bool(false), Value::str("default")]))
}

/// A client's heartbeat, five times a second on a connection of its own.
struct Heartbeat {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    fn start(master: &Master, client: Uuid) -> Heartbeat {
        let mut connection = native(master);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                connection.ping(client).expect("an answer").expect("a status");
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Heartbeat { stop, thread: Some(thread) }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_read_lease_protects_for_its_time() {
    let master = MasterBuilder::default().arg("--default_kv_lease_ttl=1000").start();
    let mut client = native(&master);
    assert_eq!(answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), MIB)), Ok(DONE));
    for key in ["by-get", "by-exist", "unread"] {
        assert_eq!(answered(client.put(id(1), key, 100)), Ok(DONE));
    }
    assert_eq!(remove(&mut client, "unread"), Ok(DONE), "a write grants no lease");
    assert!(answered(client.get("by-get")).is_ok());
    assert_eq!(remove(&mut client, "by-get"), Err(ErrorCode::ObjectHasLease));
    assert_eq!(client.exist("by-exist").expect("an answer"), Ok(true));
    assert_eq!(remove(&mut client, "by-exist"), Err(ErrorCode::ObjectHasLease));
    for key in ["by-get", "by-exist"] {
        wait_for("the lease has run out", 10, || (remove(&mut client, key) == Ok(DONE)).then_some(()));
    }
    wait_for("its memory is free", 5, || {
        (metric(&master, "master_allocated_bytes") == Some(0.0)).then_some(())
    });
}

#[test]
fn an_abandoned_put_is_replaced_and_its_memory_comes_back() {
    let master = MasterBuilder::default()
        .arg("--put_start_discard_timeout_sec=2")
        .arg("--put_start_release_timeout_sec=4")
        .start();
    let mut client = native(&master);
    assert_eq!(answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), MIB)), Ok(DONE));
    assert!(answered(client.put_start(id(1), "a", 1000)).is_ok());
    assert_eq!(answered(client.put_start(id(2), "a", 1000)), Err(ErrorCode::ObjectAlreadyExists));
    wait_for("another may write it", 10, || answered(client.put_start(id(2), "a", 1000)).ok());
    assert_eq!(answered(client.put_end(id(1), "a")), Err(ErrorCode::IllegalClient), "too late");
    assert_eq!(answered(client.put_end(id(2), "a")), Ok(DONE));
    assert!(answered(client.get("a")).is_ok());
    wait_for("the first writer's memory is used again", 15, || {
        let aside = metric(&master, "master_put_start_discarded_staging_size");
        (aside == Some(0.0) && metric(&master, "master_put_start_release_cnt") >= Some(1.0)).then_some(())
    });
    assert!(metric(&master, "master_put_start_discard_cnt") >= Some(1.0));
}

/// Design §7: whoever re-mounts may be written to by writers of an earlier master; whoever mounts is not.
#[test]
fn re_mounted_memory_takes_nothing_for_a_while_and_fresh_memory_does_at_once() {
    // The hold is the longer one of these two.
    let master = MasterBuilder::default()
        .arg("--put_start_discard_timeout_sec=5")
        .arg("--default_kv_lease_ttl=1000")
        .start();
    let mut client = native(&master);
    let _heartbeat = Heartbeat::start(&master, id(1));
    assert_eq!(answered(client.remount(id(1), id(1), "re-mounted", base_of(1), MIB)), Ok(DONE));
    assert_eq!(answered(client.put_start(id(1), "a", 100)), Err(ErrorCode::NoAvailableHandle));
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, true)), "that is no matter of liveness");
    assert_eq!(answered(client.mount(id(1), id(2), "fresh", base_of(2), MIB)), Ok(DONE));
    let placed = answered(client.put_start(id(1), "a", 100)).expect("room");
    assert!(format!("{placed:?}").contains(&format!("{:?}", Value::str("fresh"))), "{placed:?}");
    assert_eq!(answered(client.put_end(id(1), "a")), Ok(DONE));
    assert_eq!(answered(client.call(Method::UnmountSegment, vec![uuid(id(2)), uuid(id(1))])), Ok(DONE));
    let placed = wait_for("the hold is over", 15, || answered(client.put_start(id(1), "b", 100)).ok());
    assert!(format!("{placed:?}").contains(&format!("{:?}", Value::str("re-mounted"))), "{placed:?}");
}

/// B1 to B9 through the wire. A master commits no Offline in its first 40 s, which is why this takes as long.
#[test]
fn a_silent_client_is_suspected_recovers_and_at_last_expires() {
    let master = MasterBuilder::default()
        .arg("--client_active_ttl_sec=1")
        .arg("--client_suspicion_ttl_sec=1")
        .arg("--put_start_discard_timeout_sec=2")
        .arg("--default_kv_lease_ttl=1000")
        .start();
    let mut client = native(&master);
    assert_eq!(answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), MIB)), Ok(DONE));
    assert_eq!(answered(client.remount(id(1), id(1), ENDPOINT, base_of(1), MIB)), Ok(DONE));
    for n in 0..10 {
        assert_eq!(answered(client.put(id(1), &format!("k{n}"), 1000)), Ok(DONE));
    }
    let gauge = |state: &str| metric(&master, &format!("master_client_liveness_{state}_clients"));
    wait_for("it is suspected", 15, || (gauge("suspected") == Some(1.0)).then_some(()));
    assert_eq!(answered(client.get("k0")), Err(ErrorCode::ReplicaIsNotReady));
    assert_eq!(client.exist("k0").expect("an answer"), Ok(false));
    assert_eq!(answered(client.put_start(id(2), "k0", 10)), Err(ErrorCode::ObjectAlreadyExists));
    assert_eq!(answered(client.put_start(id(2), "new", 10)), Err(ErrorCode::NoAvailableHandle));
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, true)), "a Ping recovers it");
    assert!(answered(client.get("k0")).is_ok(), "and all that it has");
    wait_for("and it is suspected again", 15, || {
        let transitions = metric(&master, "master_client_liveness_suspected_transitions_total");
        (transitions == Some(2.0) && gauge("suspected") == Some(1.0)).then_some(())
    });
    assert_eq!(metric(&master, "master_client_liveness_recoveries_total"), Some(1.0));
    wait_for("it is offline and cleaned up", 60, || {
        let transitions = metric(&master, "master_client_liveness_offline_transitions_total");
        (transitions == Some(1.0) && gauge("offline") == Some(0.0)).then_some(())
    });
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, false)), "NEED_REMOUNT");
    assert_eq!(client.exist("k0").expect("an answer"), Ok(false));
    assert_eq!(answered(client.get("k0")), Err(ErrorCode::ObjectNotFound));
    wait_for("nothing of it is left", 10, || {
        let left = ["master_allocated_bytes", "master_total_capacity_bytes", "master_key_count"];
        left.iter().all(|name| metric(&master, name) == Some(0.0)).then_some(())
    });
    // The put that found no room may have made some.
    let gone = ["mooncake_master_offboarded_replicas_total", "master_evicted_key_count"];
    let gone = gone.map(|name| metric(&master, name).expect("a metric"));
    assert!(gone[0] > 0.0 && gone.iter().sum::<f64>() >= 10.0, "{gone:?}");

    // The same client comes back as a new incarnation, with nothing of the old one.
    assert_eq!(answered(client.remount(id(1), id(1), ENDPOINT, base_of(1), MIB)), Ok(DONE));
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, true)));
    assert_eq!(answered(client.get("k0")), Err(ErrorCode::ObjectNotFound));
    wait_for("one active client", 5, || (gauge("active") == Some(1.0)).then_some(()));
}
