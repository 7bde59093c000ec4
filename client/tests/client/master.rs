//! A scripted master behind the generated server trait.

use mooncake_proto::v1::{self, ClientStatus, ErrorCode, master_service_server::MasterService};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// What a master was asked and has in mind.
#[derive(Debug, Default)]
pub struct Notes {
    pub pings_on_main: u32,
    pub pings_on_port: u32,
    pub remounts: u32,
    /// Epochs that calls carried, by method.
    pub epochs: Vec<(&'static str, Option<String>)>,
    pub exist_calls: u32,
    pub put_calls: u32,
    /// Set by a mount; cleared by a restart, which here is a new `Master`.
    mounted: bool,
    last_signal: Option<Instant>,
    /// The longest time between two signs of life.
    pub longest_silence: Duration,
    /// The next calls of these methods are refused with these.
    pub refuse: Vec<(&'static str, Status)>,
}

#[derive(Debug)]
pub struct Master {
    /// Its heartbeat port, 0 for none.
    pub port: u16,
    pub keep_on_main: bool,
    pub version: &'static str,
    pub epoch: u64,
    pub notes: Mutex<Notes>,
}

impl Master {
    pub fn new(port: u16, keep_on_main: bool) -> Arc<Master> {
        Master::with_epoch(port, keep_on_main, 0)
    }

    pub fn with_epoch(port: u16, keep_on_main: bool, epoch: u64) -> Arc<Master> {
        Arc::new(Master { port, keep_on_main, version: "2.0.0", epoch, notes: Mutex::default() })
    }

    pub fn refuse(&self, method: &'static str, status: Status) {
        self.notes.lock().refuse.push((method, status));
    }

    /// The longest silence of the mounted client up to now.
    pub fn silence(&self) -> Duration {
        let notes = self.notes.lock();
        notes.last_signal.map_or(Duration::ZERO, |last| last.elapsed().max(notes.longest_silence))
    }

    fn signal(&self) {
        let mut notes = self.notes.lock();
        if let Some(last) = notes.last_signal.replace(Instant::now()) {
            notes.longest_silence = notes.longest_silence.max(last.elapsed());
        }
    }
}

/// One of its ports.
#[derive(Clone, Debug)]
pub struct Door {
    pub master: Arc<Master>,
    pub main: bool,
}

impl Door {
    #[allow(clippy::unnecessary_wraps, reason = "it ends every method")]
    fn answer<T>(&self, value: T) -> Result<Response<T>, Status> {
        let mut response = Response::new(value);
        response.metadata_mut().insert("mooncake-epoch", self.master.epoch.into());
        Ok(response)
    }

    fn enter<T>(&self, method: &'static str, request: &Request<T>, anywhere: bool) -> Result<(), Status> {
        let epoch = request.metadata().get("mooncake-epoch");
        let epoch = epoch.map(|epoch| epoch.to_str().expect("ASCII").to_owned());
        let believed = epoch.clone();
        let mut notes = self.master.notes.lock();
        notes.epochs.push((method, epoch));
        if let Some(next) = notes.refuse.iter().position(|(refused, _)| *refused == method) {
            return Err(notes.refuse.remove(next).1);
        }
        if !anywhere && !self.main {
            return Err(Status::unimplemented("not on the heartbeat port"));
        }
        match believed.map(|epoch| epoch.parse::<u64>().expect("a number")) {
            Some(epoch) if epoch != self.master.epoch => {
                Err(Status::failed_precondition("NOT_LEADER: epoch"))
            }
            _ => Ok(()),
        }
    }
}

macro_rules! master {
    (
        scripted {
            $($name:ident($self:ident, $request:ident: $ask:ident, $anywhere:literal) -> $answer:ident $body:block)*
        }
        unscripted { $($other:ident($other_ask:ident) -> $other_answer:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl MasterService for Door {
            $(async fn $name(&$self, $request: Request<v1::$ask>) -> Result<Response<v1::$answer>, Status> {
                $self.enter(stringify!($name), &$request, $anywhere)?;
                let $request = $request.into_inner();
                $body
            })*
            $(async fn $other(&self, _: Request<v1::$other_ask>) -> Result<Response<v1::$other_answer>, Status> {
                self.answer(v1::$other_answer::default())
            })*
        }
    };
}

master! {
    scripted {
        service_ready(self, _request: ServiceReadyRequest, true) -> ServiceReadyResponse {
            self.answer(v1::ServiceReadyResponse { version: self.master.version.into() })
        }
        heartbeat_service_ready(self, _request: HeartbeatServiceReadyRequest, false) -> HeartbeatServiceReadyResponse {
            self.answer(v1::HeartbeatServiceReadyResponse { heartbeat_rpc_port: self.master.port.into() })
        }
        ping(self, _request: PingRequest, true) -> PingResponse {
            if self.main && self.master.port != 0 && !self.master.keep_on_main {
                let port = self.master.port;
                return Err(Status::failed_precondition(format!("HEARTBEAT_ROUTING_MISMATCH: port {port} only")));
            }
            self.master.signal();
            let mut notes = self.master.notes.lock();
            *(if self.main { &mut notes.pings_on_main } else { &mut notes.pings_on_port }) += 1;
            let status = if notes.mounted { ClientStatus::ClientOk } else { ClientStatus::NeedRemount };
            drop(notes);
            self.answer(v1::PingResponse {
                code: 0,
                view_version_id: 0,
                client_status: status as i32,
                incarnation: 0,
            })
        }
        mount_segment(self, _request: MountSegmentRequest, false) -> MountSegmentResponse {
            self.master.notes.lock().mounted = true;
            self.master.signal();
            self.answer(v1::MountSegmentResponse { code: 0 })
        }
        re_mount_segment(self, request: ReMountSegmentRequest, false) -> ReMountSegmentResponse {
            assert_eq!(request.segments.len(), 1);
            let mut notes = self.master.notes.lock();
            notes.mounted = true;
            notes.remounts += 1;
            drop(notes);
            self.master.signal();
            self.answer(v1::ReMountSegmentResponse { code: 0 })
        }
        exist_key(self, request: ExistKeyRequest, false) -> ExistKeyResponse {
            self.master.notes.lock().exist_calls += 1;
            match request.key.as_str() {
                "slow" => std::future::pending().await,
                "suspect" => self.answer(v1::ExistKeyResponse { code: ErrorCode::RpcFail as i32, exists: false }),
                _ => self.answer(v1::ExistKeyResponse { code: 0, exists: true }),
            }
        }
        batch_exist_key(self, request: BatchExistKeyRequest, false) -> BatchExistKeyResponse {
            let results = request.keys.iter().filter(|key| *key != "lost").map(|key| {
                let code = if key == "bad" { ErrorCode::InvalidKey } else { ErrorCode::Ok };
                v1::ExistKeyResponse { code: code as i32, exists: key == "there" }
            });
            self.answer(v1::BatchExistKeyResponse { results: results.collect() })
        }
        put_start(self, request: PutStartRequest, false) -> PutStartResponse {
            self.master.notes.lock().put_calls += 1;
            let code = match request.key.as_str() {
                "slow" => std::future::pending().await,
                "there" => ErrorCode::ObjectAlreadyExists as i32,
                "strange" => -12345,
                _ => 0,
            };
            self.answer(v1::PutStartResponse { code, replicas: vec![v1::Replica::default()] })
        }
        health_check(self, _request: HealthCheckRequest, false) -> HealthCheckResponse {
            self.answer(v1::HealthCheckResponse { ok: false, shards_checked: 7, shards_blocked: 7 })
        }
    }
    unscripted {
        batch_get_replica_list(BatchGetReplicaListRequest) -> BatchGetReplicaListResponse;
        get_replica_list(GetReplicaListRequest) -> GetReplicaListResponse;
        get_replica_list_by_regex(GetReplicaListByRegexRequest) -> GetReplicaListByRegexResponse;
        put_end(PutEndRequest) -> PutEndResponse;
        put_revoke(PutRevokeRequest) -> PutRevokeResponse;
        batch_put_start(BatchPutStartRequest) -> BatchPutStartResponse;
        batch_put_end(BatchPutEndRequest) -> BatchPutEndResponse;
        batch_put_revoke(BatchPutRevokeRequest) -> BatchPutRevokeResponse;
        upsert_start(PutStartRequest) -> PutStartResponse;
        upsert_end(PutEndRequest) -> PutEndResponse;
        upsert_revoke(PutRevokeRequest) -> PutRevokeResponse;
        batch_upsert_start(BatchPutStartRequest) -> BatchPutStartResponse;
        batch_upsert_end(BatchPutEndRequest) -> BatchPutEndResponse;
        batch_upsert_revoke(BatchPutRevokeRequest) -> BatchPutRevokeResponse;
        remove(RemoveRequest) -> RemoveResponse;
        batch_remove(BatchRemoveRequest) -> BatchRemoveResponse;
        remove_by_regex(RemoveByRegexRequest) -> RemoveByRegexResponse;
        remove_all(RemoveAllRequest) -> RemoveAllResponse;
        unmount_segment(UnmountSegmentRequest) -> UnmountSegmentResponse;
        get_storage_config(GetStorageConfigRequest) -> GetStorageConfigResponse;
        get_heartbeat_rpc_port(GetHeartbeatRpcPortRequest) -> GetHeartbeatRpcPortResponse;
        batch_replica_clear(BatchReplicaClearRequest) -> BatchReplicaClearResponse;
        evict_disk_replica(EvictDiskReplicaRequest) -> EvictDiskReplicaResponse;
        batch_evict_disk_replica(BatchEvictDiskReplicaRequest) -> BatchEvictDiskReplicaResponse;
        graceful_unmount_segment(GracefulUnmountSegmentRequest) -> GracefulUnmountSegmentResponse;
        query_segment_status(QuerySegmentStatusRequest) -> QuerySegmentStatusResponse;
        query_segment_status_by_id(QuerySegmentStatusByIdRequest) -> QuerySegmentStatusResponse;
        batch_query_ip(BatchQueryIpRequest) -> BatchQueryIpResponse;
        get_fsdir(GetFsdirRequest) -> GetFsdirResponse;
        mount_local_disk_segment(MountLocalDiskSegmentRequest) -> MountLocalDiskSegmentResponse;
        unmount_local_disk_segment(UnmountLocalDiskSegmentRequest) -> UnmountLocalDiskSegmentResponse;
        poll_remove_all(PollRemoveAllRequest) -> PollRemoveAllResponse;
        mount_no_f_segment(MountNoFSegmentRequest) -> MountNoFSegmentResponse;
        re_mount_no_f_segment(ReMountNoFSegmentRequest) -> ReMountNoFSegmentResponse;
        unmount_no_f_segment(UnmountNoFSegmentRequest) -> UnmountNoFSegmentResponse;
        get_all_no_f_segments(GetAllNoFSegmentsRequest) -> GetAllNoFSegmentsResponse;
        get_no_f_segments_by_name(GetNoFSegmentsByNameRequest) -> GetNoFSegmentsByNameResponse;
    }
}
