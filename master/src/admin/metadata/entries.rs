//! What transfer engines have put into the HTTP metadata server.

use super::keys::Prefix;
use crate::{
    clock::{Clock, Instant},
    core::ExternalMetadata,
    lock::Mutex,
};
use bytes::Bytes;
use hashbrown::HashMap;
use std::{fmt, sync::Arc};

/// Bytes of one value at the most.
pub(super) const MAX_VALUE: usize = 1 << 20;
/// Bytes of one key at the most.
const MAX_KEY: usize = 4096;
/// Bytes of all keys and values at the most.
const MAX_TOTAL: usize = 256 << 20;
/// What an entry costs beyond its key and value.
const OVERHEAD: usize = 128;

/// Why an entry was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Full {
    /// Longer than any name of a segment.
    #[error("the key has more than 4096 bytes")]
    KeyTooLong,
    /// All entries together.
    #[error("there is no room for more metadata")]
    NoRoom,
}

/// The entries, by their keys; in memory only, like upstream's.
pub struct MetadataEntries {
    entries: Mutex<Entries>,
    prefix: Prefix,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<Box<[u8]>, (Bytes, Instant)>,
    bytes: usize,
}

impl Entries {
    fn remove(&mut self, key: &[u8]) -> bool {
        let Some((value, _)) = self.by_key.remove(key) else { return false };
        self.bytes -= key.len() + value.len() + OVERHEAD;
        true
    }
}

impl fmt::Debug for MetadataEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataEntries").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl MetadataEntries {
    /// None yet. `cluster`: what the clients have as `MC_METADATA_CLUSTER_ID`, or empty.
    pub fn new(cluster: &str, clock: Arc<dyn Clock>) -> Arc<MetadataEntries> {
        Arc::new(MetadataEntries { entries: Mutex::default(), prefix: Prefix::new(cluster), clock })
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.entries.lock().by_key.get(key).map(|(value, _)| value.clone())
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        if key.len() > MAX_KEY {
            return Err(Full::KeyTooLong);
        }
        // A copy, so that the entry does not keep the buffer of its connection.
        let value = Bytes::copy_from_slice(value);
        let now = self.clock.now();
        let mut entries = self.entries.lock();
        let before = entries.by_key.get(key).map_or(0, |(value, _)| key.len() + value.len() + OVERHEAD);
        let after = entries.bytes - before + key.len() + value.len() + OVERHEAD;
        if after > MAX_TOTAL {
            return Err(Full::NoRoom);
        }
        entries.bytes = after;
        entries.by_key.insert(key.into(), (value, now));
        Ok(())
    }

    pub(super) fn remove(&self, key: &[u8]) -> bool {
        self.entries.lock().remove(key)
    }
}

impl ExternalMetadata for MetadataEntries {
    fn forget(&self, segment_name: &[u8], written_until: Instant) {
        for key in self.prefix.keys_of(segment_name) {
            let mut entries = self.entries.lock();
            if entries.by_key.get(&*key).is_some_and(|(_, written)| *written <= written_until) {
                entries.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::time::Duration;

    #[test]
    fn entries_are_bounded_and_counted() {
        let entries = MetadataEntries::new("", ManualClock::new(Instant::ZERO));
        assert_eq!(entries.put(&[b'k'; MAX_KEY + 1], b""), Err(Full::KeyTooLong));
        let value = vec![0; MAX_VALUE];
        let fitting = (0..u32::MAX).take_while(|n| entries.put(&n.to_be_bytes(), &value).is_ok()).count();
        assert_eq!(fitting, MAX_TOTAL / (MAX_VALUE + OVERHEAD + 4));
        entries.put(&0u32.to_be_bytes(), &value).expect("in the place of the one before");
        assert_eq!(entries.put(b"one more", &value), Err(Full::NoRoom));
        assert!(entries.remove(&0u32.to_be_bytes()) && !entries.remove(&0u32.to_be_bytes()));
        assert_eq!(entries.put(b"one more", &value), Ok(()));
        for n in 0..fitting {
            entries.remove(&(n as u32).to_be_bytes());
        }
        entries.remove(b"one more");
        assert_eq!(entries.entries.lock().bytes, 0);
    }

    #[test]
    fn a_later_incarnation_keeps_what_it_wrote() {
        let clock = ManualClock::new(Instant::ZERO);
        let entries = MetadataEntries::new("blue", clock.clone());
        let (ram, rpc) = (&b"mooncake/blue/ram/h:1"[..], &b"mooncake/blue/rpc_meta/h:1"[..]);
        entries.put(ram, b"old").unwrap();
        entries.put(rpc, b"old").unwrap();
        entries.put(b"mooncake/ram/h:1", b"of another cluster").unwrap();
        clock.advance(Duration::from_secs(10));
        let last_heard = clock.now();
        clock.advance(Duration::from_secs(1));
        entries.put(rpc, b"of the next process at that address").unwrap();
        entries.forget(b"h:1", last_heard);
        assert_eq!(entries.get(ram), None);
        assert!(entries.get(rpc).is_some() && entries.get(b"mooncake/ram/h:1").is_some());
    }
}
