//! gRPC, each connection on a runtime of its own thread.

use super::{CALL_TIMEOUT, Put, Segment, Tally};
use mooncake_master::types::Uuid;
use mooncake_proto::v1::{self, master_service_client::MasterServiceClient};
use std::{io, net::SocketAddr};
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

pub(crate) struct Grpc {
    stub: MasterServiceClient<Channel>,
    runtime: Runtime,
}

fn id(id: Uuid) -> v1::Uuid {
    v1::Uuid { first: id.first, second: id.second }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn texts(keys: &[Vec<u8>]) -> Vec<String> {
    keys.iter().map(|key| text(key)).collect()
}

fn segment(segment: &Segment) -> v1::Segment {
    v1::Segment {
        id: Some(id(segment.id)),
        name: segment.name.clone(),
        base: segment.base,
        size: segment.size,
        te_endpoint: segment.name.clone(),
        protocol: "tcp".into(),
        host_id: String::new(),
    }
}

fn config(put: Put<'_>) -> Option<v1::ReplicateConfig> {
    let preferred_segment = put.preferred.to_owned();
    (!preferred_segment.is_empty()).then(|| v1::ReplicateConfig { preferred_segment, ..Default::default() })
}

fn coded<T>(code: i32, value: T) -> Result<T, i32> {
    if code == 0 { Ok(value) } else { Err(code) }
}

fn listed(answer: &v1::GetReplicaListResponse) -> Result<bool, i32> {
    coded(answer.code, answer.value.as_ref().is_some_and(|list| !list.replicas.is_empty()))
}

macro_rules! call {
    ($self:ident.$method:ident($request:expr)) => {{
        let request = $request;
        let Grpc { stub, runtime } = $self;
        let answer: Result<Response<_>, Status> = runtime.block_on(stub.$method(request));
        answer.map(Response::into_inner).map_err(io::Error::other)
    }};
}

impl Grpc {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Grpc> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(io::Error::other)?;
        let endpoint = endpoint.tcp_nodelay(true).connect_timeout(CALL_TIMEOUT).timeout(CALL_TIMEOUT);
        let channel = runtime.block_on(endpoint.connect()).map_err(io::Error::other)?;
        let stub = MasterServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        Ok(Grpc { stub, runtime })
    }

    pub(crate) fn ping(&mut self, client: Uuid) -> io::Result<Result<bool, i32>> {
        let answer = call!(self.ping(v1::PingRequest { client_id: Some(id(client)) }))?;
        Ok(coded(answer.code, answer.client_status == v1::ClientStatus::ClientOk as i32))
    }

    pub(crate) fn mount(&mut self, spec: &Segment) -> io::Result<Result<(), i32>> {
        let request =
            v1::MountSegmentRequest { segment: Some(segment(spec)), client_id: Some(id(spec.client)) };
        Ok(coded(call!(self.mount_segment(request))?.code, ()))
    }

    pub(crate) fn remount(&mut self, spec: &Segment) -> io::Result<Result<(), i32>> {
        let request =
            v1::ReMountSegmentRequest { segments: vec![segment(spec)], client_id: Some(id(spec.client)) };
        Ok(coded(call!(self.re_mount_segment(request))?.code, ()))
    }

    pub(crate) fn exist(&mut self, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let request = v1::ExistKeyRequest { key: text(key), tenant_id: String::new() };
        let answer = call!(self.exist_key(request))?;
        tally.count(coded(answer.code, answer.exists));
        Ok(())
    }

    pub(crate) fn batch_exist(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> io::Result<()> {
        let request = v1::BatchExistKeyRequest { keys: texts(keys), tenant_id: String::new() };
        let answer = call!(self.batch_exist_key(request))?;
        answer.results.iter().for_each(|result| tally.count(coded(result.code, result.exists)));
        Ok(())
    }

    pub(crate) fn get(&mut self, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let request = v1::GetReplicaListRequest { key: text(key), tenant_id: String::new() };
        tally.count(listed(&call!(self.get_replica_list(request))?));
        Ok(())
    }

    pub(crate) fn batch_get(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> io::Result<()> {
        let request = v1::BatchGetReplicaListRequest { keys: texts(keys), tenant_id: String::new() };
        let answer = call!(self.batch_get_replica_list(request))?;
        answer.results.iter().for_each(|result| tally.count(listed(result)));
        Ok(())
    }

    pub(crate) fn put_start(&mut self, put: Put<'_>, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let request = v1::PutStartRequest {
            client_id: Some(id(put.client)),
            key: text(key),
            slice_length: put.size,
            config: config(put),
            tenant_id: String::new(),
        };
        let answer = call!(self.put_start(request))?;
        tally.count(coded(answer.code, !answer.replicas.is_empty()));
        Ok(())
    }

    pub(crate) fn put_end(&mut self, put: Put<'_>, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let request = v1::PutEndRequest {
            client_id: Some(id(put.client)),
            object_meta: Some(v1::ObjectMeta { key: text(key), object_checksum: None }),
            replica_type: None,
            tenant_id: String::new(),
        };
        tally.count(coded(call!(self.put_end(request))?.code, true));
        Ok(())
    }

    pub(crate) fn batch_put_start(
        &mut self,
        put: Put<'_>,
        keys: &[Vec<u8>],
        tally: &mut Tally,
    ) -> io::Result<()> {
        let request = v1::BatchPutStartRequest {
            client_id: Some(id(put.client)),
            keys: texts(keys),
            slice_lengths: vec![put.size; keys.len()],
            config: config(put),
            tenant_id: String::new(),
        };
        let answer = call!(self.batch_put_start(request))?;
        answer.results.iter().for_each(|result| tally.count(coded(result.code, !result.replicas.is_empty())));
        Ok(())
    }

    pub(crate) fn batch_put_end(
        &mut self,
        put: Put<'_>,
        keys: &[Vec<u8>],
        tally: &mut Tally,
    ) -> io::Result<()> {
        let meta = |key: &Vec<u8>| v1::ObjectMeta { key: text(key), object_checksum: None };
        let request = v1::BatchPutEndRequest {
            client_id: Some(id(put.client)),
            object_metas: keys.iter().map(meta).collect(),
            replica_type: None,
            tenant_id: String::new(),
        };
        let answer = call!(self.batch_put_end(request))?;
        answer.results.iter().for_each(|result| tally.count(coded(result.code, true)));
        Ok(())
    }

    pub(crate) fn remove_all(&mut self) -> io::Result<i64> {
        Ok(call!(self.remove_all(v1::RemoveAllRequest { force: true, tenant_id: String::new() }))?.removed)
    }

    pub(crate) fn health(&mut self) -> io::Result<Option<bool>> {
        Ok(Some(call!(self.health_check(v1::HealthCheckRequest {}))?.ok))
    }

    pub(crate) fn heartbeat_port(&mut self) -> io::Result<u16> {
        let answer = call!(self.get_heartbeat_rpc_port(v1::GetHeartbeatRpcPortRequest {}))?;
        u16::try_from(answer.heartbeat_rpc_port).map_err(io::Error::other)
    }
}
