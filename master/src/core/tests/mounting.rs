//! What mounts cost, and a Put, among many clients.

use super::*;
use crate::clock::{BootClock, Clock as _};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

fn many(count: u64) -> Core {
    let clock = Arc::new(BootClock);
    let permit = Arc::new(ServingPermit::standalone(clock.clone()));
    let core = Core::with_seed(CoreOptions::default(), clock, permit, 7);
    for n in 1..=count {
        core.mount_segment(client(n), spec(n, 64 * MIB)).unwrap();
    }
    core
}

/// The look at the segments while others mount and unmount is tested in `threads`; this is the one after another.
#[test]
fn names_hosts_and_owners_follow_every_mount_and_unmount() {
    let rig = Rig::new();
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // Names with several segments, hosts with several names, segments without a host, clients with several segments.
    let spec = |n: u64| SegmentSpec {
        name: format!("name-{}", n % 170).into_bytes().into(),
        host_id: if n.is_multiple_of(5) {
            b"".as_slice().into()
        } else {
            format!("host-{}", n % 7).into_bytes().into()
        },
        ..spec(n, MIB)
    };
    let owner = |n: u64| client(n % 30);
    let mut mounted = BTreeSet::new();
    for step in 0..3000 {
        let n = random.random_range(1..400);
        if mounted.remove(&n) {
            rig.core.unmount_segment(segment_id(n), owner(n)).unwrap();
            rig.settle();
        } else {
            rig.core.mount_segment(owner(n), spec(n)).unwrap();
            mounted.insert(n);
        }
        if step % 50 == 0 {
            rig.check();
        }
    }
    for n in mounted {
        rig.core.unmount_segment(segment_id(n), owner(n)).unwrap();
    }
    rig.settle();
    let placement = rig.core.placement.load();
    assert!(placement.segments().next().is_none() && placement.by_name().next().is_none());
}

/// Prints figures. `MOONCAKE_MOUNTS` says how many segments, `MOONCAKE_PUTS` how many Puts follow (the difference between
/// two numbers of them, counted by a profiler, is the cost of one); without any, everything is unmounted again.
#[test]
#[ignore = "measures"]
fn mounts_and_puts_among_many_clients() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (mounts, puts) = (number("MOONCAKE_MOUNTS", 2000), number("MOONCAKE_PUTS", 0));
    let began = BootClock.now();
    let core = many(mounts);
    println!("{mounts} mounts: {:?}", BootClock.now().saturating_since(began));
    let began = BootClock.now();
    let config = ReplicateConfig::default();
    for n in 0..puts {
        let key = n.to_le_bytes();
        let start = PutStart { client: client(1), key: &key, slice_length: 256, config: &config };
        core.put_start(&start).unwrap();
        core.put_end(client(1), &key, None, ReplicaType::All).unwrap();
    }
    println!("{puts} puts: {:?}", BootClock.now().saturating_since(began));
    if puts > 0 {
        // How long the clean-up of so many keys takes is another question.
        return;
    }
    let began = BootClock.now();
    for n in 1..=mounts {
        // Refused when too much is being taken out at this time.
        let unmount = || core.unmount_segment(segment_id(n), client(n));
        while unmount() == Err(ErrorCode::UnavailableInCurrentStatus) {
            core.background_tick();
        }
    }
    while !core.is_offboarded() {
        core.background_tick();
    }
    println!("{mounts} unmounts with their clean-up: {:?}", BootClock.now().saturating_since(began));
    assert_eq!(core.stats().keys, 0);
}
