//! The native front end's calls: a frame in, an answer out; between them the same service that gRPC calls.

mod batches;

use super::{
    budget::Budget,
    native::{
        answer::{self, Bytes, Empty, Health, HeartbeatReady, Pairs, Payload, Pong, Refused, StorageConfig},
        frame::{RpcErrorCode, write_error},
        generation::{Method, Rpc},
        request::{self, Request, Start},
    },
    server::Plane,
    service::{HealthReport, Refusal, STORE_VERSION, Service, Step, is_data, parse_regex},
    telemetry::Tally,
};
use crate::{
    admin::Protocol,
    error::ErrorCode,
    ha::connections::Activity,
    types::{Attempt, PutStart, SegmentStatus, Uuid, WalkCursor},
};
use bytes::BytesMut;
use regex::bytes::Regex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The body of a batch that is most likely done in one turn, bytes: 256 keys of up to 24 bytes, with their sizes.
const SMALL_BATCH: u32 = 7 << 10;

/// Whether the connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// The answer was appended.
    Answered,
    /// Nothing may be answered any more.
    Close,
}

/// Serves the frames of one connection.
pub(super) struct Caller {
    service: Arc<Service>,
    plane: Plane,
    budget: Arc<Budget>,
    activity: Arc<Activity>,
    /// Large batches under way: their results are the bulk of what a connection can make this process hold.
    large: AtomicUsize,
}

/// While so many large batches of one connection are under way, none of its further calls begins.
const MAX_LARGE: usize = 2;

/// The answer under way: where it goes and under which number.
struct Reply<'o> {
    out: &'o mut BytesMut,
    seq: u32,
    rpc: &'static Rpc,
    tally: &'o mut Tally,
}

impl Reply<'_> {
    fn send<T: Payload + ?Sized>(self, value: &T) -> Served {
        answer::write(self.out, self.seq, self.rpc, value);
        Served::Answered
    }

    fn send_or_close<T: Payload>(self, value: Result<T, Refusal>) -> Served {
        match value {
            Ok(value) => self.send(&Ok::<T, ErrorCode>(value)),
            Err(Refusal::Code(code)) => self.refuse(code),
            Err(Refusal::NoPermit) => Served::Close,
        }
    }

    fn refuse(self, code: ErrorCode) -> Served {
        self.tally.failed = true;
        self.send(&Refused(code))
    }

    fn send_result<T: Payload>(self, result: Result<T, ErrorCode>) -> Served {
        self.send_or_close(result.map_err(Refusal::Code))
    }

    fn send_status(self, status: Option<SegmentStatus>) -> Served {
        self.send_result(status.map(|status| i32::from(status as u8)).ok_or(ErrorCode::SegmentNotFound))
    }

    fn no_room(self, count: usize) -> Served {
        let message = format!(
            "there is no room for the results of {count} items in this master's byte budget; send fewer at once"
        );
        self.fail(RpcErrorCode::MessageTooLarge, &message)
    }

    fn fail(self, code: RpcErrorCode, message: &str) -> Served {
        write_error(self.out, self.seq, code, message);
        Served::Answered
    }
}

impl Caller {
    pub(super) fn new(
        service: Arc<Service>,
        plane: Plane,
        budget: Arc<Budget>,
        activity: Arc<Activity>,
    ) -> Caller {
        Caller { service, plane, budget, activity, large: AtomicUsize::new(0) }
    }

    /// Whether the connection has enough large batches under way.
    pub(super) fn is_laden(&self) -> bool {
        self.large.load(Ordering::Relaxed) >= MAX_LARGE
    }

    /// Whether a call that had to wait may simply be served again from its beginning: one that touches a single
    /// shard has done nothing until it is done, and a small batch of reads has done nothing that it may not do again.
    pub(super) fn restartable(rpc: Option<&Rpc>, body: u32) -> bool {
        matches!(
            rpc.map(Rpc::method),
            Some(Method::BatchExistKey | Method::BatchGetReplicaList) if body <= SMALL_BATCH
        ) || matches!(
            rpc.map(Rpc::method),
            Some(
                Method::ExistKey
                    | Method::GetReplicaList
                    | Method::PutStart
                    | Method::PutEnd
                    | Method::PutRevoke
                    | Method::UpsertStart
                    | Method::UpsertEnd
                    | Method::UpsertRevoke
                    | Method::Remove
                    | Method::EvictDiskReplica
                    | Method::QuerySegmentStatus
                    | Method::QuerySegmentStatusById
                    | Method::Ping
                    | Method::ServiceReady
                    | Method::GetStorageConfig
                    | Method::GetHeartbeatRpcPort
                    | Method::HeartbeatServiceReady
            )
        )
    }

    /// Serves one request to its end and appends the answer, in the form of `rpc`; none if no client generation has that
    /// function.
    pub(super) async fn serve(
        &self,
        rpc: Option<&'static Rpc>,
        seq: u32,
        body: &[u8],
        out: &mut BytesMut,
    ) -> Served {
        let Some(rpc) = rpc.filter(|rpc| self.registered(rpc.method())) else {
            write_error(out, seq, RpcErrorCode::NotRegistered, "the rpc function not registered");
            return Served::Answered;
        };
        let permit = self.service.permit();
        if !permit.held() {
            // Held for a hand-over it waits; what ends the hold ends the connection, too.
            permit.hold_over().await;
            return Served::Close;
        }
        let _under_way = self.activity.call();
        match request::decode(rpc, body) {
            Ok(request) => {
                if is_data(rpc.method()) {
                    self.service.info().faults.before_handler();
                }
                let (clock, mut tally) = (self.service.clock(), Tally::default());
                let started = clock.now();
                let _under_way = self.service.telemetry().begin(Protocol::Native);
                let served = self.dispatch(request, Reply { out, seq, rpc, tally: &mut tally }).await;
                if served == Served::Answered {
                    let took = clock.now().saturating_since(started);
                    self.service.telemetry().count(rpc.method(), Protocol::Native, &tally, took);
                }
                served
            }
            Err(error) => {
                tracing::debug!(%error, "request refused");
                error.answer(out, seq);
                Served::Answered
            }
        }
    }

    fn registered(&self, method: Method) -> bool {
        self.plane == Plane::Main || matches!(method, Method::Ping | Method::ServiceReady)
    }

    async fn dispatch(&self, request: Request<'_>, reply: Reply<'_>) -> Served {
        let (service, core) = (&*self.service, &**self.service.core());
        match request {
            Request::ExistKey(a) => reply.send_or_close(service.call(|| core.exist_key(a.key)).await),
            Request::GetReplicaList(a) => {
                let Reply { out, seq, rpc, tally } = reply;
                let written = service.drive(|| {
                    let seen = core.see_replica_list(a.key, |list| {
                        tally.get(&list);
                        answer::write(out, seq, rpc, &list);
                    });
                    if seen.is_err() { Step::Parked } else { Step::Done }
                });
                if written.await.is_ok() { Served::Answered } else { Served::Close }
            }
            Request::PutStart(a) => self.start(&a, reply, |start| core.put_start(start)).await,
            Request::UpsertStart(a) => self.start(&a, reply, |start| core.upsert_start(start)).await,
            Request::PutEnd(a) | Request::UpsertEnd(a) => reply.send_or_close(
                service.call(|| core.put_end(a.client, a.object.key, a.object.checksum, a.kind.0)).await,
            ),
            Request::PutRevoke(a) | Request::UpsertRevoke(a) => {
                reply.send_or_close(service.call(|| core.put_revoke(a.client, a.key, a.kind.0)).await)
            }
            Request::Remove(a) => reply.send_or_close(service.call(|| core.remove(a.key, a.force)).await),

            Request::BatchExistKey(a) => {
                self.read_batch(a.keys, reply, |keys, elements, _| {
                    core.exist_keys(keys, |exists| elements.push(&Ok::<bool, ErrorCode>(exists)))
                })
                .await
            }
            Request::BatchGetReplicaList(a) => {
                self.read_batch(a.keys, reply, |keys, elements, tally| {
                    core.get_replica_lists(keys, |list| {
                        tally.get(&list);
                        elements.push(&list);
                    })
                })
                .await
            }
            Request::BatchPutStart(a) => self.batch_start(&a, reply, false).await,
            Request::BatchUpsertStart(a) => self.batch_start(&a, reply, true).await,
            Request::BatchPutEnd(a) | Request::BatchUpsertEnd(a) => self.batch_end(&a, reply).await,
            Request::BatchPutRevoke(a) | Request::BatchUpsertRevoke(a) => {
                self.batch(a.keys.iter(), reply, |key| core.put_revoke(a.client, key, a.kind.0)).await
            }
            Request::BatchRemove(a) => {
                self.batch(a.keys.iter(), reply, |key| core.remove(key, a.force)).await
            }
            Request::BatchReplicaClear(a) => {
                let clear = |key: &&[u8]| core.batch_replica_clear(a.client, key, a.segment_name);
                match service.batch(a.keys.iter(), clear).await {
                    Ok(cleared) => {
                        let cleared: Vec<Bytes<'_>> = a
                            .keys
                            .iter()
                            .zip(cleared)
                            .filter(|(_, r)| *r == Ok(true))
                            .map(|(k, _)| Bytes(k))
                            .collect();
                        let keys = a.keys.len();
                        reply.tally.items = Some((keys as u64, (keys - cleared.len()) as u64));
                        reply.send(&Ok::<_, ErrorCode>(cleared))
                    }
                    Err(_) => Served::Close,
                }
            }

            Request::RemoveAll(a) => match self.remove_matching(None, a.force).await {
                Ok(removed) => reply.send(&removed),
                Err(_) => Served::Close,
            },
            Request::RemoveByRegex(a) => {
                let removed = match parse_regex(a.pattern) {
                    Ok(regex) => self.remove_matching(Some(&regex), a.force).await,
                    Err(code) => Err(Refusal::Code(code)),
                };
                reply.send_or_close(removed)
            }
            Request::GetReplicaListByRegex(a) => {
                let (mut cursor, mut found) = (WalkCursor::default(), Vec::new());
                let regex = match parse_regex(a.pattern) {
                    Ok(regex) => regex,
                    Err(code) => return reply.refuse(code),
                };
                match self.service.walk(|| core.replica_lists_matching(&regex, &mut cursor, &mut found)).await
                {
                    Ok(()) => reply.send(&Ok::<_, ErrorCode>(Pairs(&found))),
                    Err(_) => Served::Close,
                }
            }

            Request::MountSegment(a) => reply.send_result(core.mount_segment(a.client, a.segment.to_core())),
            Request::ReMountSegment(a) => reply.send_result(
                core.remount_segments(a.client, a.segments.iter().map(|s| s.to_core()).collect()),
            ),
            Request::UnmountSegment(a) => reply.send_result(core.unmount_segment(a.segment, a.client)),
            Request::Ping(a) => {
                if self.plane == Plane::Main && !service.ping_on_main() {
                    service.telemetry().misrouted_ping(Protocol::Native, a.client, service.heartbeat_port());
                    return reply.refuse(ErrorCode::HeartbeatRoutingMismatch);
                }
                let (view_version, status) = service.ping(a.client);
                reply.send(&Ok::<_, ErrorCode>(Pong { view_version, status }))
            }
            Request::ServiceReady(_) => reply.send(&Ok::<&str, ErrorCode>(STORE_VERSION)),
            Request::GetFsdir(_) => reply.send(&Ok::<&str, ErrorCode>(&service.info().fsdir)),
            Request::GetStorageConfig(_) => {
                let info = service.info();
                reply.send(&Ok::<_, ErrorCode>(StorageConfig {
                    fsdir: &info.fsdir,
                    enable_disk_eviction: info.enable_disk_eviction,
                    quota_bytes: info.quota_bytes,
                }))
            }
            Request::HealthCheck(_) => {
                let report = service.health_check(service.clock().now(), HealthReport::START).await;
                let HealthReport { ok, shards_checked, shards_blocked } = report;
                reply.send(&Ok::<_, ErrorCode>(Health { ok, shards_checked, shards_blocked }))
            }
            Request::HeartbeatServiceReady(_) => {
                let heartbeat_rpc_port = service.heartbeat_port();
                reply.send(&Ok::<_, ErrorCode>(HeartbeatReady { heartbeat_rpc_port }))
            }
            Request::GetHeartbeatRpcPort(_) => reply.send(&Ok::<u32, ErrorCode>(service.heartbeat_port())),

            Request::GracefulUnmountSegment(a) => {
                let grace = Duration::from_millis(a.grace_period_ms);
                reply.send_result(core.graceful_unmount_segment(a.segment, a.client, grace))
            }
            Request::QuerySegmentStatus(a) => reply.send_status(core.segment_status_by_name(a.name)),
            Request::QuerySegmentStatusById(a) => reply.send_status(core.segment_status(a.segment)),
            Request::BatchQueryIp(a) => {
                let count = a.clients.len();
                let Some(_held) = self.room_for(count, 2 * size_of::<Uuid>()).await else {
                    return reply.no_room(count);
                };
                let found = core.hosts_of(&a.clients);
                reply.tally.items = Some((count as u64, (count - found.len().min(count)) as u64));
                reply.send(&Ok::<_, ErrorCode>(Pairs(&found)))
            }
            Request::EvictDiskReplica(a) => {
                reply.send_or_close(service.call(|| core.evict_disk_replica(a.key, a.kind.0)).await)
            }
            Request::BatchEvictDiskReplica(a) => {
                self.batch(a.keys.iter(), reply, |key| core.evict_disk_replica(key, a.kind.0)).await
            }

            // No tasks and no local disks exist in this version: what a client asks about them is empty or not found. The
            // same holds for NoF, which this master does not have.
            Request::FetchTasks(_) | Request::Unserved(Method::GetAllNoFSegments) => {
                reply.send(&Ok::<Empty, ErrorCode>(Empty))
            }
            Request::QueryTask(_) => reply.refuse(ErrorCode::TaskNotFound),
            Request::MarkTaskToComplete(a) => reply.refuse(match a.end.status {
                2 | 3 => ErrorCode::TaskNotFound,
                _ => ErrorCode::InvalidParams,
            }),
            Request::MountLocalDiskSegment(_) | Request::UnmountLocalDiskSegment(_) => {
                reply.refuse(ErrorCode::UnableOffload)
            }
            Request::NotifyOffloadSuccess(a) => reply.send_result(match (a.tasks.len(), a.stored.len()) {
                (0, 0) => Ok(()),
                (tasks, stored) if tasks != stored => Err(ErrorCode::InvalidParams),
                _ => Err(ErrorCode::SegmentNotFound),
            }),
            Request::OffloadObjectHeartbeat(_)
            | Request::PromotionObjectHeartbeat(_)
            | Request::ReportSsdCapacity(_)
            | Request::PollRemoveAll(_)
            | Request::Unserved(Method::GetNoFSegmentsByName) => reply.refuse(ErrorCode::SegmentNotFound),
            Request::CopyEnd(_) | Request::CopyRevoke(_) | Request::MoveEnd(_) | Request::MoveRevoke(_) => {
                reply.refuse(ErrorCode::ObjectNoReplicationTask)
            }
            Request::CreateCopyTask(_)
            | Request::CreateMoveTask(_)
            | Request::CopyStart(_)
            | Request::MoveStart(_)
            | Request::Unserved(_) => reply.refuse(ErrorCode::UnavailableInCurrentMode),
        }
    }

    async fn start<T: Payload>(
        &self,
        a: &Start<'_>,
        reply: Reply<'_>,
        call: impl Fn(&PutStart<'_>) -> Attempt<T>,
    ) -> Served {
        let config = a.replicate_config();
        if a.config.group_ids.is_some_and(|groups| groups.len() != 1) {
            return reply.refuse(ErrorCode::InvalidParams);
        }
        reply.tally.value_bytes = Some(a.slice_length);
        reply.send_or_close(self.service.call(|| call(&a.to_core(&config))).await)
    }

    async fn remove_matching(&self, regex: Option<&Regex>, force: bool) -> Result<i64, Refusal> {
        let mut cursor = WalkCursor::default();
        let core = self.service.core();
        self.service.walk(|| core.remove_matching(regex, force, &mut cursor)).await?;
        Ok(cursor.acted as i64)
    }
}
