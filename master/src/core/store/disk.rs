//! DISK replicas (facts §3.1): files under `root_fs_dir`, which clients write, read and evict by themselves. The master
//! only names them and remembers which ones are there.

use crate::types::{DiskDescriptor, ReplicaStatus};
use md5::{Digest, Md5};
use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Longest file name that every file system takes, bytes.
const MAX_FILE_NAME: usize = 255;

/// Where the files lie, and what is counted of them.
#[derive(Debug)]
pub(crate) struct DiskStorage {
    /// `root_fs_dir`/`cluster_id`.
    directory: Box<str>,
    /// Complete ones.
    files: AtomicU64,
    /// Of all.
    bytes: AtomicU64,
}

/// The one file of an object. It is counted for as long as it exists here.
#[derive(Debug)]
pub(crate) struct DiskReplica {
    storage: Arc<DiskStorage>,
    path: Arc<[u8]>,
    id: u64,
    size: u64,
    status: ReplicaStatus,
}

impl DiskStorage {
    pub(crate) fn new(directory: &str) -> DiskStorage {
        DiskStorage { directory: directory.into(), files: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Files that are complete, and bytes of all that are there or being written.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// The file of a key: two levels of 16 directories each, as upstream has them, then the key with `_` for what no
    /// file name may contain. A name in which that, or the limit of file names, loses something of the key ends in the
    /// key's digest, so that no two keys share a file.
    fn path(&self, key: &[u8]) -> Arc<[u8]> {
        let digest = Md5::digest(key);
        let mut path = self.directory.as_bytes().to_vec();
        path.extend([b'/', b'a' + (digest[0] & 15), b'/', b'a' + (digest[0] >> 4), b'/']);
        let start = path.len();
        let plain = |byte: u8| !byte.is_ascii_control() && !b"/\\:*?\"<>|".contains(&byte);
        path.extend(key.iter().map(|&byte| if plain(byte) { byte } else { b'_' }));
        let is_whole = key.iter().all(|&byte| plain(byte)) && ![&b"."[..], b".."].contains(&key);
        if !is_whole || key.len() > MAX_FILE_NAME {
            let mut suffix = String::from(".");
            for byte in digest {
                // Writing to a String cannot fail.
                let _ = write!(suffix, "{byte:02x}");
            }
            path.truncate(start + MAX_FILE_NAME - suffix.len());
            path.extend(suffix.as_bytes());
        }
        path.into()
    }

    /// A file that is still to be written.
    pub(crate) fn replica(self: &Arc<DiskStorage>, key: &[u8], size: u64, id: u64) -> DiskReplica {
        self.bytes.fetch_add(size, Ordering::Relaxed);
        DiskReplica {
            path: self.path(key),
            storage: self.clone(),
            id,
            size,
            status: ReplicaStatus::Processing,
        }
    }
}

impl DiskReplica {
    pub(crate) fn is_complete(&self) -> bool {
        self.status == ReplicaStatus::Complete
    }

    pub(crate) fn set_status(&mut self, status: ReplicaStatus) {
        match (self.status, status) {
            (ReplicaStatus::Processing, ReplicaStatus::Complete) => {
                self.storage.files.fetch_add(1, Ordering::Relaxed);
            }
            (ReplicaStatus::Complete, ReplicaStatus::Processing) => {
                self.storage.files.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        self.status = status;
    }

    pub(crate) fn describe(&self) -> DiskDescriptor {
        DiskDescriptor { id: self.id, status: self.status, file_path: self.path.clone(), size: self.size }
    }
}

impl Drop for DiskReplica {
    fn drop(&mut self) {
        self.set_status(ReplicaStatus::Processing);
        self.storage.bytes.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_keys_share_a_file_and_every_name_is_one_that_file_systems_take() {
        let storage = DiskStorage::new("/mnt/pool/cluster");
        let long =
            [vec![b'k'; 255], vec![b'k'; 256], vec![b'k'; 300], [vec![b'k'; 299], vec![b'l']].concat()];
        let odd: [&[u8]; 8] =
            [b"a/b", b"a_b", b"a\\b", b"..", b".", b"\xff\0", b"\xff_", b"../../etc/passwd"];
        let keys: Vec<&[u8]> =
            long.iter().map(Vec::as_slice).chain(odd).chain([&b"plain-key.1"[..]]).collect();
        let paths: BTreeSet<_> = keys.iter().map(|key| storage.path(key)).collect();
        assert_eq!(paths.len(), keys.len());
        for path in &paths {
            let name = path.strip_prefix(b"/mnt/pool/cluster/").expect("below the directory");
            let [dir1, b'/', dir2, b'/', name @ ..] = name else { panic!("two levels: {name:?}") };
            assert!([dir1, dir2].into_iter().all(|dir| (b'a'..=b'p').contains(dir)));
            assert!((1..=MAX_FILE_NAME).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0));
            assert!(![&b"."[..], b".."].contains(&name));
        }
        assert!(storage.path(b"plain-key.1").ends_with(b"/plain-key.1"));
        assert!(storage.path(&long[0]).ends_with(&long[0]));
    }

    #[test]
    fn files_are_counted_for_as_long_as_they_are_known() {
        let storage = Arc::new(DiskStorage::new("/d"));
        let mut first = storage.replica(b"k", 10, 1);
        let second = storage.replica(b"l", 5, 2);
        assert_eq!(storage.usage(), (0, 15));
        first.set_status(ReplicaStatus::Complete);
        assert_eq!(storage.usage(), (1, 15));
        first.set_status(ReplicaStatus::Processing);
        assert_eq!(storage.usage(), (0, 15));
        first.set_status(ReplicaStatus::Complete);
        drop(first);
        assert_eq!(storage.usage(), (0, 5));
        drop(second);
        assert_eq!(storage.usage(), (0, 0));
    }
}
