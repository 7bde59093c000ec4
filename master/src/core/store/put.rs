//! `PutStart`, `PutEnd`, `PutRevoke` (facts §3.1, §3.2).

use super::{DiskReplica, Medium, NewObject, Object, PendingPin, Replica, ShardWrite, WRITTEN_TOGETHER};
use crate::{
    clock::Instant,
    core::{
        Core,
        counters::add,
        segments::{MAX_REPLICAS, Placement, Wanted},
    },
    error::ErrorCode,
    types::{
        Attempt, CACHELIB_MAX_VALUE, ClientId, MemoryAllocator, PutStart, ReplicaStatus, ReplicaType,
        Replicas, ReplicateConfig, SoftPinAction,
    },
};
use smallvec::SmallVec;
use std::{ops::ControlFlow, time::Duration};

impl Core {
    /// Makes room for a new object: where its writer is to write. It is not readable before [`Core::put_end`]. Fewer
    /// replicas than asked for are a success, none is not.
    ///
    /// # Errors
    /// `Busy`; `InvalidParams`: no replicas asked for, or `NoF` ones, an empty key or value, or a soft pin that is out
    /// of bounds or not enabled; `DfsServiceUnavailable`: DFS replicas; `IllegalClient`: the
    /// writer is Offline; `ObjectAlreadyExists`: it is there, or being written for less than
    /// `put_start_discard_timeout`; `NoAvailableHandle`: no room; `KeysUltraLimit`: `max_keys` or
    /// `max_metadata_bytes` is reached.
    pub fn put_start(&self, request: &PutStart<'_>) -> Attempt<Replicas> {
        let pending_pin = self.check_start(request)?;
        let hash = self.store.hash(request.key);
        // Loaded before the lock and so dropped after it: the last user of an old picture frees all of it.
        let placement = self.placement.load();
        let mut shard = self.store.write(hash)?;
        self.start(&mut shard, hash, request, pending_pin, &placement, self.clock.now())
    }

    /// [`Core::put_start`] for the first of several keys, in their order, with what else is the same for all. Returns how
    /// many it has told `each` about; none only if the first is busy.
    pub fn put_starts(
        &self,
        keys: &[(&[u8], u64)],
        shared: (ClientId, &ReplicateConfig<'_>),
        mut each: impl FnMut(Result<Replicas, ErrorCode>),
    ) -> usize {
        let placement = self.placement.load();
        let (client, config) = shared;
        let request = |at: usize| PutStart { client, key: keys[at].0, slice_length: keys[at].1, config };
        let first: SmallVec<[&[u8]; WRITTEN_TOGETHER]> =
            keys.iter().take(WRITTEN_TOGETHER).map(|key| key.0).collect();
        let mut now = None;
        self.store.write_together(&first, |at, hash, shard| {
            let request = request(at);
            let now = *now.get_or_insert_with(|| self.clock.now());
            let started = self
                .check_start(&request)
                .and_then(|pin| self.start(shard, hash, &request, pin, &placement, now));
            // It is never busy: the shard is held.
            let started = started.map_err(|error| error.code().unwrap_or(ErrorCode::InternalError));
            // To find out that there is no room takes a look at every segment: once under these locks is enough.
            let found_no_room = started.as_ref().err() == Some(&ErrorCode::NoAvailableHandle);
            each(started);
            if found_no_room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn start(
        &self,
        shard: &mut ShardWrite<'_>,
        hash: u64,
        request: &PutStart<'_>,
        pending_pin: Option<PendingPin>,
        placement: &Placement,
        now: Instant,
    ) -> Attempt<Replicas> {
        if let Some(position) = shard.live_position(hash, request.key) {
            let object = shard.at(position);
            if object.is_some_and(|object| object.has_complete() || !self.is_abandoned(object, now)) {
                return Err(ErrorCode::ObjectAlreadyExists.into());
            }
            self.discard_unfinished(shard, hash, position, now);
        }
        self.admit(shard, request)?;
        let pinned = request.config.with_hard_pin;
        let replicas = self.place(shard, placement, request, pinned, now)?;
        let mut object = Object::new(&new_object(request, pending_pin, now), replicas);
        object.set_disk(self.new_disk_replica(shard, request));
        Ok(shard.insert(hash, Box::new(object), request.config.group_id).describe())
    }

    /// The writer has written: the object becomes readable. Again for a finished object it is a success and changes
    /// nothing. `kind` names the replicas meant: those in memory (`Memory`, `All`), or the one on disk (`Disk`).
    ///
    /// # Errors
    /// `Busy`; `IllegalClient`: the object is another client's, or the client is Offline; `ObjectNotFound`: no such
    /// object, or this may be the End of an earlier write of the same client to the key, which was discarded or
    /// replaced: ours counts only when the Ends of both have come; `InvalidWrite`: it is finished and has no replica of
    /// that kind.
    pub fn put_end(
        &self,
        client: ClientId,
        key: &[u8],
        checksum: Option<u64>,
        kind: ReplicaType,
    ) -> Attempt<()> {
        self.refuse_offline(client)?;
        let hash = self.store.hash(key);
        let mut shard = self.store.write(hash)?;
        Ok(end(&mut shard, hash, client, (key, checksum), kind, self.clock.now())?)
    }

    /// [`Core::put_end`] for the first of several keys, in their order. Returns how many it has told `each` about; none
    /// only if the first is busy.
    pub fn put_ends(
        &self,
        client: ClientId,
        ended: &[(&[u8], Option<u64>)],
        kind: ReplicaType,
        mut each: impl FnMut(Result<(), ErrorCode>),
    ) -> usize {
        let first: SmallVec<[&[u8]; WRITTEN_TOGETHER]> =
            ended.iter().take(WRITTEN_TOGETHER).map(|ended| ended.0).collect();
        let is_offline = self.refuse_offline(client).is_err();
        let mut now = None;
        self.store.write_together(&first, |at, hash, shard| {
            let now = *now.get_or_insert_with(|| self.clock.now());
            each(if is_offline {
                Err(ErrorCode::IllegalClient)
            } else {
                end(shard, hash, client, ended[at], kind, now)
            });
            ControlFlow::Continue(())
        })
    }

    /// The writer gives up: the replicas that are not finished go, their memory is free at once, and so does the
    /// object if nothing is left.
    ///
    /// # Errors
    /// `Busy`; `IllegalClient` and `ObjectNotFound` as for an End; `InvalidWrite`: nothing is being written.
    pub fn put_revoke(&self, client: ClientId, key: &[u8], kind: ReplicaType) -> Attempt<()> {
        self.refuse_offline(client)?;
        let hash = self.store.hash(key);
        let mut shard = self.store.write(hash)?;
        let meant = Medium::meant_by(kind);
        let position = shard.written_by(client, hash, key, meant)?;
        let (of_memory, of_disk) = (meant == Some(Medium::Memory), meant == Some(Medium::Disk));
        let invalid = |object: &Object| {
            !object.is_unfinished()
                || of_memory && object.any(Replica::is_complete)
                || of_disk && object.disk().is_some_and(DiskReplica::is_complete)
        };
        if shard.at(position).is_none_or(invalid) {
            return Err(ErrorCode::InvalidWrite.into());
        }
        let now = self.clock.now();
        // If an earlier write of this client may be meant, then this one may still be going on.
        let aside = shard
            .superseded()
            .owes(hash, client, Medium::Memory, now)
            .then(|| now.saturating_add(self.options.put_start_release_timeout));
        shard.change(hash, position, |object| {
            for replica in object.extract(|replica| of_memory && !replica.is_complete()) {
                match aside {
                    Some(due) => replica.set_aside(due),
                    None => drop(replica),
                }
            }
            if of_disk {
                drop(object.set_disk(None));
            }
        });
        Ok(())
    }

    /// The checks of a Start that need no state but the writer's, in upstream's order; what it means for the pin.
    pub(super) fn check_start(&self, request: &PutStart<'_>) -> Attempt<Option<PendingPin>> {
        let config = request.config;
        let invalid = Err(ErrorCode::InvalidParams.into());
        if config.replica_num == 0 && config.nof_replica_num == 0 && config.dfs_replica_num == 0 {
            return invalid;
        }
        if request.key.is_empty() || request.slice_length == 0 {
            return invalid;
        }
        if config.dfs_replica_num > 1 || config.dfs_replica_num > 0 && config.replica_num == 0 {
            return invalid;
        }
        if config.nof_replica_num > 0 {
            return invalid;
        }
        let ttl = config.soft_pin_ttl_ms.map(Duration::from_millis);
        let pin = match config.soft_pin_action {
            SoftPinAction::Enable => {
                let ttl = ttl.unwrap_or(self.options.soft_pin_ttl);
                if ttl > self.options.max_soft_pin_ttl {
                    return invalid;
                }
                Some(if ttl.is_zero() { PendingPin::Unpin } else { PendingPin::Pin(ttl) })
            }
            _ if ttl.is_some() => return invalid,
            SoftPinAction::Disable => Some(PendingPin::Unpin),
            SoftPinAction::Preserve => None,
        };
        let cachelib = self.options.memory_allocator == MemoryAllocator::Cachelib;
        if cachelib && request.slice_length > CACHELIB_MAX_VALUE {
            return invalid;
        }
        if config.dfs_replica_num > 0 {
            return Err(ErrorCode::DfsServiceUnavailable.into());
        }
        self.refuse_offline(request.client)?;
        Ok(pin)
    }

    /// Whether its writer has had `put_start_discard_timeout` to end the write, all of it in time in which this master
    /// would have heard the End: after a time without the permit it starts anew.
    pub(super) fn is_abandoned(&self, object: &Object, now: Instant) -> bool {
        let since = object.put_started().max(self.permit.since());
        object.is_unfinished() && since.saturating_add(self.options.put_start_discard_timeout) < now
    }

    /// Ends an abandoned write. Its ranges stay out of use until the writer surely is not writing any more.
    pub(super) fn discard_unfinished(
        &self,
        shard: &mut ShardWrite<'_>,
        hash: u64,
        position: usize,
        now: Instant,
    ) {
        add(&self.counters.puts_discarded, 1);
        let Some(object) = shard.at(position) else { return };
        let due = object.put_started().saturating_add(self.options.put_start_release_timeout);
        let (writer, ended) = (object.writer(), object.being_written());
        shard.superseded().note_all(hash, writer, ended, due, now);
        shard.change(hash, position, |object| {
            for replica in object.extract(|replica| !replica.is_complete()) {
                replica.set_aside(due);
            }
            object.drop_unfinished_disk();
        });
    }

    /// The DISK replica of a new value, if there are such.
    pub(super) fn new_disk_replica(
        &self,
        shard: &mut ShardWrite<'_>,
        request: &PutStart<'_>,
    ) -> Option<DiskReplica> {
        let disk = self.disk.as_ref()?;
        Some(disk.replica(request.key, request.slice_length, shard.next_replica_id()))
    }

    /// Whether the index may grow by that object. If not, eviction is asked for, and the put may be tried again.
    pub(super) fn admit(&self, shard: &mut ShardWrite<'_>, request: &PutStart<'_>) -> Attempt<()> {
        let admitted = shard.admit(request.key.len(), request.config.replica_num.min(MAX_REPLICAS as u64));
        admitted.map_err(|code| {
            add(&self.counters.ceiling_refusals, 1);
            self.pressure.note_ceiling();
            code.into()
        })
    }

    pub(super) fn place(
        &self,
        shard: &mut ShardWrite<'_>,
        placement: &Placement,
        request: &PutStart<'_>,
        hard_pinned: bool,
        now: Instant,
    ) -> Attempt<SmallVec<[Replica; 1]>> {
        let wanted = Wanted {
            client: request.client,
            size: request.slice_length,
            hash: self.store.hash(request.key),
            config: request.config,
            strategy: self.options.allocation_strategy,
            hard_pinned,
            now,
            random: shard.random(),
        };
        let replicas: SmallVec<[Replica; 1]> = placement
            .place(&wanted)
            .into_iter()
            .map(|placed| Replica::new(placed, shard.next_replica_id(), hard_pinned))
            .collect();
        if replicas.is_empty() {
            add(&self.counters.alloc_failures, 1);
            self.pressure.note(request.slice_length);
            return Err(ErrorCode::NoAvailableHandle.into());
        }
        if (replicas.len() as u64) < request.config.replica_num {
            add(&self.counters.partial_allocations, 1);
        }
        Ok(replicas)
    }
}

pub(super) fn new_object<'a>(
    request: &PutStart<'a>,
    pending_pin: Option<PendingPin>,
    now: Instant,
) -> NewObject<'a> {
    NewObject {
        key: request.key,
        writer: request.client,
        size: request.slice_length,
        now,
        hard_pinned: request.config.with_hard_pin,
        data_type: request.config.data_type,
        pending_pin,
    }
}

fn end(
    shard: &mut ShardWrite<'_>,
    hash: u64,
    client: ClientId,
    (key, checksum): (&[u8], Option<u64>),
    kind: ReplicaType,
    now: Instant,
) -> Result<(), ErrorCode> {
    let meant = Medium::meant_by(kind);
    let position = shard.written_by(client, hash, key, meant)?;
    let object = shard.at(position).ok_or(ErrorCode::ObjectNotFound)?;
    let Some(medium) = meant.filter(|&medium| object.is_being_written(medium)) else {
        let is_there = match meant {
            _ if object.is_unfinished() => true,
            Some(Medium::Memory) => !object.replicas().is_empty(),
            Some(Medium::Disk) => object.disk().is_some(),
            None => false,
        };
        if let Some(medium) = meant {
            shard.superseded().heard(hash, client, medium);
        }
        return if is_there { Ok(()) } else { Err(ErrorCode::InvalidWrite) };
    };
    if !shard.superseded().accept_end(hash, client, medium, now) {
        // It may be the End of a write whose place this one has taken, and whose data are not here.
        return Err(ErrorCode::ObjectNotFound);
    }
    shard.note_time(now);
    shard.change(hash, position, |object| {
        if medium == Medium::Memory {
            for replica in object.replicas_mut() {
                replica.set_status(ReplicaStatus::Complete);
            }
        } else if let Some(disk) = object.disk_mut() {
            disk.set_status(ReplicaStatus::Complete);
        }
        object.finish_write(checksum, now);
    });
    Ok(())
}
