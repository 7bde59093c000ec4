//! The client and its typed calls.

use crate::{
    error::{ConnectError, Error},
    heartbeat::{self, HeartbeatStatus},
    options::ClientOptions,
    session::{Inner, Kind, Route},
};
use mooncake_proto::v1::{self, ErrorCode};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// A connected client; cloning shares it. Its heartbeats end with the last clone.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
    heartbeat: watch::Receiver<HeartbeatStatus>,
    _loop: Arc<AbortOnDropHandle<()>>,
}

macro_rules! rpc {
    ($self:ident, $kind:ident, $method:ident, $request:expr) => {
        $self.inner.call(
            Kind::$kind,
            $request,
            |mut stub, request| async move { stub.$method(request).await },
        )
    };
}

fn check(code: i32) -> Result<(), Error> {
    match ErrorCode::try_from(code) {
        Ok(ErrorCode::Ok) => Ok(()),
        Ok(code) => Err(Error::Refused(code)),
        Err(_) => Err(Error::UnknownCode(code)),
    }
}

/// One result per key, in the order of the keys.
fn each<T, U>(
    keys: usize,
    results: Vec<T>,
    mut read: impl FnMut(T) -> Result<U, Error>,
) -> Result<Vec<Result<U, Error>>, Error> {
    if results.len() != keys {
        return Err(Error::Answer(format!("{} results for {keys} keys", results.len())));
    }
    Ok(results.into_iter().map(&mut read).collect())
}

fn owned<S: AsRef<str>>(keys: &[S]) -> Vec<String> {
    keys.iter().map(|key| key.as_ref().to_owned()).collect()
}

fn started(answer: v1::PutStartResponse) -> Result<Vec<v1::Replica>, Error> {
    check(answer.code).map(|()| answer.replicas)
}

fn listed(answer: v1::GetReplicaListResponse) -> Result<v1::ReplicaList, Error> {
    check(answer.code)?;
    answer.value.ok_or_else(|| Error::Answer("value: is missing".into()))
}

impl Client {
    /// Connects and makes the handshake. Heartbeats start with the first mounted segment.
    pub async fn connect(options: ClientOptions) -> Result<Client, ConnectError> {
        let inner = Arc::new(Inner::new(options)?);
        let (session, _) = inner.session().await?;
        let (sender, heartbeat) = watch::channel(HeartbeatStatus::new(session.route));
        let task = tokio::spawn(heartbeat::run(Arc::downgrade(&inner), sender));
        Ok(Client { inner, heartbeat, _loop: Arc::new(AbortOnDropHandle::new(task)) })
    }

    /// Makes the handshake again, over the connections there are as far as they still work (C5). Calls do this by
    /// themselves when they find that it is needed.
    pub async fn reconnect(&self) -> Result<(), ConnectError> {
        self.inner.renew().await
    }

    /// This client's identity.
    pub fn id(&self) -> v1::Uuid {
        self.inner.options.client_id
    }

    /// The epoch of the master, `None` while not connected; 0 without HA.
    pub fn epoch(&self) -> Option<u64> {
        self.inner.current().and_then(|session| session.epoch())
    }

    /// How the heartbeats stand, now and whenever it changes.
    pub fn heartbeat(&self) -> watch::Receiver<HeartbeatStatus> {
        self.heartbeat.clone()
    }

    /// Where the last handshake sent the heartbeats, `None` while not connected.
    pub fn route(&self) -> Option<Route> {
        self.inner.current().map(|session| session.route)
    }

    fn tenant(&self) -> String {
        self.inner.options.tenant_id.clone()
    }

    /// Whether the key can be read; a hit is granted a read lease.
    pub async fn exist_key(&self, key: &str) -> Result<bool, Error> {
        let request = v1::ExistKeyRequest { key: key.to_owned(), tenant_id: self.tenant() };
        let answer = rpc!(self, Read, exist_key, request).await?;
        check(answer.code).map(|()| answer.exists)
    }

    /// [`Client::exist_key`] of many.
    pub async fn batch_exist_key<S: AsRef<str>>(
        &self,
        keys: &[S],
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        let request = v1::BatchExistKeyRequest { keys: owned(keys), tenant_id: self.tenant() };
        let answer = rpc!(self, Read, batch_exist_key, request).await?;
        each(keys.len(), answer.results, |result| check(result.code).map(|()| result.exists))
    }

    /// Where the object lies; grants a read lease.
    pub async fn get_replica_list(&self, key: &str) -> Result<v1::ReplicaList, Error> {
        let request = v1::GetReplicaListRequest { key: key.to_owned(), tenant_id: self.tenant() };
        listed(rpc!(self, Read, get_replica_list, request).await?)
    }

    /// [`Client::get_replica_list`] of many.
    pub async fn batch_get_replica_list<S: AsRef<str>>(
        &self,
        keys: &[S],
    ) -> Result<Vec<Result<v1::ReplicaList, Error>>, Error> {
        let request = v1::BatchGetReplicaListRequest { keys: owned(keys), tenant_id: self.tenant() };
        let answer = rpc!(self, Read, batch_get_replica_list, request).await?;
        each(keys.len(), answer.results, listed)
    }

    /// The replicas of every key that the expression matches somewhere.
    pub async fn get_replica_list_by_regex(
        &self,
        regex: &str,
    ) -> Result<Vec<(String, Vec<v1::Replica>)>, Error> {
        let request = v1::GetReplicaListByRegexRequest { regex: regex.to_owned(), tenant_id: self.tenant() };
        let answer = rpc!(self, Read, get_replica_list_by_regex, request).await?;
        check(answer.code)?;
        Ok(answer.entries.into_iter().map(|entry| (entry.key, entry.replicas)).collect())
    }

    fn start(
        &self,
        key: &str,
        slice_length: u64,
        config: Option<v1::ReplicateConfig>,
    ) -> v1::PutStartRequest {
        v1::PutStartRequest {
            client_id: Some(self.id()),
            key: key.to_owned(),
            slice_length,
            config,
            tenant_id: self.tenant(),
        }
    }

    fn end(&self, key: &str, checksum: Option<u64>, kind: Option<v1::ReplicaType>) -> v1::PutEndRequest {
        v1::PutEndRequest {
            client_id: Some(self.id()),
            object_meta: Some(v1::ObjectMeta { key: key.to_owned(), object_checksum: checksum }),
            replica_type: kind.map(|kind| kind as i32),
            tenant_id: self.tenant(),
        }
    }

    fn revoke(&self, key: &str, kind: Option<v1::ReplicaType>) -> v1::PutRevokeRequest {
        v1::PutRevokeRequest {
            client_id: Some(self.id()),
            key: key.to_owned(),
            replica_type: kind.map(|kind| kind as i32),
            tenant_id: self.tenant(),
        }
    }

    /// Reserves memory for a new object of `slice_length` bytes (at least 1).
    pub async fn put_start(
        &self,
        key: &str,
        slice_length: u64,
        config: Option<v1::ReplicateConfig>,
    ) -> Result<Vec<v1::Replica>, Error> {
        started(rpc!(self, Mutation, put_start, self.start(key, slice_length, config)).await?)
    }

    /// Makes the object readable; by default all its replicas.
    pub async fn put_end(
        &self,
        key: &str,
        checksum: Option<u64>,
        kind: Option<v1::ReplicaType>,
    ) -> Result<(), Error> {
        check(rpc!(self, Mutation, put_end, self.end(key, checksum, kind)).await?.code)
    }

    /// Gives the reservation back.
    pub async fn put_revoke(&self, key: &str, kind: Option<v1::ReplicaType>) -> Result<(), Error> {
        check(rpc!(self, Mutation, put_revoke, self.revoke(key, kind)).await?.code)
    }

    /// Like [`Client::put_start`], of an object that may exist.
    pub async fn upsert_start(
        &self,
        key: &str,
        slice_length: u64,
        config: Option<v1::ReplicateConfig>,
    ) -> Result<Vec<v1::Replica>, Error> {
        started(rpc!(self, Mutation, upsert_start, self.start(key, slice_length, config)).await?)
    }

    /// Ends an upsert.
    pub async fn upsert_end(
        &self,
        key: &str,
        checksum: Option<u64>,
        kind: Option<v1::ReplicaType>,
    ) -> Result<(), Error> {
        check(rpc!(self, Mutation, upsert_end, self.end(key, checksum, kind)).await?.code)
    }

    /// Takes an upsert back.
    pub async fn upsert_revoke(&self, key: &str, kind: Option<v1::ReplicaType>) -> Result<(), Error> {
        check(rpc!(self, Mutation, upsert_revoke, self.revoke(key, kind)).await?.code)
    }

    fn batch_start<S: AsRef<str>>(
        &self,
        objects: &[(S, u64)],
        config: Option<v1::ReplicateConfig>,
    ) -> v1::BatchPutStartRequest {
        v1::BatchPutStartRequest {
            client_id: Some(self.id()),
            keys: objects.iter().map(|(key, _)| key.as_ref().to_owned()).collect(),
            slice_lengths: objects.iter().map(|(_, length)| *length).collect(),
            config,
            tenant_id: self.tenant(),
        }
    }

    fn batch_end<S: AsRef<str>>(
        &self,
        objects: &[(S, Option<u64>)],
        kind: Option<v1::ReplicaType>,
    ) -> v1::BatchPutEndRequest {
        let meta = |(key, checksum): &(S, Option<u64>)| v1::ObjectMeta {
            key: key.as_ref().to_owned(),
            object_checksum: *checksum,
        };
        v1::BatchPutEndRequest {
            client_id: Some(self.id()),
            object_metas: objects.iter().map(meta).collect(),
            replica_type: kind.map(|kind| kind as i32),
            tenant_id: self.tenant(),
        }
    }

    fn batch_revoke<S: AsRef<str>>(
        &self,
        keys: &[S],
        kind: Option<v1::ReplicaType>,
    ) -> v1::BatchPutRevokeRequest {
        v1::BatchPutRevokeRequest {
            client_id: Some(self.id()),
            keys: owned(keys),
            replica_type: kind.map(|kind| kind as i32),
            tenant_id: self.tenant(),
        }
    }

    /// [`Client::put_start`] of many: keys and bytes.
    pub async fn batch_put_start<S: AsRef<str>>(
        &self,
        objects: &[(S, u64)],
        config: Option<v1::ReplicateConfig>,
    ) -> Result<Vec<Result<Vec<v1::Replica>, Error>>, Error> {
        let answer = rpc!(self, Mutation, batch_put_start, self.batch_start(objects, config)).await?;
        each(objects.len(), answer.results, started)
    }

    /// [`Client::put_end`] of many: keys and checksums.
    pub async fn batch_put_end<S: AsRef<str>>(
        &self,
        objects: &[(S, Option<u64>)],
        kind: Option<v1::ReplicaType>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let answer = rpc!(self, Mutation, batch_put_end, self.batch_end(objects, kind)).await?;
        each(objects.len(), answer.results, |result| check(result.code))
    }

    /// [`Client::put_revoke`] of many.
    pub async fn batch_put_revoke<S: AsRef<str>>(
        &self,
        keys: &[S],
        kind: Option<v1::ReplicaType>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let answer = rpc!(self, Mutation, batch_put_revoke, self.batch_revoke(keys, kind)).await?;
        each(keys.len(), answer.results, |result| check(result.code))
    }

    /// [`Client::upsert_start`] of many.
    pub async fn batch_upsert_start<S: AsRef<str>>(
        &self,
        objects: &[(S, u64)],
        config: Option<v1::ReplicateConfig>,
    ) -> Result<Vec<Result<Vec<v1::Replica>, Error>>, Error> {
        let answer = rpc!(self, Mutation, batch_upsert_start, self.batch_start(objects, config)).await?;
        each(objects.len(), answer.results, started)
    }

    /// [`Client::upsert_end`] of many.
    pub async fn batch_upsert_end<S: AsRef<str>>(
        &self,
        objects: &[(S, Option<u64>)],
        kind: Option<v1::ReplicaType>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let answer = rpc!(self, Mutation, batch_upsert_end, self.batch_end(objects, kind)).await?;
        each(objects.len(), answer.results, |result| check(result.code))
    }

    /// [`Client::upsert_revoke`] of many.
    pub async fn batch_upsert_revoke<S: AsRef<str>>(
        &self,
        keys: &[S],
        kind: Option<v1::ReplicaType>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let answer = rpc!(self, Mutation, batch_upsert_revoke, self.batch_revoke(keys, kind)).await?;
        each(keys.len(), answer.results, |result| check(result.code))
    }

    /// Removes an object; `force` also one with a read lease.
    pub async fn remove(&self, key: &str, force: bool) -> Result<(), Error> {
        let request = v1::RemoveRequest { key: key.to_owned(), force, tenant_id: self.tenant() };
        check(rpc!(self, Mutation, remove, request).await?.code)
    }

    /// [`Client::remove`] of many.
    pub async fn batch_remove<S: AsRef<str>>(
        &self,
        keys: &[S],
        force: bool,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let request = v1::BatchRemoveRequest { keys: owned(keys), force, tenant_id: self.tenant() };
        let answer = rpc!(self, Mutation, batch_remove, request).await?;
        each(keys.len(), answer.results, |result| check(result.code))
    }

    /// Removes every object that the expression matches somewhere; how many.
    pub async fn remove_by_regex(&self, regex: &str, force: bool) -> Result<u64, Error> {
        let request = v1::RemoveByRegexRequest { regex: regex.to_owned(), force, tenant_id: self.tenant() };
        let answer = rpc!(self, Mutation, remove_by_regex, request).await?;
        check(answer.code)?;
        counted(answer.removed)
    }

    /// Removes every object; how many.
    pub async fn remove_all(&self, force: bool) -> Result<u64, Error> {
        let request = v1::RemoveAllRequest { force, tenant_id: self.tenant() };
        counted(rpc!(self, Mutation, remove_all, request).await?.removed)
    }

    /// Offers memory to the pool, and keeps it there: it is mounted again when a master asks for that.
    pub async fn mount_segment(&self, segment: v1::Segment) -> Result<(), Error> {
        let request = v1::MountSegmentRequest { segment: Some(segment.clone()), client_id: Some(self.id()) };
        check(rpc!(self, Repeatable, mount_segment, request).await?.code)?;
        let mut segments = self.inner.segments.lock();
        segments.retain(|other| other.id != segment.id);
        segments.push(segment);
        Ok(())
    }

    /// Mounts these segments, and no others, again. The heartbeat loop does it by itself.
    pub async fn remount_segments(&self, segments: Vec<v1::Segment>) -> Result<(), Error> {
        let request = v1::ReMountSegmentRequest { segments: segments.clone(), client_id: Some(self.id()) };
        check(rpc!(self, Repeatable, re_mount_segment, request).await?.code)?;
        *self.inner.segments.lock() = segments;
        Ok(())
    }

    /// Takes memory out of the pool; from here on it is not mounted again, whatever the answer.
    pub async fn unmount_segment(&self, segment: v1::Uuid) -> Result<(), Error> {
        self.inner.segments.lock().retain(|other| other.id != Some(segment));
        let request = v1::UnmountSegmentRequest { segment_id: Some(segment), client_id: Some(self.id()) };
        check(rpc!(self, Mutation, unmount_segment, request).await?.code)
    }

    /// A single Ping on the main port; the heartbeat loop makes its own. The client's status and the view version.
    pub async fn ping(&self) -> Result<(v1::ClientStatus, i64), Error> {
        let answer = rpc!(self, Read, ping, v1::PingRequest { client_id: Some(self.id()) }).await?;
        check(answer.code)?;
        let status = v1::ClientStatus::try_from(answer.client_status)
            .map_err(|_| Error::Answer(format!("client_status: {}", answer.client_status)))?;
        Ok((status, answer.view_version_id))
    }

    /// Where the master wants objects on disk.
    pub async fn get_storage_config(&self) -> Result<v1::GetStorageConfigResponse, Error> {
        rpc!(self, Read, get_storage_config, v1::GetStorageConfigRequest {}).await
    }

    /// The store's version.
    pub async fn service_ready(&self) -> Result<String, Error> {
        Ok(rpc!(self, Read, service_ready, v1::ServiceReadyRequest {}).await?.version)
    }

    /// Whether the store can be read right now (A1).
    pub async fn health_check(&self) -> Result<v1::HealthCheckResponse, Error> {
        rpc!(self, Read, health_check, v1::HealthCheckRequest {}).await
    }

    /// The master's heartbeat port, `None` when it has none.
    pub async fn get_heartbeat_rpc_port(&self) -> Result<Option<u16>, Error> {
        let answer = rpc!(self, Read, get_heartbeat_rpc_port, v1::GetHeartbeatRpcPortRequest {}).await?;
        heartbeat_port(answer.heartbeat_rpc_port)
    }

    /// The same, as the handshake asks for it.
    pub async fn heartbeat_service_ready(&self) -> Result<Option<u16>, Error> {
        let answer = rpc!(self, Read, heartbeat_service_ready, v1::HeartbeatServiceReadyRequest {}).await?;
        heartbeat_port(answer.heartbeat_rpc_port)
    }
}

fn counted(removed: i64) -> Result<u64, Error> {
    u64::try_from(removed).map_err(|_| Error::Answer(format!("removed: {removed}")))
}

fn heartbeat_port(port: u32) -> Result<Option<u16>, Error> {
    let port = u16::try_from(port).map_err(|_| Error::Answer(format!("heartbeat_rpc_port: {port}")))?;
    Ok(Some(port).filter(|port| *port != 0))
}
