//! What several calls have in common: the permit, the fault, the counting, and the shapes of Start, End and Revoke.

use super::convert::{code, config, group_id, replica_type, replicas as replicas_of, uuid};
use crate::{
    admin::Protocol,
    clock::Instant,
    error::ErrorCode,
    rpc::{
        native::generation::Method,
        same_node::SameNode,
        server::Plane,
        service::{Refusal, Service, is_data},
        telemetry::Tally,
    },
    types::{Attempt, OpError, PutStart, Replicas, WalkCursor},
};
use mooncake_proto::v1;
use regex::bytes::Regex;
use std::sync::Arc;
use tonic::{Response, Status};

pub(super) type Answer<T> = Result<Response<T>, Status>;

pub(super) struct Calls {
    pub(super) service: Arc<Service>,
    pub(super) plane: Plane,
}

impl Calls {
    pub(super) fn new(service: Arc<Service>, plane: Plane) -> Calls {
        Calls { service, plane }
    }

    /// In front of every call but Ping and ServiceReady.
    pub(super) fn main_only(&self, method: Method) -> Result<(), Status> {
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

    pub(super) async fn call<T>(
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

    /// A call that this master always refuses with that code, whose number is the result.
    pub(super) fn refuse(&self, method: Method, code: ErrorCode) -> Result<i32, Status> {
        self.main_only(method)?;
        let started = self.service.clock().now();
        self.count(method, &Tally { failed: true, ..Tally::default() }, started);
        Ok(code.number())
    }

    pub(super) fn count(&self, method: Method, tally: &Tally, started: Instant) {
        let took = self.service.clock().now().saturating_since(started);
        self.service.telemetry().count(method, Protocol::Grpc, tally, took);
    }

    pub(super) async fn batch<T>(
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

    pub(super) async fn start(
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

    pub(super) async fn batch_start(
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

    pub(super) async fn end(&self, method: Method, request: v1::PutEndRequest) -> Answer<v1::PutEndResponse> {
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

    pub(super) async fn batch_end(
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

    pub(super) async fn revoke(
        &self,
        method: Method,
        request: v1::PutRevokeRequest,
    ) -> Answer<v1::PutRevokeResponse> {
        self.main_only(method)?;
        let client = uuid(request.client_id, "client_id")?;
        let kind = replica_type(request.replica_type)?;
        let core = self.service.core();
        let result = self.call(method, || core.put_revoke(client, request.key.as_bytes(), kind)).await?;
        Ok(Response::new(v1::PutRevokeResponse { code: code(&result) }))
    }

    pub(super) async fn batch_revoke(
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

    pub(super) async fn remove_matching(
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

pub(super) fn no_permit() -> Status {
    Status::unavailable("this master stopped serving; connect to the active again")
}

pub(super) fn started(result: &Result<Replicas, ErrorCode>) -> v1::PutStartResponse {
    let replicas = result.as_ref().map_or_else(|_| Vec::new(), replicas_of);
    v1::PutStartResponse { code: code(result), replicas }
}

pub(super) fn units(results: &[Result<(), ErrorCode>]) -> Vec<v1::Result> {
    results.iter().map(|result| v1::Result { code: code(result) }).collect()
}
