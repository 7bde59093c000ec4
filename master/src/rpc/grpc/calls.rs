//! The calls: translate, call the service, translate back.

use super::convert::{code, config, group_id, replica, replica_type, routing_mismatch, segment, uuid};
use crate::{
    admin::Protocol,
    clock::Instant,
    error::ErrorCode,
    rpc::{
        native::generation::Method,
        same_node::SameNode,
        server::Plane,
        service::{HealthReport, Refusal, STORE_VERSION, Service, is_data, parse_regex},
        telemetry::Tally,
    },
    types::{Attempt, ClientStatus, OpError, PutStart, ReplicaList, Replicas, WalkCursor},
};
use mooncake_proto::v1;
use regex::bytes::Regex;
use std::sync::Arc;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

pub(super) struct Calls {
    service: Arc<Service>,
    plane: Plane,
}

impl Calls {
    pub(super) fn new(service: Arc<Service>, plane: Plane) -> Calls {
        Calls { service, plane }
    }

    /// In front of every call but Ping and ServiceReady.
    fn main_only(&self, method: Method) -> Result<(), Status> {
        match self.plane {
            Plane::Main => {
                if is_data(method) {
                    self.service.info().faults.before_handler();
                }
                Ok(())
            }
            Plane::Heartbeat => Err(Status::unimplemented(format!(
                "{method:?} is not served on the heartbeat port, only Ping and ServiceReady are"
            ))),
        }
    }

    async fn call<T>(
        &self,
        method: Method,
        call: impl FnMut() -> Attempt<T>,
    ) -> Result<Result<T, ErrorCode>, Status> {
        self.main_only(method)?;
        let started = self.service.clock().now();
        let result = match self.service.call(call).await {
            Ok(value) => Ok(value),
            Err(Refusal::Code(code)) => Err(code),
            Err(Refusal::NoPermit) => return Err(no_permit()),
        };
        let tally = Tally { failed: result.is_err(), ..Tally::default() };
        self.count(method, &tally, started);
        Ok(result)
    }

    fn count(&self, method: Method, tally: &Tally, started: Instant) {
        let took = self.service.clock().now().saturating_since(started);
        self.service.telemetry().count(method, Protocol::Grpc, tally, took);
    }

    async fn batch<T>(
        &self,
        method: Method,
        total: usize,
        mut each: impl FnMut(usize) -> Attempt<T>,
    ) -> Result<Vec<Result<T, ErrorCode>>, Status> {
        self.main_only(method)?;
        let started = self.service.clock().now();
        let results = self.service.batch(0..total, |i| each(*i)).await.map_err(|_| no_permit())?;
        let mut tally = Tally::default();
        tally.batch(&results);
        self.count(method, &tally, started);
        Ok(results)
    }

    async fn start(
        &self,
        method: Method,
        request: v1::PutStartRequest,
        upsert: bool,
    ) -> Answer<v1::PutStartResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let mut placement = config(request.config.as_ref(), 1)?;
        placement.group_id = group_id(request.config.as_ref(), 0);
        let start = PutStart {
            client,
            key: request.key.as_bytes(),
            slice_length: request.slice_length,
            config: &placement,
        };
        let core = self.service.core();
        let result = self
            .call(method, || if upsert { core.upsert_start(&start) } else { core.put_start(&start) })
            .await?;
        Ok(Response::new(started(&result)))
    }

    async fn batch_start(
        &self,
        method: Method,
        request: v1::BatchPutStartRequest,
        upsert: bool,
    ) -> Answer<v1::BatchPutStartResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let placement = config(request.config.as_ref(), request.keys.len())?;
        let core = self.service.core();
        let mut same_node = SameNode::new(&placement);
        let matching = request.keys.len() == request.slice_lengths.len();
        let results = self
            .batch(method, request.keys.len(), |i| {
                if !matching {
                    return Err(OpError::Failed(ErrorCode::InvalidParams));
                }
                let placement = crate::types::ReplicateConfig {
                    group_id: group_id(request.config.as_ref(), i),
                    ..placement.clone()
                };
                let start = PutStart {
                    client,
                    key: request.keys[i].as_bytes(),
                    slice_length: request.slice_lengths[i],
                    config: &placement,
                };
                same_node.start(
                    &start,
                    |start| if upsert { core.upsert_start(start) } else { core.put_start(start) },
                )
            })
            .await?;
        Ok(Response::new(v1::BatchPutStartResponse { results: results.iter().map(started).collect() }))
    }

    async fn end(&self, method: Method, request: v1::PutEndRequest) -> Answer<v1::PutEndResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let kind = replica_type(request.replica_type)?;
        let meta = request.object_meta.ok_or_else(|| Status::invalid_argument("object_meta: is missing"))?;
        let core = self.service.core();
        let result = self
            .call(method, || core.put_end(client, meta.key.as_bytes(), meta.object_checksum, kind))
            .await?;
        Ok(Response::new(v1::PutEndResponse { code: code(&result) }))
    }

    async fn batch_end(
        &self,
        method: Method,
        request: v1::BatchPutEndRequest,
    ) -> Answer<v1::BatchPutEndResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let kind = replica_type(request.replica_type)?;
        let core = self.service.core();
        let metas = &request.object_metas;
        let results = self
            .batch(method, metas.len(), |i| {
                core.put_end(client, metas[i].key.as_bytes(), metas[i].object_checksum, kind)
            })
            .await?;
        Ok(Response::new(v1::BatchPutEndResponse { results: units(&results) }))
    }

    async fn revoke(&self, method: Method, request: v1::PutRevokeRequest) -> Answer<v1::PutRevokeResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let kind = replica_type(request.replica_type)?;
        let core = self.service.core();
        let result = self.call(method, || core.put_revoke(client, request.key.as_bytes(), kind)).await?;
        Ok(Response::new(v1::PutRevokeResponse { code: code(&result) }))
    }

    async fn batch_revoke(
        &self,
        method: Method,
        request: v1::BatchPutRevokeRequest,
    ) -> Answer<v1::BatchPutRevokeResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let kind = replica_type(request.replica_type)?;
        let core = self.service.core();
        let keys = &request.keys;
        let results =
            self.batch(method, keys.len(), |i| core.put_revoke(client, keys[i].as_bytes(), kind)).await?;
        Ok(Response::new(v1::BatchPutRevokeResponse { results: units(&results) }))
    }

    async fn remove_matching(
        &self,
        method: Method,
        regex: Option<&Regex>,
        force: bool,
    ) -> Result<i64, Status> {
        self.main_only(method)?;
        let core = self.service.core();
        let mut cursor = WalkCursor::default();
        self.service
            .walk(|| core.remove_matching(regex, force, &mut cursor))
            .await
            .map_err(|_| no_permit())?;
        Ok(cursor.acted as i64)
    }
}

fn no_permit() -> Status {
    Status::unavailable("this master stopped serving; connect to the active again")
}

fn started(result: &Result<Replicas, ErrorCode>) -> v1::PutStartResponse {
    let replicas =
        result.as_ref().map_or_else(|_| Vec::new(), |replicas| replicas.iter().map(replica).collect());
    v1::PutStartResponse { code: code(result), replicas }
}

fn replica_list(result: &Result<ReplicaList, ErrorCode>) -> v1::GetReplicaListResponse {
    let value = result.as_ref().ok().map(|list| v1::ReplicaList {
        replicas: list.replicas.iter().map(replica).collect(),
        lease_ttl_ms: list.lease_ttl_ms,
        object_checksum: list.object_checksum,
    });
    v1::GetReplicaListResponse { code: code(result), value }
}

fn exists(result: Result<bool, ErrorCode>) -> v1::ExistKeyResponse {
    v1::ExistKeyResponse { code: code(&result), exists: result.unwrap_or(false) }
}

fn units(results: &[Result<(), ErrorCode>]) -> Vec<v1::Result> {
    results.iter().map(|result| v1::Result { code: code(result) }).collect()
}

#[tonic::async_trait]
impl v1::master_service_server::MasterService for Calls {
    async fn exist_key(&self, request: Request<v1::ExistKeyRequest>) -> Answer<v1::ExistKeyResponse> {
        let request = request.into_inner();
        let result =
            self.call(Method::ExistKey, || self.service.core().exist_key(request.key.as_bytes())).await?;
        Ok(Response::new(exists(result)))
    }

    async fn batch_exist_key(
        &self,
        request: Request<v1::BatchExistKeyRequest>,
    ) -> Answer<v1::BatchExistKeyResponse> {
        let keys = request.into_inner().keys;
        let core = self.service.core();
        let results =
            self.batch(Method::BatchExistKey, keys.len(), |i| core.exist_key(keys[i].as_bytes())).await?;
        Ok(Response::new(v1::BatchExistKeyResponse { results: results.into_iter().map(exists).collect() }))
    }

    async fn get_replica_list(
        &self,
        request: Request<v1::GetReplicaListRequest>,
    ) -> Answer<v1::GetReplicaListResponse> {
        let request = request.into_inner();
        let core = self.service.core();
        let result =
            self.call(Method::GetReplicaList, || core.get_replica_list(request.key.as_bytes())).await?;
        Ok(Response::new(replica_list(&result)))
    }

    async fn batch_get_replica_list(
        &self,
        request: Request<v1::BatchGetReplicaListRequest>,
    ) -> Answer<v1::BatchGetReplicaListResponse> {
        let keys = request.into_inner().keys;
        let core = self.service.core();
        let results = self
            .batch(Method::BatchGetReplicaList, keys.len(), |i| core.get_replica_list(keys[i].as_bytes()))
            .await?;
        let results = results.iter().map(replica_list).collect();
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
            .filter_map(|(key, replicas)| {
                let key = std::str::from_utf8(key).ok()?.to_owned();
                let replicas = replicas.iter().map(replica).collect();
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
}
