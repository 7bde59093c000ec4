//! Several keys at once: the same results as one by one, in order, whatever is held.

use super::*;
use crate::core::TOGETHER;

type Key = [u8; 4];

fn keys(range: std::ops::Range<u32>) -> Vec<Key> {
    range.map(u32::to_le_bytes).collect()
}

fn bytes(keys: &[Key]) -> Vec<&[u8]> {
    keys.iter().map(Key::as_slice).collect()
}

/// Serves all, group by group, as a front end does; how many groups that took. Fails when one is busy.
#[track_caller]
fn all(count: usize, mut some: impl FnMut(usize) -> usize) -> usize {
    let (mut done, mut groups) = (0, 0);
    while done < count {
        let served = some(done);
        assert!((1..=TOGETHER).contains(&served), "{served} of {count} from {done}");
        done += served;
        groups += 1;
    }
    assert_eq!(done, count);
    groups
}

fn starts(rig: &Rig, writer: u64, keys: &[Key], size: u64) -> Vec<Result<usize, ErrorCode>> {
    let config = ReplicateConfig::default();
    let items: Vec<(&[u8], u64)> = keys.iter().map(|key| (key.as_slice(), size)).collect();
    let mut results = Vec::new();
    all(items.len(), |from| {
        rig.core.put_starts(&items[from..], (client(writer), &config), |started| {
            results.push(started.map(|replicas| replicas.count()));
        })
    });
    results
}

fn ends(rig: &Rig, writer: u64, keys: &[Key]) -> Vec<Result<(), ErrorCode>> {
    let items: Vec<(&[u8], Option<u64>)> = keys.iter().map(|key| (key.as_slice(), Some(7))).collect();
    let mut results = Vec::new();
    all(items.len(), |from| {
        rig.core.put_ends(client(writer), &items[from..], ReplicaType::All, |ended| results.push(ended))
    });
    results
}

fn exist(rig: &Rig, keys: &[Key]) -> Vec<bool> {
    let mut results = Vec::new();
    all(keys.len(), |from| rig.core.exist_keys(&bytes(&keys[from..]), |exists| results.push(exists)));
    results
}

fn addresses(rig: &Rig, keys: &[Key]) -> Vec<Result<(u64, Option<u64>), ErrorCode>> {
    let mut results = Vec::new();
    all(keys.len(), |from| {
        rig.core.get_replica_lists(&bytes(&keys[from..]), |list| {
            results.push(list.map(|list| (list.replicas.memory[0].address, list.object_checksum)));
        })
    });
    results
}

fn refusal<T>(result: Attempt<T>) -> Result<T, ErrorCode> {
    result.map_err(|error| error.code().expect("nothing is held"))
}

#[test]
fn the_results_are_those_of_one_by_one() {
    let (together, single) = (Rig::with_segment(), Rig::with_segment());
    // Some keys twice, one of them at once, and some never put.
    let mut wanted = keys(0..1000);
    wanted.extend(keys(500..600));
    wanted.insert(3, wanted[2]);
    let one_by_one: Vec<_> =
        wanted.iter().map(|key| refusal(single.start(1, key, 10)).map(|replicas| replicas.count())).collect();
    let started = starts(&together, 1, &wanted, 10);
    assert_eq!(started, one_by_one);
    assert_eq!(started[3], Err(ErrorCode::ObjectAlreadyExists), "the same key once more");
    assert_eq!(exist(&together, &wanted), vec![false; wanted.len()], "not before the End");

    let others = keys(900..1100);
    let end = |key: &Key| refusal(single.core.put_end(client(2), key, Some(7), ReplicaType::All));
    assert_eq!(ends(&together, 2, &others), others.iter().map(end).collect::<Vec<_>>(), "another client's");
    let end = |key: &Key| refusal(single.core.put_end(client(1), key, Some(7), ReplicaType::All));
    assert_eq!(ends(&together, 1, &wanted[..950]), wanted[..950].iter().map(end).collect::<Vec<_>>());

    let asked = keys(0..1200);
    let one_by_one: Vec<_> = asked.iter().map(|key| single.core.exist_key(key).unwrap()).collect();
    assert_eq!(exist(&together, &asked), one_by_one);
    assert!(one_by_one.contains(&true) && one_by_one.contains(&false));
    let one_by_one: Vec<_> = asked
        .iter()
        .map(|key| refusal(single.core.get_replica_list(key)))
        .map(|list| list.map(|list| (list.replicas.memory[0].address, list.object_checksum)))
        .collect();
    assert_eq!(addresses(&together, &asked), one_by_one);
    assert!(one_by_one.contains(&Err(ErrorCode::ReplicaIsNotReady)));
    assert!(one_by_one.contains(&Err(ErrorCode::ObjectNotFound)));
    // All leases, by reads and by probes, end at the same time.
    for rig in [&together, &single] {
        rig.clock.advance(CoreOptions::default().read_lease_ttl + SECOND);
        assert_eq!(refusal(rig.core.remove(&asked[0], false)), Ok(()));
        rig.check();
    }
}

#[test]
fn a_group_ends_at_a_held_shard_and_goes_on_from_there() {
    let rig = Rig::with_segment();
    let keys = keys(0..20);
    assert_eq!(starts(&rig, 1, &keys, 10), vec![Ok(1); 20]);
    let held = rig.core.shard_of(&keys[5]);
    let first = keys.iter().position(|key| rig.core.shard_of(key) == held).unwrap();
    let hold = rig.core.hold_shard(held);
    let items: Vec<(&[u8], Option<u64>)> = keys.iter().map(|key| (key.as_slice(), None)).collect();
    let end = |from: usize| {
        rig.core.put_ends(client(1), &items[from..], ReplicaType::All, |ended| assert_eq!(ended, Ok(())))
    };
    let mut done = 0;
    while let served @ 1.. = end(done) {
        done += served;
    }
    assert_eq!(done, first, "what is before it is served, it is not, and nothing behind it is");
    let mut seen = Vec::new();
    while seen.len() < first {
        let from = seen.len();
        assert!(rig.core.exist_keys(&bytes(&keys[from..]), |exists| seen.push(exists)) > 0);
    }
    assert_eq!(seen, vec![true; first]);
    assert_eq!(rig.core.exist_keys(&bytes(&keys[first..]), |_| panic!("it is held")), 0);
    assert_eq!(rig.core.get_replica_lists(&bytes(&keys[first..]), |_| panic!("it is held")), 0);
    drop(hold);
    all(keys.len() - first, |from| end(first + from));
    assert_eq!(exist(&rig, &keys), vec![true; 20]);
    rig.check();
}

#[test]
fn a_group_of_starts_ends_with_the_first_for_which_there_is_no_room() {
    let rig = Rig::new();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    let config = ReplicateConfig::default();
    let keys = keys(0..8);
    let items: Vec<(&[u8], u64)> = keys.iter().map(|key| (key.as_slice(), MIB / 2)).collect();
    let mut results = Vec::new();
    while results.last() != Some(&Err(ErrorCode::NoAvailableHandle)) {
        let from = results.len();
        rig.core.put_starts(&items[from..], (client(1), &config), |started| {
            assert_ne!(results.last(), Some(&Err(ErrorCode::NoAvailableHandle)), "one is enough");
            results.push(started.map(|replicas| replicas.count()));
        });
    }
    assert_eq!(results, [Ok(1), Ok(1), Err(ErrorCode::NoAvailableHandle)]);
    rig.check();
}
