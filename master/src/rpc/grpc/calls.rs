//! The calls: translate, call the service, translate back.

use super::{
    convert::{code, replica_type, replicas, routing_mismatch, segment, uuid},
    steps::{Answer, Calls, no_permit, units},
};
use crate::{
    admin::Protocol,
    error::ErrorCode,
    rpc::{
        native::generation::Method,
        server::Plane,
        service::{HealthReport, STORE_VERSION, parse_regex},
        telemetry::Tally,
    },
    types::{ClientStatus, OpError, ReplicaType, SegmentStatus, Uuid, WalkCursor},
};
use mooncake_proto::v1;
use std::time::Duration;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl v1::master_service_server::MasterService for Calls {
    async fn exist_key(&self, request: Request<v1::ExistKeyRequest>) -> Answer<v1::ExistKeyResponse> {
        let key = request.into_inner().key;
        let mut results = self.exist(Method::ExistKey, std::slice::from_ref(&key)).await?;
        Ok(Response::new(results.pop().unwrap_or_default()))
    }

    async fn batch_exist_key(
        &self,
        request: Request<v1::BatchExistKeyRequest>,
    ) -> Answer<v1::BatchExistKeyResponse> {
        let results = self.exist(Method::BatchExistKey, &request.into_inner().keys).await?;
        Ok(Response::new(v1::BatchExistKeyResponse { results }))
    }

    async fn get_replica_list(
        &self,
        request: Request<v1::GetReplicaListRequest>,
    ) -> Answer<v1::GetReplicaListResponse> {
        let key = request.into_inner().key;
        let mut results = self.lists(Method::GetReplicaList, std::slice::from_ref(&key)).await?;
        Ok(Response::new(results.pop().unwrap_or_default()))
    }

    async fn batch_get_replica_list(
        &self,
        request: Request<v1::BatchGetReplicaListRequest>,
    ) -> Answer<v1::BatchGetReplicaListResponse> {
        let results = self.lists(Method::BatchGetReplicaList, &request.into_inner().keys).await?;
        Ok(Response::new(v1::BatchGetReplicaListResponse { results }))
    }

    async fn get_replica_list_by_regex(
        &self,
        request: Request<v1::GetReplicaListByRegexRequest>,
    ) -> Answer<v1::GetReplicaListByRegexResponse> {
        self.main_only(Method::GetReplicaListByRegex)?;
        let regex = match parse_regex(request.get_ref().regex.as_bytes()) {
            Ok(regex) => regex,
            Err(code) => {
                let entries = Vec::new();
                return Ok(Response::new(v1::GetReplicaListByRegexResponse { code: code.number(), entries }));
            }
        };
        let core = self.service.core();
        let (mut cursor, mut found) = (WalkCursor::default(), Vec::new());
        self.service
            .walk(|| core.replica_lists_matching(&regex, &mut cursor, &mut found))
            .await
            .map_err(|_| no_permit())?;
        // A key that is no text cannot be named in this API; native clients see it.
        let entries = found
            .iter()
            .filter_map(|(key, found)| {
                let key = std::str::from_utf8(key).ok()?.to_owned();
                let replicas = replicas(found);
                Some(v1::get_replica_list_by_regex_response::Entry { key, replicas })
            })
            .collect();
        Ok(Response::new(v1::GetReplicaListByRegexResponse { code: 0, entries }))
    }

    async fn put_start(&self, request: Request<v1::PutStartRequest>) -> Answer<v1::PutStartResponse> {
        self.start(Method::PutStart, request.into_inner(), false).await
    }

    async fn put_end(&self, request: Request<v1::PutEndRequest>) -> Answer<v1::PutEndResponse> {
        self.end(Method::PutEnd, request.into_inner()).await
    }

    async fn put_revoke(&self, request: Request<v1::PutRevokeRequest>) -> Answer<v1::PutRevokeResponse> {
        self.revoke(Method::PutRevoke, request.into_inner()).await
    }

    async fn batch_put_start(
        &self,
        request: Request<v1::BatchPutStartRequest>,
    ) -> Answer<v1::BatchPutStartResponse> {
        self.batch_start(Method::BatchPutStart, request.into_inner(), false).await
    }

    async fn batch_put_end(
        &self,
        request: Request<v1::BatchPutEndRequest>,
    ) -> Answer<v1::BatchPutEndResponse> {
        self.batch_end(Method::BatchPutEnd, request.into_inner()).await
    }

    async fn batch_put_revoke(
        &self,
        request: Request<v1::BatchPutRevokeRequest>,
    ) -> Answer<v1::BatchPutRevokeResponse> {
        self.batch_revoke(Method::BatchPutRevoke, request.into_inner()).await
    }

    async fn upsert_start(&self, request: Request<v1::PutStartRequest>) -> Answer<v1::PutStartResponse> {
        self.start(Method::UpsertStart, request.into_inner(), true).await
    }

    async fn upsert_end(&self, request: Request<v1::PutEndRequest>) -> Answer<v1::PutEndResponse> {
        self.end(Method::UpsertEnd, request.into_inner()).await
    }

    async fn upsert_revoke(&self, request: Request<v1::PutRevokeRequest>) -> Answer<v1::PutRevokeResponse> {
        self.revoke(Method::UpsertRevoke, request.into_inner()).await
    }

    async fn batch_upsert_start(
        &self,
        request: Request<v1::BatchPutStartRequest>,
    ) -> Answer<v1::BatchPutStartResponse> {
        self.batch_start(Method::BatchUpsertStart, request.into_inner(), true).await
    }

    async fn batch_upsert_end(
        &self,
        request: Request<v1::BatchPutEndRequest>,
    ) -> Answer<v1::BatchPutEndResponse> {
        self.batch_end(Method::BatchUpsertEnd, request.into_inner()).await
    }

    async fn batch_upsert_revoke(
        &self,
        request: Request<v1::BatchPutRevokeRequest>,
    ) -> Answer<v1::BatchPutRevokeResponse> {
        self.batch_revoke(Method::BatchUpsertRevoke, request.into_inner()).await
    }

    async fn remove(&self, request: Request<v1::RemoveRequest>) -> Answer<v1::RemoveResponse> {
        let request = request.into_inner();
        let core = self.service.core();
        let result = self.call(Method::Remove, || core.remove(request.key.as_bytes(), request.force)).await?;
        Ok(Response::new(v1::RemoveResponse { code: code(&result) }))
    }

    async fn batch_remove(
        &self,
        request: Request<v1::BatchRemoveRequest>,
    ) -> Answer<v1::BatchRemoveResponse> {
        let request = request.into_inner();
        let core = self.service.core();
        let keys = &request.keys;
        let results = self
            .batch(Method::BatchRemove, keys.len(), |i| core.remove(keys[i].as_bytes(), request.force))
            .await?;
        Ok(Response::new(v1::BatchRemoveResponse { results: units(&results) }))
    }

    async fn remove_by_regex(
        &self,
        request: Request<v1::RemoveByRegexRequest>,
    ) -> Answer<v1::RemoveByRegexResponse> {
        let request = request.into_inner();
        let response = match parse_regex(request.regex.as_bytes()) {
            Err(code) => v1::RemoveByRegexResponse { code: code.number(), removed: 0 },
            Ok(regex) => {
                let removed =
                    self.remove_matching(Method::RemoveByRegex, Some(&regex), request.force).await?;
                v1::RemoveByRegexResponse { code: 0, removed }
            }
        };
        Ok(Response::new(response))
    }

    async fn remove_all(&self, request: Request<v1::RemoveAllRequest>) -> Answer<v1::RemoveAllResponse> {
        let removed = self.remove_matching(Method::RemoveAll, None, request.get_ref().force).await?;
        Ok(Response::new(v1::RemoveAllResponse { removed }))
    }

    async fn mount_segment(
        &self,
        request: Request<v1::MountSegmentRequest>,
    ) -> Answer<v1::MountSegmentResponse> {
        self.main_only(Method::MountSegment)?;
        let request = request.into_inner();
        let client = uuid(request.client_id, "client_id")?;
        let spec = segment(request.segment, "segment")?;
        let core = self.service.core();
        let result = self
            .call(Method::MountSegment, || core.mount_segment(client, spec.clone()).map_err(OpError::Failed))
            .await?;
        Ok(Response::new(v1::MountSegmentResponse { code: code(&result) }))
    }

    async fn re_mount_segment(
        &self,
        request: Request<v1::ReMountSegmentRequest>,
    ) -> Answer<v1::ReMountSegmentResponse> {
        self.main_only(Method::ReMountSegment)?;
        let request = request.into_inner();
        let client = uuid(request.client_id, "client_id")?;
        let specs = request
            .segments
            .into_iter()
            .enumerate()
            .map(|(i, spec)| segment(Some(spec), &format!("segments[{i}]")))
            .collect::<Result<Vec<_>, _>>()?;
        let core = self.service.core();
        let result = self
            .call(Method::ReMountSegment, || {
                core.remount_segments(client, specs.clone()).map_err(OpError::Failed)
            })
            .await?;
        Ok(Response::new(v1::ReMountSegmentResponse { code: code(&result) }))
    }

    async fn unmount_segment(
        &self,
        request: Request<v1::UnmountSegmentRequest>,
    ) -> Answer<v1::UnmountSegmentResponse> {
        self.main_only(Method::UnmountSegment)?;
        let request = request.into_inner();
        let id = uuid(request.segment_id, "segment_id")?;
        let client = uuid(request.client_id, "client_id")?;
        let core = self.service.core();
        let result = self
            .call(Method::UnmountSegment, || core.unmount_segment(id, client).map_err(OpError::Failed))
            .await?;
        Ok(Response::new(v1::UnmountSegmentResponse { code: code(&result) }))
    }

    async fn ping(&self, request: Request<v1::PingRequest>) -> Answer<v1::PingResponse> {
        let client = uuid(request.get_ref().client_id, "client_id")?;
        if self.plane == Plane::Main && !self.service.ping_on_main() {
            let port = self.service.heartbeat_port();
            self.service.telemetry().misrouted_ping(Protocol::Grpc, client, port);
            return Err(routing_mismatch(port));
        }
        let started = self.service.clock().now();
        let (view_version_id, status) = self.service.ping(client);
        self.count(Method::Ping, &Tally::default(), started);
        let client_status = match status {
            ClientStatus::Ok => v1::ClientStatus::ClientOk,
            ClientStatus::NeedRemount => v1::ClientStatus::NeedRemount,
        };
        Ok(Response::new(v1::PingResponse {
            code: 0,
            view_version_id,
            client_status: client_status as i32,
            incarnation: self.service.core().incarnation(client).unwrap_or(0),
        }))
    }

    async fn get_storage_config(
        &self,
        _: Request<v1::GetStorageConfigRequest>,
    ) -> Answer<v1::GetStorageConfigResponse> {
        self.main_only(Method::GetStorageConfig)?;
        let info = self.service.info();
        Ok(Response::new(v1::GetStorageConfigResponse {
            fsdir: info.fsdir.clone(),
            enable_disk_eviction: info.enable_disk_eviction,
            quota_bytes: info.quota_bytes,
        }))
    }

    async fn service_ready(&self, _: Request<v1::ServiceReadyRequest>) -> Answer<v1::ServiceReadyResponse> {
        Ok(Response::new(v1::ServiceReadyResponse { version: STORE_VERSION.to_owned() }))
    }

    async fn health_check(&self, _: Request<v1::HealthCheckRequest>) -> Answer<v1::HealthCheckResponse> {
        self.main_only(Method::HealthCheck)?;
        let started = self.service.clock().now();
        let report = self.service.health_check(started, HealthReport::START).await;
        self.count(Method::HealthCheck, &Tally::default(), started);
        Ok(Response::new(v1::HealthCheckResponse {
            ok: report.ok,
            shards_checked: report.shards_checked,
            shards_blocked: report.shards_blocked,
        }))
    }

    async fn get_heartbeat_rpc_port(
        &self,
        _: Request<v1::GetHeartbeatRpcPortRequest>,
    ) -> Answer<v1::GetHeartbeatRpcPortResponse> {
        self.main_only(Method::GetHeartbeatRpcPort)?;
        let heartbeat_rpc_port = self.service.heartbeat_port();
        Ok(Response::new(v1::GetHeartbeatRpcPortResponse { heartbeat_rpc_port }))
    }

    async fn heartbeat_service_ready(
        &self,
        _: Request<v1::HeartbeatServiceReadyRequest>,
    ) -> Answer<v1::HeartbeatServiceReadyResponse> {
        self.main_only(Method::HeartbeatServiceReady)?;
        let heartbeat_rpc_port = self.service.heartbeat_port();
        Ok(Response::new(v1::HeartbeatServiceReadyResponse { heartbeat_rpc_port }))
    }

    async fn batch_replica_clear(
        &self,
        request: Request<v1::BatchReplicaClearRequest>,
    ) -> Answer<v1::BatchReplicaClearResponse> {
        self.main_only(Method::BatchReplicaClear)?;
        let v1::BatchReplicaClearRequest { keys, client_id, segment_name } = request.into_inner();
        let client = uuid(client_id, "client_id")?;
        let core = self.service.core();
        let cleared = self
            .batch(Method::BatchReplicaClear, keys.len(), |i| {
                core.batch_replica_clear(client, keys[i].as_bytes(), segment_name.as_bytes())
            })
            .await?;
        let cleared_keys =
            keys.into_iter().zip(cleared).filter(|(_, done)| *done == Ok(true)).map(|(key, _)| key).collect();
        Ok(Response::new(v1::BatchReplicaClearResponse { cleared_keys }))
    }

    async fn evict_disk_replica(
        &self,
        request: Request<v1::EvictDiskReplicaRequest>,
    ) -> Answer<v1::EvictDiskReplicaResponse> {
        self.main_only(Method::EvictDiskReplica)?;
        let request = request.into_inner();
        uuid(request.client_id, "client_id")?;
        let kind = disk_type(request.replica_type)?;
        let core = self.service.core();
        let result = self
            .call(Method::EvictDiskReplica, || core.evict_disk_replica(request.key.as_bytes(), kind))
            .await?;
        Ok(Response::new(v1::EvictDiskReplicaResponse { code: code(&result) }))
    }

    async fn batch_evict_disk_replica(
        &self,
        request: Request<v1::BatchEvictDiskReplicaRequest>,
    ) -> Answer<v1::BatchEvictDiskReplicaResponse> {
        self.main_only(Method::BatchEvictDiskReplica)?;
        let request = request.into_inner();
        uuid(request.client_id, "client_id")?;
        let kind = disk_type(request.replica_type)?;
        let (core, keys) = (self.service.core(), &request.keys);
        let results = self
            .batch(Method::BatchEvictDiskReplica, keys.len(), |i| {
                core.evict_disk_replica(keys[i].as_bytes(), kind)
            })
            .await?;
        Ok(Response::new(v1::BatchEvictDiskReplicaResponse { results: units(&results) }))
    }

    async fn graceful_unmount_segment(
        &self,
        request: Request<v1::GracefulUnmountSegmentRequest>,
    ) -> Answer<v1::GracefulUnmountSegmentResponse> {
        self.main_only(Method::GracefulUnmountSegment)?;
        let request = request.into_inner();
        let id = uuid(request.segment_id, "segment_id")?;
        let client = uuid(request.client_id, "client_id")?;
        let grace = Duration::from_millis(request.grace_period_ms);
        let core = self.service.core();
        let unmount = || core.graceful_unmount_segment(id, client, grace).map_err(OpError::Failed);
        let result = self.call(Method::GracefulUnmountSegment, unmount).await?;
        Ok(Response::new(v1::GracefulUnmountSegmentResponse { code: code(&result) }))
    }

    async fn query_segment_status(
        &self,
        request: Request<v1::QuerySegmentStatusRequest>,
    ) -> Answer<v1::QuerySegmentStatusResponse> {
        let name = request.into_inner().segment_name;
        let status = || self.service.core().segment_status_by_name(name.as_bytes());
        let result = self.call(Method::QuerySegmentStatus, || found(status())).await?;
        Ok(Response::new(segment_status(result)))
    }

    async fn query_segment_status_by_id(
        &self,
        request: Request<v1::QuerySegmentStatusByIdRequest>,
    ) -> Answer<v1::QuerySegmentStatusResponse> {
        self.main_only(Method::QuerySegmentStatusById)?;
        let id = uuid(request.into_inner().segment_id, "segment_id")?;
        let status = || self.service.core().segment_status(id);
        let result = self.call(Method::QuerySegmentStatusById, || found(status())).await?;
        Ok(Response::new(segment_status(result)))
    }

    async fn batch_query_ip(
        &self,
        request: Request<v1::BatchQueryIpRequest>,
    ) -> Answer<v1::BatchQueryIpResponse> {
        self.main_only(Method::BatchQueryIp)?;
        let started = self.service.clock().now();
        let ids = request.into_inner().client_ids;
        let clients = ids.iter().map(|id| Uuid { first: id.first, second: id.second });
        let hosts = self.service.core().hosts_of(clients);
        let items = Some((ids.len() as u64, (ids.len() - hosts.len().min(ids.len())) as u64));
        self.count(Method::BatchQueryIp, &Tally { items, ..Tally::default() }, started);
        let entries = hosts
            .into_iter()
            .map(|(client, hosts)| v1::batch_query_ip_response::Entry {
                client_id: Some(v1::Uuid { first: client.first, second: client.second }),
                hosts: hosts.iter().map(|host| String::from_utf8_lossy(host).into_owned()).collect(),
            })
            .collect();
        Ok(Response::new(v1::BatchQueryIpResponse { entries }))
    }

    async fn get_fsdir(&self, _: Request<v1::GetFsdirRequest>) -> Answer<v1::GetFsdirResponse> {
        self.main_only(Method::GetFsdir)?;
        Ok(Response::new(v1::GetFsdirResponse { fsdir: self.service.info().fsdir.clone() }))
    }

    async fn mount_local_disk_segment(
        &self,
        _: Request<v1::MountLocalDiskSegmentRequest>,
    ) -> Answer<v1::MountLocalDiskSegmentResponse> {
        let code = self.refuse(Method::MountLocalDiskSegment, ErrorCode::UnableOffload)?;
        Ok(Response::new(v1::MountLocalDiskSegmentResponse { code }))
    }

    async fn unmount_local_disk_segment(
        &self,
        _: Request<v1::UnmountLocalDiskSegmentRequest>,
    ) -> Answer<v1::UnmountLocalDiskSegmentResponse> {
        let code = self.refuse(Method::UnmountLocalDiskSegment, ErrorCode::UnableOffload)?;
        Ok(Response::new(v1::UnmountLocalDiskSegmentResponse { code }))
    }

    async fn poll_remove_all(
        &self,
        _: Request<v1::PollRemoveAllRequest>,
    ) -> Answer<v1::PollRemoveAllResponse> {
        let code = self.refuse(Method::PollRemoveAll, ErrorCode::SegmentNotFound)?;
        Ok(Response::new(v1::PollRemoveAllResponse { code, remove_all: false }))
    }

    async fn mount_no_f_segment(
        &self,
        _: Request<v1::MountNoFSegmentRequest>,
    ) -> Answer<v1::MountNoFSegmentResponse> {
        let code = self.refuse(Method::MountNoFSegment, ErrorCode::UnavailableInCurrentMode)?;
        Ok(Response::new(v1::MountNoFSegmentResponse { code }))
    }

    async fn re_mount_no_f_segment(
        &self,
        _: Request<v1::ReMountNoFSegmentRequest>,
    ) -> Answer<v1::ReMountNoFSegmentResponse> {
        let code = self.refuse(Method::ReMountNoFSegment, ErrorCode::UnavailableInCurrentMode)?;
        Ok(Response::new(v1::ReMountNoFSegmentResponse { code }))
    }

    async fn unmount_no_f_segment(
        &self,
        _: Request<v1::UnmountNoFSegmentRequest>,
    ) -> Answer<v1::UnmountNoFSegmentResponse> {
        let code = self.refuse(Method::UnmountNoFSegment, ErrorCode::UnavailableInCurrentMode)?;
        Ok(Response::new(v1::UnmountNoFSegmentResponse { code }))
    }

    async fn get_all_no_f_segments(
        &self,
        _: Request<v1::GetAllNoFSegmentsRequest>,
    ) -> Answer<v1::GetAllNoFSegmentsResponse> {
        self.main_only(Method::GetAllNoFSegments)?;
        Ok(Response::new(v1::GetAllNoFSegmentsResponse::default()))
    }

    async fn get_no_f_segments_by_name(
        &self,
        _: Request<v1::GetNoFSegmentsByNameRequest>,
    ) -> Answer<v1::GetNoFSegmentsByNameResponse> {
        let code = self.refuse(Method::GetNoFSegmentsByName, ErrorCode::SegmentNotFound)?;
        Ok(Response::new(v1::GetNoFSegmentsByNameResponse { code, owners: Vec::new() }))
    }
}

/// The kind of a DISK replica's eviction, where the default is not that of a Put.
fn disk_type(number: Option<i32>) -> Result<ReplicaType, Status> {
    replica_type(number.or(Some(v1::ReplicaType::Disk as i32)))
}

fn found(status: Option<SegmentStatus>) -> crate::types::Attempt<SegmentStatus> {
    status.ok_or(OpError::Failed(ErrorCode::SegmentNotFound))
}

fn segment_status(result: Result<SegmentStatus, ErrorCode>) -> v1::QuerySegmentStatusResponse {
    let status = result.as_ref().map_or(0, |status| i32::from(*status as u8));
    v1::QuerySegmentStatusResponse { code: code(&result), status }
}
