//! The operations of a random sequence.

use crate::types::{ReplicateConfig, SoftPinAction};
use proptest::prelude::*;

pub(super) const KEYS: u8 = 24;
pub(super) const CLIENTS: u64 = 4;
pub(super) const SEGMENTS: u64 = 6;
pub(super) const SEGMENT_SIZE: u64 = 4000;
pub(super) const LEASE: u64 = 10;
pub(super) const HOLD: u64 = 30;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Start {
        client: u64,
        key: u8,
        size: u64,
        replicas: u64,
        want: Want,
    },
    Upsert {
        client: u64,
        key: u8,
        size: u64,
        want: Want,
    },
    /// Of memory, or of the file on disk.
    End {
        client: u64,
        key: u8,
        disk: bool,
    },
    Revoke {
        client: u64,
        key: u8,
        disk: bool,
    },
    EvictDisk {
        key: u8,
    },
    Exist {
        key: u8,
    },
    Get {
        key: u8,
    },
    Remove {
        key: u8,
        force: bool,
    },
    Clear {
        client: u64,
        key: u8,
        segment: Option<u64>,
    },
    RemoveAll {
        force: bool,
    },
    Mount {
        segment: u64,
    },
    Remount {
        client: u64,
        segments: Vec<u64>,
    },
    Unmount {
        segment: u64,
    },
    Graceful {
        segment: u64,
        seconds: u64,
    },
    Ping {
        client: u64,
    },
    Pass {
        seconds: u64,
        alive: u8,
    },
    Settle,
}

/// Pins and group of a Start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Want {
    pub(super) hard_pin: bool,
    /// Seconds; 0 takes the pin away.
    pub(super) soft_pin: Option<u64>,
    pub(super) group: Option<u8>,
}

impl Want {
    pub(super) fn config(self, replica_num: u64) -> ReplicateConfig<'static> {
        ReplicateConfig {
            replica_num,
            with_hard_pin: self.hard_pin,
            soft_pin_action: match self.soft_pin {
                None => SoftPinAction::Preserve,
                Some(0) => SoftPinAction::Disable,
                Some(_) => SoftPinAction::Enable,
            },
            soft_pin_ttl_ms: self.soft_pin.filter(|&ttl| ttl > 0).map(|ttl| ttl * 1000),
            group_id: self.group.map_or(&[], |group| [&b"g0"[..], b"g1"][usize::from(group)]),
            ..ReplicateConfig::default()
        }
    }
}

fn want() -> impl Strategy<Value = Want> {
    let soft_pin = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 2 => (1u64..200).prop_map(Some)];
    let group = prop_oneof![3 => Just(None), 1 => (0u8..2).prop_map(Some)];
    let some = (proptest::bool::weighted(0.05), soft_pin, group)
        .prop_map(|(hard_pin, soft_pin, group)| Want { hard_pin, soft_pin, group });
    prop_oneof![2 => Just(Want::default()), 1 => some]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let client = 1..=CLIENTS;
    let key = 0..KEYS;
    let size = prop_oneof![1u64..40, Just(100u64), 100u64..1500];
    let segment = 1..=SEGMENTS;
    let disk = proptest::bool::weighted(0.25);
    prop_oneof![
        16 => (client.clone(), key.clone(), size.clone(), 1u64..4, want())
            .prop_map(|(client, key, size, replicas, want)| Op::Start { client, key, size, replicas, want }),
        8 => (client.clone(), key.clone(), size, want())
            .prop_map(|(client, key, size, want)| Op::Upsert { client, key, size, want }),
        20 => (client.clone(), key.clone(), disk)
            .prop_map(|(client, key, disk)| Op::End { client, key, disk }),
        3 => (client.clone(), key.clone(), disk)
            .prop_map(|(client, key, disk)| Op::Revoke { client, key, disk }),
        1 => key.clone().prop_map(|key| Op::EvictDisk { key }),
        4 => key.clone().prop_map(|key| Op::Exist { key }),
        8 => key.clone().prop_map(|key| Op::Get { key }),
        6 => (key.clone(), any::<bool>()).prop_map(|(key, force)| Op::Remove { key, force }),
        3 => (client.clone(), key, proptest::option::of(segment.clone()))
            .prop_map(|(client, key, segment)| Op::Clear { client, key, segment }),
        1 => any::<bool>().prop_map(|force| Op::RemoveAll { force }),
        6 => segment.clone().prop_map(|segment| Op::Mount { segment }),
        3 => (client.clone(), proptest::collection::vec(segment.clone(), 0..3))
            .prop_map(|(client, segments)| Op::Remount { client, segments }),
        2 => segment.clone().prop_map(|segment| Op::Unmount { segment }),
        1 => (segment, 0u64..60).prop_map(|(segment, seconds)| Op::Graceful { segment, seconds }),
        4 => client.prop_map(|client| Op::Ping { client }),
        10 => (1u64..25, any::<u8>()).prop_map(|(seconds, alive)| Op::Pass { seconds, alive }),
        4 => Just(Op::Settle),
    ]
}
