//! A shard's table of objects: what finds one, and how it grows.

use super::{
    Object, Store,
    together::{TOGETHER, prefetch_all},
};
use hashbrown::HashTable;
use smallvec::SmallVec;

/// Objects by the [hash of their tag](spread).
pub(super) type Table = HashTable<Box<Object>>;

/// What finds an object in its shard's table: 32 bits of its hash, none of which chose the shard.
pub(super) fn tag_of(hash: u64) -> u32 {
    hash as u32
}

/// The hash under which the table knows a tag.
pub(super) fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The same from the object itself, which is read for it.
pub(super) fn table_hash(store: &Store, object: &Object) -> u64 {
    spread(tag_of(store.hash(object.key())))
}

/// Makes room in a full table. The table would do it by itself, but wait for each object in turn.
pub(super) fn grow(table: &mut Table, store: &Store) {
    let most = table.num_buckets() / 8 * 7;
    // Full of what was removed: the same size, without that.
    let wanted = if table.len() < most / 2 { most } else { most.max(table.len()) + 1 };
    let mut objects = std::mem::replace(table, Table::with_capacity(wanted)).into_iter();
    loop {
        let some: SmallVec<[Box<Object>; TOGETHER]> = objects.by_ref().take(TOGETHER).collect();
        if some.is_empty() {
            return;
        }
        some.iter().for_each(|object| prefetch_all(&**object));
        for object in some {
            table.insert_unique(table_hash(store, &object), object, |object| table_hash(store, object));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Instant, core::store::object::NewObject, types::ClientId};

    fn object(key: &[u8]) -> Object {
        let writer = ClientId { first: 1, second: 1 };
        let new = NewObject {
            key,
            writer,
            size: 1,
            now: Instant::ZERO,
            hard_pinned: false,
            data_type: 0,
            pending_pin: None,
        };
        Object::new(&new, SmallVec::new())
    }

    fn add(table: &mut Table, store: &Store, key: &[u8]) {
        if table.len() == table.capacity() {
            grow(table, store);
            assert!(table.len() < table.capacity());
        }
        let object = Box::new(object(key));
        table.insert_unique(table_hash(store, &object), object, |_| panic!("grown by itself"));
    }

    fn has(table: &Table, store: &Store, key: &[u8]) -> bool {
        table.find(spread(tag_of(store.hash(key))), |object| object.key() == key).is_some()
    }

    #[test]
    fn everything_is_found_after_growth_and_only_what_is_there_makes_it_larger() {
        let store = Store::new(7, 0, 0);
        let mut table = Table::new();
        let key = |number: u32| number.to_le_bytes();
        for number in 0..5000 {
            add(&mut table, &store, &key(number));
        }
        assert!((0..5000).all(|number| has(&table, &store, &key(number))));
        let buckets = table.num_buckets();
        // A hundred stay, others come and go: their traces fill the table again and again.
        table.retain(|object| object.key() < &key(100)[..] && object.key()[1..] == [0; 3]);
        assert_eq!(table.len(), 100);
        for number in 5000..60_000 {
            add(&mut table, &store, &key(number));
            let hash = spread(tag_of(store.hash(&key(number))));
            let entry = table.find_entry(hash, |object| object.key() == key(number));
            drop(entry.expect("it was added").remove());
        }
        assert_eq!((table.len(), table.num_buckets()), (100, buckets));
        assert!((0..100).all(|number| has(&table, &store, &key(number))));
    }
}
