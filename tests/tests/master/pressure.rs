//! Mixed load on a full pool: nothing fails but for the documented reasons, and nothing is left behind.

use crate::support::{MIB, base_of, id, metric, native};
use mooncake_master::{error::ErrorCode, rpc::native::generation::Method, rpc::native::value::Value};
use mooncake_tests::{
    Master, MasterBuilder, NativeClient,
    native::{Outcome, uuid},
    wait_for,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Seconds of load if `MOONCAKE_PRESSURE_SECONDS` does not say otherwise.
const SECONDS: u64 = 10;
const CONNECTIONS: u64 = 64;
const SEGMENTS: u64 = 4;
const SEGMENT_SIZE: u64 = 4 * MIB;
const KEYS: u32 = 1500;

/// Any pins, a group for some.
fn placement(random: &mut StdRng) -> Value {
    let (soft_pin, ttl) = match random.random_range(0..8) {
        0 => (1, Some(Value::U64(random.random_range(1..2000)))),
        1 => (2, None),
        _ => (0, None),
    };
    let group = match random.random_range(0..4) {
        0 => Some(Value::Seq(vec![Value::str(format!("g{}", random.random_range(0..20)))])),
        _ => None,
    };
    Value::Struct(vec![
        Value::U64(random.random_range(1..3)),
        Value::U64(0),
        Value::U64(0),
        Value::U8(soft_pin),
        Value::Opt(ttl.map(Box::new)),
        Value::Bool(random.random_range(0..400) == 0),
        Value::Seq(vec![]),
        Value::str(""),
        Value::Seq(vec![]),
        Value::Bool(false),
        Value::U8(0),
        Value::str(""),
        Value::Opt(group.map(Box::new)),
    ])
}

/// One call: its name, what it may be refused with, and what it was answered.
fn one_call(
    connection: &mut NativeClient,
    client: u64,
    random: &mut StdRng,
) -> (&'static str, &'static [ErrorCode], Outcome) {
    use ErrorCode::{
        IllegalClient, InvalidParams, NoAvailableHandle, ObjectAlreadyExists, ObjectHasLease, ObjectNotFound,
        ReplicaIsNotReady,
    };
    let key = format!("key-{}", random.random_range(0..KEYS));
    let tenant = || Value::str("default");
    let mut call = |method, args| connection.call(method, args).expect("an answer");
    match random.random_range(0..100) {
        0..50 => {
            let size = random.random_range(1..48 << 10);
            let upsert = random.random_range(0..4) == 0;
            let (start, end) = if upsert {
                (Method::UpsertStart, Method::UpsertEnd)
            } else {
                (Method::PutStart, Method::PutEnd)
            };
            let args =
                vec![uuid(id(client)), Value::str(&key), Value::U64(size), placement(random), tenant()];
            let started = call(start, args);
            if started.is_err() {
                // Another group than the object has, or no room.
                let allowed: &[ErrorCode] = if upsert {
                    &[NoAvailableHandle, InvalidParams]
                } else {
                    &[NoAvailableHandle, ObjectAlreadyExists]
                };
                return ("start", allowed, started);
            }
            let meta = Value::Struct(vec![Value::str(&key), Value::Opt(None)]);
            let ended = call(end, vec![uuid(id(client)), meta, Value::I32(4), tenant()]);
            // Another client's Upsert may have taken its place.
            ("end", &[IllegalClient, ObjectNotFound], ended)
        }
        50..80 => {
            let got = call(Method::GetReplicaList, vec![Value::str(&key), tenant()]);
            ("get", &[ObjectNotFound, ReplicaIsNotReady], got)
        }
        80..90 => ("exist", &[], call(Method::ExistKey, vec![Value::str(&key), tenant()])),
        _ => {
            let force = Value::Bool(random.random());
            let removed = call(Method::Remove, vec![Value::str(&key), force, tenant()]);
            ("remove", &[ObjectNotFound, ObjectHasLease, ReplicaIsNotReady], removed)
        }
    }
}

#[test]
fn a_full_pool_under_mixed_load_refuses_only_for_documented_reasons() {
    let seconds = std::env::var("MOONCAKE_PRESSURE_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |text| text.parse().expect("MOONCAKE_PRESSURE_SECONDS: a number"));
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let master = MasterBuilder::default()
        .arg("--default_kv_lease_ttl=50")
        .arg("--put_start_discard_timeout_sec=1")
        .arg("--put_start_release_timeout_sec=2")
        .arg("--allocation_strategy=free_ratio_first")
        .start();
    let owners = 1000..1000 + SEGMENTS;
    let mut keeper = native(&master);
    let mount = |keeper: &mut NativeClient, n| {
        let name = format!("127.0.0.1:{n}");
        keeper.remount(id(n), id(n), &name, base_of(n), SEGMENT_SIZE).expect("an answer").expect("mounted");
    };
    owners.clone().for_each(|n| mount(&mut keeper, n));
    let until = Instant::now() + Duration::from_secs(seconds);
    let stop = AtomicBool::new(false);
    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for n in owners.clone() {
                    assert!(keeper.ping(id(n)).expect("an answer").expect("a Ping").1);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|worker| {
                let mut connection = native(&master);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed + worker);
                    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
                    while Instant::now() < until {
                        let (call, allowed, outcome) = one_call(&mut connection, worker, &mut random);
                        let answer = match outcome {
                            Ok(_) => "ok".to_owned(),
                            Err(code) => {
                                assert!(allowed.contains(&code), "{call}: {code}");
                                code.to_string()
                            }
                        };
                        *answers.entry(format!("{call}: {answer}")).or_default() += 1;
                    }
                    answers
                })
            })
            .collect();
        let all: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        for of_worker in all {
            for (answer, count) in of_worker.expect("a worker without a failure") {
                *answers.entry(answer).or_default() += count;
            }
        }
    });
    println!("{answers:#?}");
    for expected in ["start: NO_AVAILABLE_HANDLE (-200)", "end: ok", "get: ok", "exist: ok", "remove: ok"] {
        assert!(answers.contains_key(expected), "never: {expected}");
    }
    assert!(metric(&master, "master_evicted_key_count") > Some(0.0));
    assert!(metric(&master, "master_successful_evictions_total") > Some(0.0));
    everything_can_be_removed(&master, owners);
}

/// Removes all and unmounts: every gauge is at 0 then.
fn everything_can_be_removed(master: &Master, owners: std::ops::Range<u64>) {
    let mut connection = native(master);
    let gauges = [
        "master_key_count",
        "mooncake_master_unfinished_put_count",
        "mem_cache_nums_",
        "master_soft_pin_key_count",
        "mooncake_master_evictable_key_count",
        "mooncake_master_metadata_bytes",
        "master_put_start_discarded_staging_size",
        "master_allocated_bytes",
    ];
    let at_zero = |gauges: &[&str]| gauges.iter().all(|name| metric(master, name) == Some(0.0)).then_some(());
    wait_for("everything is gone", 20, || {
        // What was set aside is free after the release time-out; nothing is unfinished for long.
        let args = vec![Value::Bool(true), Value::str("default")];
        connection.request(Method::RemoveAll, args).expect("an answer");
        for n in owners.clone() {
            connection.ping(id(n)).expect("an answer").expect("a Ping");
        }
        at_zero(&gauges)
    });
    for n in owners {
        let unmounted = connection.call(Method::UnmountSegment, vec![uuid(id(n)), uuid(id(n))]);
        unmounted.expect("an answer").expect("unmounted");
    }
    wait_for("no memory is left", 10, || at_zero(&["master_total_capacity_bytes", "master_allocated_bytes"]));
}
