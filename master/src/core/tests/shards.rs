//! Held shards and walks.

use super::*;
use crate::types::{Walk, WalkCursor};
use regex::bytes::Regex;

fn walk(mut step: impl FnMut(&mut WalkCursor) -> Attempt<Walk>) -> (u64, usize) {
    let mut cursor = WalkCursor::default();
    for steps in 1..1_000_000 {
        if step(&mut cursor).unwrap() == Walk::Done {
            return (cursor.acted, steps);
        }
    }
    panic!("the walk never ends");
}

#[test]
fn a_held_shard_is_busy_and_costs_only_its_own_keys() {
    let rig = Rig::with_segment();
    let keys: Vec<_> = (0..5000u32).map(u32::to_le_bytes).collect();
    for key in &keys {
        rig.put(1, key, 10);
    }
    let held = rig.core.shard_of(&keys[0]);
    let other = keys.iter().find(|key| rig.core.shard_of(*key) != held).unwrap();
    let hold = rig.core.hold_shard(held);
    let busy = OpError::Busy { shard: held };
    assert!(!rig.core.try_read_shard(held));
    assert_eq!((0..SHARDS).filter(|&shard| rig.core.try_read_shard(shard)).count(), 1023);
    assert_eq!(rig.core.exist_key(&keys[0]), Err(busy));
    assert_eq!(rig.core.get_replica_list(&keys[0]).unwrap_err(), busy);
    assert_eq!(rig.start(1, &keys[0], 1).unwrap_err(), busy);
    assert_eq!(rig.upsert(1, &keys[0], 1).unwrap_err(), busy);
    assert_eq!(rig.end(1, &keys[0]), Err(busy));
    assert_eq!(rig.core.remove(&keys[0], true), Err(busy));
    assert_eq!(rig.core.batch_replica_clear(client(1), &keys[0], b""), Err(busy));
    assert_eq!(rig.core.exist_key(other), Ok(true));
    let mut cursor = WalkCursor { shard: held, ..WalkCursor::default() };
    assert_eq!(rig.core.remove_matching(None, true, &mut cursor), Err(busy));
    drop(hold);
    assert!(rig.core.try_read_shard(held) && !rig.core.try_read_shard(SHARDS));
    assert_eq!(rig.core.exist_key(&keys[0]), Ok(true));
}

#[test]
fn remove_all_skips_what_is_leased_or_unfinished() {
    let rig = Rig::with_segment();
    for n in 0..20_000u32 {
        rig.start(1, &n.to_le_bytes(), 10).unwrap();
        if n % 100 != 0 {
            rig.end(1, &n.to_le_bytes()).unwrap();
        }
        if n % 100 == 1 {
            rig.core.exist_key(&n.to_le_bytes()).unwrap();
        }
    }
    assert_eq!(walk(|cursor| rig.core.remove_matching(None, false, cursor)).0, 20_000 - 400);
    assert_eq!(
        walk(|cursor| rig.core.remove_matching(None, true, cursor)).0,
        200,
        "force overrides leases only"
    );
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.unfinished_keys, stats.allocated_bytes), (200, 200, 2000));
    let (removed, steps) = walk(|cursor| rig.core.remove_matching(None, true, cursor));
    assert_eq!(removed, 0);
    assert!(steps <= 201, "empty shards are no steps: {steps}");
}

#[test]
fn a_walk_needs_no_write_lock_where_nothing_is_to_be_removed() {
    let rig = Rig::with_segment();
    rig.put(1, b"key", 10);
    let regex = Regex::new("^other").unwrap();
    let shard = rig.core.shard_of(b"key");
    // A reader is in: a write lock could not be had.
    let reader = rig.core.store.shard(shard).read();
    assert_eq!(walk(|cursor| rig.core.remove_matching(Some(&regex), true, cursor)).0, 0);
    drop(reader);
}

#[test]
fn regex_searches_and_lists_grant_leases() {
    let rig = Rig::with_segment();
    for n in 0..3000 {
        rig.put(1, format!("model/{}/{n}", n % 3).as_bytes(), 10);
    }
    rig.start(1, b"model/1/unfinished", 10).unwrap();
    let regex = Regex::new("/1/").unwrap();
    let mut found = Vec::new();
    let (acted, _) = walk(|cursor| rig.core.replica_lists_matching(&regex, cursor, &mut found));
    assert_eq!((acted, found.len()), (1000, 1000));
    assert!(found.iter().all(|(key, replicas)| regex.is_match(key) && replicas.len() == 1));
    let all = Regex::new("model").unwrap();
    assert_eq!(
        walk(|cursor| rig.core.remove_matching(Some(&all), false, cursor)).0,
        2000,
        "the others are leased"
    );
}

#[test]
fn a_walk_visits_every_key_although_the_tables_change_under_it() {
    let rig = Rig::with_segment();
    let all = Regex::new("^stay").unwrap();
    let keys = 70_000u32;
    for n in 0..keys {
        rig.put(1, format!("stay{n}").as_bytes(), 8);
    }
    let mut found = Vec::new();
    let mut extra = 0u32;
    walk(|cursor| {
        // Growth of the very shard that is being walked, and removals from it.
        for _ in 0..40 {
            rig.put(1, format!("more{extra}").as_bytes(), 8);
            extra += 1;
        }
        rig.core.replica_lists_matching(&all, cursor, &mut found)
    });
    let mut seen: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
    assert_eq!(seen.len(), keys as usize, "each once");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), keys as usize);
    assert_eq!(walk(|cursor| rig.core.remove_matching(None, true, cursor)).0, u64::from(keys + extra));
    assert_eq!(rig.core.stats().allocated_bytes, 0);
}
