//! The core's own vocabulary: identifiers, requests and answers, in terms of no wire format.

mod borrowed;

pub use borrowed::{ReplicaListRef, ReplicaRef, ReplicasRef};

use smallvec::SmallVec;
use std::{fmt, sync::Arc, time::Duration};

/// A 128-bit identifier as Mooncake makes them; text form `first-second`, decimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[allow(missing_docs)]
pub struct Uuid {
    pub first: u64,
    pub second: u64,
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.second)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A client process, by the id that it chose for itself.
pub type ClientId = Uuid;
/// A mounted segment, by the id that its client chose.
pub type SegmentId = Uuid;

/// The kind of a replica (facts §2.3). `All` is an argument only and means Memory + `NoF` + Dfs for an End.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)]
pub enum ReplicaType {
    Memory,
    Disk,
    LocalDisk,
    NofSsd,
    All,
    Dfs,
}

impl ReplicaType {
    /// From the number on the wire.
    pub const fn from_number(number: i32) -> Option<ReplicaType> {
        Some(match number {
            0 => ReplicaType::Memory,
            1 => ReplicaType::Disk,
            2 => ReplicaType::LocalDisk,
            3 => ReplicaType::NofSsd,
            4 => ReplicaType::All,
            100 => ReplicaType::Dfs,
            _ => return None,
        })
    }
}

/// Where a replica stands in its life (facts §2.4); the numbers are the wire's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum ReplicaStatus {
    Processing = 2,
    Complete = 3,
}

/// Where a segment stands in its life (facts §4.1); the numbers are the wire's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum SegmentStatus {
    Ok = 1,
    GracefullyUnmounting = 4,
    Unmounting = 5,
}

/// The liveness of one incarnation of a client (B1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)]
pub enum LivenessState {
    Active,
    Suspected,
    Offline,
}

impl LivenessState {
    /// In the order in which a client that is never heard again passes through them.
    pub const ALL: [LivenessState; 3] =
        [LivenessState::Active, LivenessState::Suspected, LivenessState::Offline];
}

/// Who completes the offboarding of a client (B9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OffboardingMode {
    /// The thread that retires the client, before it judges the next one.
    Sync,
    /// The background.
    #[default]
    Async,
}

/// The answer to a Ping (facts §4 of the wire notes); the numbers are the wire's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum ClientStatus {
    Ok = 1,
    NeedRemount = 2,
}

/// What a writer asks about the soft pin of its object (facts §3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[allow(missing_docs)]
pub enum SoftPinAction {
    #[default]
    Preserve,
    Enable,
    Disable,
}

/// How an object is to be placed (facts §2.6). Strings are borrowed from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateConfig<'a> {
    /// Memory replicas wanted; best effort, at least one is placed.
    pub replica_num: u64,
    /// `NoF` replicas; anything but 0 is refused, this master has no `NoF`.
    pub nof_replica_num: u64,
    /// DFS replicas; anything but 0 is refused, this master has no DFS.
    pub dfs_replica_num: u64,
    /// What happens to the soft pin.
    pub soft_pin_action: SoftPinAction,
    /// Time of the soft pin, milliseconds.
    pub soft_pin_ttl_ms: Option<u64>,
    /// Never evict this object.
    pub with_hard_pin: bool,
    /// Segment names to try first, in order.
    pub preferred_segments: Vec<&'a [u8]>,
    /// The same, deprecated; used alone if not empty.
    pub preferred_segment: &'a [u8],
    /// Prefer segments on the writer's host.
    pub prefer_alloc_in_same_node: bool,
    /// `ObjectDataType`, passed through.
    pub data_type: u8,
    /// The writer's host.
    pub host_id: &'a [u8],
    /// Group of the object at hand, empty for none. A batch sets it per key.
    pub group_id: &'a [u8],
}

impl Default for ReplicateConfig<'_> {
    fn default() -> Self {
        ReplicateConfig {
            replica_num: 1,
            nof_replica_num: 0,
            dfs_replica_num: 0,
            soft_pin_action: SoftPinAction::Preserve,
            soft_pin_ttl_ms: None,
            with_hard_pin: false,
            preferred_segments: Vec::new(),
            preferred_segment: b"",
            prefer_alloc_in_same_node: false,
            data_type: 0,
            host_id: b"",
            group_id: b"",
        }
    }
}

/// A `PutStart` or `UpsertStart` of one key.
#[derive(Clone, Debug)]
pub struct PutStart<'a> {
    /// The writer, the only one that may End or Revoke.
    pub client: ClientId,
    /// The key, any bytes but not empty.
    pub key: &'a [u8],
    /// Bytes of the value, at least 1.
    pub slice_length: u64,
    /// Placement.
    pub config: &'a ReplicateConfig<'a>,
}

/// A range of memory that a client offers to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSpec {
    /// Chosen by the client.
    pub id: SegmentId,
    /// Usually the host:port of its transfer engine; several segments may share one.
    pub name: Arc<[u8]>,
    /// First address, in the client's address space.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Where its memory is reached.
    pub te_endpoint: Arc<[u8]>,
    /// `tcp`, `rdma`, ...
    pub protocol: Arc<[u8]>,
    /// The host, for placement; may be empty.
    pub host_id: Arc<[u8]>,
}

/// One replica as a client sees it.
#[derive(Clone, Debug)]
pub struct ReplicaDescriptor {
    /// Unique in the process.
    pub id: u64,
    /// Processing in the answer to a Start, Complete in the answer to a read.
    pub status: ReplicaStatus,
    /// First byte, in the owner's address space.
    pub address: u64,
    /// Bytes of the value.
    pub size: u64,
    /// The segment in which it lies: its endpoint and protocol.
    pub segment: Arc<SegmentSpec>,
}

/// A replica in a file that clients reach by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskDescriptor {
    /// Unique in the process, among all replicas.
    pub id: u64,
    /// Processing until its writer says that the file is there.
    pub status: ReplicaStatus,
    /// The file.
    pub file_path: Arc<[u8]>,
    /// Bytes of the value.
    pub size: u64,
}

/// The replicas of one object: nearly always one, in memory. As a slice it is those in memory; one on disk comes last.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    /// In the memory of clients.
    pub memory: SmallVec<[ReplicaDescriptor; 1]>,
    /// In a file, if the master was started with `root_fs_dir`.
    pub disk: Option<DiskDescriptor>,
}

impl Replicas {
    /// Whether there is none of any kind.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.disk.is_none()
    }

    /// How many there are of all kinds.
    pub fn count(&self) -> usize {
        self.memory.len() + usize::from(self.disk.is_some())
    }

    /// Bytes of the value.
    pub fn value_size(&self) -> u64 {
        self.memory
            .first()
            .map(|replica| replica.size)
            .or(self.disk.as_ref().map(|disk| disk.size))
            .unwrap_or(0)
    }
}

impl std::ops::Deref for Replicas {
    type Target = [ReplicaDescriptor];

    fn deref(&self) -> &[ReplicaDescriptor] {
        &self.memory
    }
}

/// The answer to `GetReplicaList`.
#[derive(Clone, Debug)]
pub struct ReplicaList {
    /// Readable replicas, at least one.
    pub replicas: Replicas,
    /// The read lease that was granted, milliseconds.
    pub lease_ttl_ms: u64,
    /// What the writer said at its End.
    pub object_checksum: Option<u64>,
}

/// All that is known about one object, for diagnostics: replicas that cannot be served are shown with the reason.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// Who started the last write to it.
    pub writer: ClientId,
    /// Bytes of the value.
    pub size: u64,
    /// What the writer said at its End.
    pub checksum: Option<u64>,
    /// Its group, empty for none.
    pub group: Box<[u8]>,
    /// `ObjectDataType` as the writer said.
    pub data_type: u8,
    /// Whether it is never evicted.
    pub hard_pinned: bool,
    /// What is left of its soft pin.
    pub soft_pin_left: Option<Duration>,
    /// What is left of its read lease.
    pub lease_left: Option<Duration>,
    /// Time since the last write to it started.
    pub age: Duration,
    /// Every replica in memory, with the liveness of the client in whose memory it lies.
    pub replicas: Vec<(ReplicaDescriptor, LivenessState)>,
    /// The one on disk.
    pub disk: Option<DiskDescriptor>,
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpError {
    /// The lock of that shard is held: nothing was done, try again. The front end parks the request meanwhile;
    /// a data thread never blocks on a shard.
    Busy {
        /// Index of the shard, 0 to 1023.
        shard: u16,
    },
    /// Refused, with the code that the caller sees.
    Failed(crate::error::ErrorCode),
}

impl From<crate::error::ErrorCode> for OpError {
    fn from(code: crate::error::ErrorCode) -> OpError {
        OpError::Failed(code)
    }
}

impl OpError {
    /// With what the caller is refused; nothing if the shard is busy.
    pub fn code(self) -> Option<crate::error::ErrorCode> {
        match self {
            OpError::Busy { .. } => None,
            OpError::Failed(code) => Some(code),
        }
    }
}

/// The result of one non-blocking attempt.
pub type Attempt<T> = Result<T, OpError>;

/// How far a walk over all shards has come. A walk holds a shard for at most 64 keys, then comes back to its caller.
#[derive(Clone, Debug, Default)]
pub struct WalkCursor {
    /// The next shard, 1024 at the end.
    pub shard: u16,
    /// Where to go on inside that shard; opaque.
    pub position: u64,
    /// The layout of the shard that `position` belongs to; opaque.
    pub layout: u64,
    /// How many results came from the shards before; opaque.
    pub settled: usize,
    /// Keys that the walk has acted on.
    pub acted: u64,
}

/// Whether a walk is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// Call again with the same cursor, after letting others run.
    More,
    /// Every shard was visited.
    Done,
}

/// How the core behaves; times are monotonic.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// `default_kv_lease_ttl`.
    pub read_lease_ttl: Duration,
    /// `default_kv_soft_pin_ttl`.
    pub soft_pin_ttl: Duration,
    /// `max_kv_soft_pin_ttl`.
    pub max_soft_pin_ttl: Duration,
    /// `put_start_discard_timeout_sec`: an unfinished put older than this may be replaced.
    pub put_start_discard_timeout: Duration,
    /// `put_start_release_timeout_sec`: its memory is reused after this.
    pub put_start_release_timeout: Duration,
    /// `client_active_ttl_sec`.
    pub client_active_ttl: Duration,
    /// `client_suspicion_ttl_sec`.
    pub client_suspicion_ttl: Duration,
    /// `client_mass_silence_ratio`: share of the Active clients, 0 to 1, that must fall silent within one active TTL for
    /// it to be a mass silence (B2); 0 = never.
    pub mass_silence_ratio: f64,
    /// `client_mass_silence_min`: and at least so many.
    pub mass_silence_min: u64,
    /// How long a segment that first becomes known by a `ReMount` takes no allocation (design §7): writers of an
    /// earlier master may still be writing into it. max(read lease TTL of that master, `put_start_discard_timeout`).
    pub remount_hold: Duration,
    /// `offboarding_mode`.
    pub offboarding_mode: OffboardingMode,
    /// `offboarding_queue_limit`: jobs at the most; further clients stay Suspected and further unmounts are refused.
    pub offboarding_queue_limit: u64,
    /// `client_offline_grace_sec`: no client goes Offline before this much of serving time has passed (design §5).
    pub offline_grace: Duration,
    /// `root_fs_dir`/`cluster_id`: each new object gets a DISK replica below it. None: there are none.
    pub disk_directory: Option<String>,
    /// `global_file_segment_size`, bytes; for the metric only, since clients keep to their quotas by themselves.
    pub disk_capacity: u64,
    /// How far existence probes alone may carry a read lease beyond what the last Get or write gave. `None`: without
    /// bound, as the C++ master; a key that is probed often enough is never evicted then.
    pub exist_lease_bound: Option<Duration>,
    /// `max_keys`: keys that the index takes at the most, 0 for any number.
    pub max_keys: u64,
    /// `max_metadata_bytes`: bytes of memory for them at the most, about, 0 for any number.
    pub max_metadata_bytes: u64,
    /// When and how much is evicted.
    pub eviction: EvictionOptions,
    /// `allocation_strategy`.
    pub allocation_strategy: AllocationStrategy,
    /// `memory_allocator`.
    pub memory_allocator: MemoryAllocator,
}

/// The largest [`CoreOptions::exist_lease_bound`].
pub const MAX_EXIST_LEASE_BOUND: Duration = Duration::from_secs(4 * 3600);

/// When and how much is evicted (facts §3.7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionOptions {
    /// `eviction_ratio`, 0 to 1: share of the evictable objects that a round evicts.
    pub ratio: f64,
    /// `eviction_high_watermark_ratio`, 0 to 1: used share of memory at which eviction begins.
    pub high_watermark: f64,
    /// `allow_evict_soft_pinned_objects`.
    pub allow_soft_pinned: bool,
}

impl Default for EvictionOptions {
    fn default() -> Self {
        EvictionOptions { ratio: 0.05, high_watermark: 0.9, allow_soft_pinned: true }
    }
}

/// How segments are chosen for a new object (facts §3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AllocationStrategy {
    /// From a random start on.
    #[default]
    Random,
    /// Of a sample, those with the largest free share first.
    FreeRatioFirst,
    /// Of a sample, those whose owner has the largest free share of its SSD first.
    SsdFreeRatioFirst,
    /// On the writer's host first, then host by host.
    LocalFirst,
}

/// Whose rules about sizes and alignments hold (facts §3.9). The ranges are allocated the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryAllocator {
    /// None: any size up to that of the segment.
    #[default]
    Offset,
    /// Segments in multiples of [`CACHELIB_SLAB`], values of at most [`CACHELIB_MAX_VALUE`].
    Cachelib,
}

/// Bytes of a slab of cachelib: base and size of a segment are multiples of it.
pub const CACHELIB_SLAB: u64 = 4 << 20;
/// Bytes of the largest value that cachelib takes.
pub const CACHELIB_MAX_VALUE: u64 = CACHELIB_SLAB - 16;

impl Default for CoreOptions {
    fn default() -> Self {
        CoreOptions {
            read_lease_ttl: Duration::from_secs(10),
            soft_pin_ttl: Duration::from_secs(1800),
            max_soft_pin_ttl: Duration::from_secs(86_400),
            put_start_discard_timeout: Duration::from_secs(30),
            put_start_release_timeout: Duration::from_secs(600),
            client_active_ttl: Duration::from_secs(10),
            client_suspicion_ttl: Duration::from_secs(20),
            mass_silence_ratio: 0.5,
            mass_silence_min: 5,
            remount_hold: Duration::from_secs(30),
            offboarding_mode: OffboardingMode::default(),
            offboarding_queue_limit: 10_000,
            offline_grace: Duration::from_secs(40),
            disk_directory: None,
            disk_capacity: 0,
            exist_lease_bound: None,
            max_keys: 0,
            max_metadata_bytes: 0,
            eviction: EvictionOptions::default(),
            allocation_strategy: AllocationStrategy::default(),
            memory_allocator: MemoryAllocator::default(),
        }
    }
}
