//! `UpsertStart` (facts §3.4): a Put that may replace.

use super::{Object, Replica, put::new_object};
use crate::{
    core::Core,
    error::ErrorCode,
    types::{Attempt, PutStart, Replicas},
};

impl Core {
    /// Like [`Core::put_start`], but an object that is there is replaced: in place if the size is the same and all of
    /// it can be served, else in new ranges; what it had is then kept aside for `put_start_release_timeout`, since
    /// readers and an earlier writer may still use it. A write under way is pre-empted. Pins and group of an object
    /// that was complete once stay. Until [`Core::put_end`] the key is not readable. If no room is found, nothing
    /// changes.
    ///
    /// Read leases do not hold an Upsert back, as upstream.
    ///
    /// # Errors
    /// As for [`Core::put_start`], but for `ObjectAlreadyExists`; `InvalidParams` also for another group.
    pub fn upsert_start(&self, request: &PutStart<'_>) -> Attempt<Replicas> {
        let pending_pin = self.check_start(request)?;
        let hash = self.store.hash(request.key);
        let placement = self.placement.load();
        let mut shard = self.store.write(hash)?;
        let now = self.clock.now();
        let new = new_object(request, pending_pin, now);
        let position = shard.live_position(hash, request.key);
        let group = request.config.group_id;
        let Some((position, object)) = position.and_then(|position| Some((position, shard.at(position)?)))
        else {
            self.admit(&mut shard, request)?;
            let replicas = self.place(&mut shard, &placement, request, new.hard_pinned, now)?;
            let mut object = Object::new(&new, replicas);
            object.set_disk(self.new_disk_replica(&mut shard, request));
            return Ok(shard.insert(hash, Box::new(object), group).describe());
        };
        let stays = object.is_established();
        // Who names no group means the one that the object has.
        if stays && !group.is_empty() && object.group_name() != group {
            return Err(ErrorCode::InvalidParams.into());
        }
        let in_place = object.size() == request.slice_length
            && object.any(Replica::is_complete)
            && object.all(|replica| !replica.is_complete() || replica.eligibility().can_serve());
        let (writer, pre_empted) = (object.writer(), object.being_written());
        let hard_pinned = if stays { object.is_hard_pinned() } else { new.hard_pinned };
        let (mut replicas, mut disk) = (None, None);
        if !in_place {
            replicas = Some(self.place(&mut shard, &placement, request, hard_pinned, now)?);
            disk = self.new_disk_replica(&mut shard, request);
        }
        let due = now.saturating_add(self.options.put_start_release_timeout);
        shard.superseded().note_all(hash, writer, pre_empted, due, now);
        let set_aside = |object: &mut Object| {
            for replica in object.extract(|replica| !in_place || !replica.is_complete()) {
                replica.set_aside(due);
            }
            object.drop_unfinished_disk();
        };
        if let (false, Some(replicas)) = (stays, &mut replicas) {
            // Nobody has ever read it: nothing of it stays.
            let mut object = Object::new(&new, std::mem::take(replicas));
            object.set_disk(disk);
            shard.change(hash, position, set_aside);
            return Ok(shard.insert(hash, Box::new(object), group).describe());
        }
        let described = shard.change(hash, position, |object| {
            set_aside(object);
            object.start_write(&new, replicas.unwrap_or_default());
            if !in_place {
                drop(object.set_disk(disk));
            }
            object.describe()
        });
        described.ok_or(ErrorCode::InternalError.into())
    }
}
