//! Reads of keys, several at once.

use super::{
    convert::{code, replicas_ref},
    steps::{Calls, no_permit},
};
use crate::{
    core::TOGETHER,
    error::ErrorCode,
    rpc::{
        native::generation::Method,
        service::{KEYS_PER_TURN, Step},
        telemetry::Tally,
    },
    types::ReplicaListRef,
};
use mooncake_proto::v1;
use smallvec::SmallVec;
use tonic::Status;

impl Calls {
    /// `ExistKey` and its batch.
    pub(super) async fn exist(
        &self,
        method: Method,
        keys: &[String],
    ) -> Result<Vec<v1::ExistKeyResponse>, Status> {
        let core = self.service.core();
        self.read(method, keys, |keys, results, _| {
            core.exist_keys(keys, |exists| results.push(v1::ExistKeyResponse { code: 0, exists }))
        })
        .await
    }

    /// `GetReplicaList` and its batch.
    pub(super) async fn lists(
        &self,
        method: Method,
        keys: &[String],
    ) -> Result<Vec<v1::GetReplicaListResponse>, Status> {
        let core = self.service.core();
        self.read(method, keys, |keys, results, tally| {
            core.get_replica_lists(keys, |list| {
                tally.get(&list);
                results.push(replica_list(&list));
            })
        })
        .await
    }

    /// `some` looks at the first of the keys that it is given, adds what they amount to, and returns how many these were:
    /// none if it has to wait.
    async fn read<T>(
        &self,
        method: Method,
        keys: &[String],
        mut some: impl FnMut(&[&[u8]], &mut Vec<T>, &mut Tally) -> usize,
    ) -> Result<Vec<T>, Status> {
        self.main_only(method)?;
        let started = self.service.clock().now();
        let is_batch = matches!(method, Method::BatchExistKey | Method::BatchGetReplicaList);
        let mut tally = Tally { items: is_batch.then_some((keys.len() as u64, 0)), ..Tally::default() };
        let mut results = Vec::with_capacity(keys.len());
        let read = self.service.drive(|| {
            let before = results.len();
            while results.len() < before + KEYS_PER_TURN {
                let next: SmallVec<[&[u8]; TOGETHER]> =
                    keys[results.len()..].iter().take(TOGETHER).map(String::as_bytes).collect();
                if next.is_empty() {
                    return Step::Done;
                }
                if some(&next, &mut results, &mut tally) == 0 {
                    return if results.len() > before { Step::Yield } else { Step::Parked };
                }
            }
            if results.len() == keys.len() { Step::Done } else { Step::Yield }
        });
        read.await.map_err(|_| no_permit())?;
        self.count(method, &tally, started);
        Ok(results)
    }
}

fn replica_list(result: &Result<ReplicaListRef<'_>, ErrorCode>) -> v1::GetReplicaListResponse {
    let value = result.as_ref().ok().map(|list| v1::ReplicaList {
        replicas: replicas_ref(&list.replicas),
        lease_ttl_ms: list.lease_ttl_ms,
        object_checksum: list.object_checksum,
    });
    v1::GetReplicaListResponse { code: code(result), value }
}
