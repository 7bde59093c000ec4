//! The leader label on pods, and its one writer, the lease holder (design §6.9).

use super::handover::Successor;
use kube::{
    Client,
    api::{GetParams, Patch, PatchParams},
    core::Request as Builder,
};
use mooncake_lease::{HIGHEST_EPOCH, record::LeaseObject};
use serde_json::{Value, json};
use std::time::Duration;

/// The label that the Service selects.
pub const ROLE_LABEL: &str = "mooncake.io/store-role";
/// Its value on the leader's pod.
pub const ROLE_LEADER: &str = "leader";
/// Annotation: the epoch of the holder that wrote to the pod last.
pub const EPOCH_ANNOTATION: &str = "mooncake.io/epoch";

/// Deadline of each request.
const DEADLINE: Duration = Duration::from_secs(1);
/// Conflicts in a row after which a write gives up and is tried again later.
const CONFLICTS: usize = 5;

/// Why a label could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum LabelError {
    #[error("pod {pod}: {error}")]
    Api { pod: String, error: Box<kube::Error> },
    #[error("pod {pod}: no answer from the API server in {DEADLINE:?}")]
    TimedOut { pod: String },
    #[error("pod {pod}: {CONFLICTS} conflicts in a row")]
    Conflicts { pod: String },
    #[error("pod {pod} has uid {found}, but this process runs in {expected}")]
    NotThisPod { pod: String, found: String, expected: String },
    #[error("pod {pod} was written in epoch {epoch}, which is later than this process's")]
    LaterEpoch { pod: String, epoch: u64 },
    #[error("pod {pod}: the permit has ended")]
    NoPermit { pod: String },
}

impl LabelError {
    /// Whether the connection itself may be what fails: nothing came back on it, or nothing that is HTTP.
    pub(super) fn doubts_connection(&self) -> bool {
        match self {
            LabelError::TimedOut { .. } => true,
            LabelError::Api { error, .. } => !matches!(&**error, kube::Error::Api(_)),
            _ => false,
        }
    }
}

/// The pause before a write that failed is tried again: longer with each failure, so that one that no retry can repair
/// (a missing permission) does not keep the API server busy.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(5);

    pub(super) fn new() -> Backoff {
        Backoff(Backoff::FIRST)
    }

    /// The pause now; the next one is twice as long.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(Backoff::LONGEST);
        pause
    }
}

/// What a pod is to look like.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    leader: bool,
    /// Written always, so that every earlier write that is still under way fails; `None`: only if the label is wrong.
    epoch: Option<u64>,
}

/// Writes the label. Each write carries uid and resourceVersion of the pod as it was read.
pub(super) struct LabelWriter {
    config: kube::Config,
    client: Client,
    path: String,
    own: String,
    own_uid: String,
    others: Vec<String>,
}

impl LabelWriter {
    pub(super) fn new(config: kube::Config, pod: &super::PodIdentity) -> Result<LabelWriter, kube::Error> {
        let others = (0..=pod.max_ordinal)
            .map(|ordinal| format!("{}-{ordinal}", pod.statefulset))
            .filter(|name| *name != pod.name)
            .collect();
        Ok(LabelWriter {
            client: Client::try_from(config.clone())?,
            config,
            path: format!("/api/v1/namespaces/{}/pods", pod.namespace),
            own: pod.name.clone(),
            own_uid: pod.uid.clone(),
            others,
        })
    }

    /// Connections on which nothing came back are not used again.
    pub(super) fn reconnect(&mut self) {
        if let Ok(client) = Client::try_from(self.config.clone()) {
            self.client = client;
        }
    }

    /// Removes the own label, left from a tenure of an earlier process. Before the first claim.
    pub(super) async fn clear_own(&self) -> Result<(), LabelError> {
        self.write(&self.own, Wanted { leader: false, epoch: None }, &|| true).await
    }

    /// The highest epoch in which any pod of the instance was written. It survives a Lease that was deleted.
    pub(super) async fn highest_epoch(&self) -> Result<u64, LabelError> {
        let names = self.others.iter().chain([&self.own]);
        let pods = futures::future::try_join_all(names.map(|pod| self.get(pod))).await?;
        Ok(pods.iter().flatten().filter_map(|pod| epoch_of(&pod["metadata"])).max().unwrap_or_default())
    }

    /// Removes the label from every other pod and marks it with the epoch.
    pub(super) async fn clear_others(
        &self,
        epoch: u64,
        permit: &impl Fn() -> bool,
    ) -> Result<(), LabelError> {
        let wanted = Wanted { leader: false, epoch: Some(epoch) };
        let writes = self.others.iter().map(|pod| self.write(pod, wanted, permit));
        futures::future::try_join_all(writes).await.map(drop)
    }

    /// Labels the own pod. Only after [`LabelWriter::clear_others`] of the same epoch.
    pub(super) async fn label_own(&self, epoch: u64, permit: &impl Fn() -> bool) -> Result<(), LabelError> {
        self.write(&self.own, Wanted { leader: true, epoch: Some(epoch) }, permit).await
    }

    /// Puts the own label back if somebody removed it.
    pub(super) async fn keep_own(&self, permit: &impl Fn() -> bool) -> Result<(), LabelError> {
        self.write(&self.own, Wanted { leader: true, epoch: None }, permit).await
    }

    /// Whether another pod of the instance runs, which could claim.
    pub(super) async fn others_run(&self) -> Result<bool, LabelError> {
        let pods = futures::future::try_join_all(self.others.iter().map(|pod| self.get(pod))).await?;
        Ok(pods
            .iter()
            .flatten()
            .any(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()))
    }

    /// What has become of a process in the pod of that name that claimed the Lease with this namespace and name. A pod
    /// outside of the instance, which may not be read, is not ready.
    pub(super) async fn successor(
        &self,
        name: &str,
        lease: &(String, String),
    ) -> Result<Successor, LabelError> {
        let (namespace, lease) = lease;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let found = self.send(lease, Builder::new(&path).get(lease, &GetParams::default())).await?;
        // One that is gone is created again by its holder.
        let record = found.and_then(|raw| LeaseObject::parse(raw).ok()).map(|object| object.record);
        if record.as_ref().is_some_and(|record| record.release.is_some() || record.pod_name != name) {
            return Ok(Successor::Gone);
        }
        if !self.others.iter().any(|other| other == name) {
            return Ok(Successor::NotReady);
        }
        let Some(pod) = self.get(name).await? else { return Ok(Successor::Gone) };
        if record.is_some_and(|record| pod["metadata"]["uid"] != record.pod_uid.as_str()) {
            return Ok(Successor::Gone);
        }
        let conditions = pod["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
        Ok(if ready { Successor::Ready } else { Successor::NotReady })
    }

    async fn write(
        &self,
        name: &str,
        wanted: Wanted,
        permit: &(impl Fn() -> bool + ?Sized),
    ) -> Result<(), LabelError> {
        let pod = || name.to_owned();
        for _ in 0..CONFLICTS {
            let Some(object) = self.get(name).await? else {
                return Ok(());
            };
            let metadata = &object["metadata"];
            if name == self.own && metadata["uid"] != self.own_uid.as_str() {
                let found = metadata["uid"].as_str().unwrap_or_default().to_owned();
                return Err(LabelError::NotThisPod { pod: pod(), found, expected: self.own_uid.clone() });
            }
            let labelled = metadata["labels"][ROLE_LABEL] == ROLE_LEADER;
            let epoch = epoch_of(metadata);
            if let (Some(own), Some(found)) = (wanted.epoch, epoch)
                && found > own
            {
                return Err(LabelError::LaterEpoch { pod: pod(), epoch: found });
            }
            let marked = wanted.epoch.is_none() || wanted.epoch == epoch;
            let removed = wanted.leader || metadata["labels"][ROLE_LABEL].is_null();
            if marked && removed && labelled == wanted.leader {
                return Ok(());
            }
            if !permit() {
                return Err(LabelError::NoPermit { pod: pod() });
            }
            let label = if wanted.leader { Value::from(ROLE_LEADER) } else { Value::Null };
            let mut patch = json!({ "metadata": {
                "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
                "labels": { ROLE_LABEL: label },
            } });
            if let Some(epoch) = wanted.epoch {
                patch["metadata"]["annotations"] = json!({ EPOCH_ANNOTATION: epoch.to_string() });
            }
            let request = Builder::new(&self.path).patch(
                name,
                &PatchParams { field_manager: Some("mooncake-master".into()), ..PatchParams::default() },
                &Patch::Merge(&patch),
            );
            match self.send(name, request).await {
                // Gone is as good as done.
                Ok(_) => return Ok(()),
                Err(LabelError::Api { error, .. }) if matches!(&*error, kube::Error::Api(s) if s.code == 409) =>
                    {}
                Err(error) => return Err(error),
            }
        }
        Err(LabelError::Conflicts { pod: pod() })
    }

    async fn get(&self, name: &str) -> Result<Option<Value>, LabelError> {
        self.send(name, Builder::new(&self.path).get(name, &GetParams::default())).await
    }

    /// `None`: there is no such pod.
    async fn send<B>(
        &self,
        name: &str,
        request: Result<http::Request<B>, kube::core::request::Error>,
    ) -> Result<Option<Value>, LabelError>
    where
        B: Into<Vec<u8>>,
    {
        let api = |error: kube::Error| LabelError::Api { pod: name.to_owned(), error: Box::new(error) };
        let request = request.map_err(|error| api(kube::Error::BuildRequest(error)))?.map(Into::into);
        match tokio::time::timeout(DEADLINE, self.client.request::<Value>(request)).await {
            Err(_) => Err(LabelError::TimedOut { pod: name.to_owned() }),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(api(error)),
            Ok(Ok(pod)) => Ok(Some(pod)),
        }
    }
}

/// The epoch in a pod's annotation. One that no Lease can hold was not written by a holder.
fn epoch_of(metadata: &Value) -> Option<u64> {
    let epoch = metadata["annotations"][EPOCH_ANNOTATION].as_str()?.parse().ok()?;
    (epoch <= HIGHEST_EPOCH).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 5000, 5000]);
    }

    #[test]
    fn an_answer_from_the_api_server_does_not_cost_the_connection() {
        let pod = || "m-0".to_owned();
        let api = |error| LabelError::Api { pod: pod(), error: Box::new(error) };
        assert!(!api(kube::Error::Api(Box::default())).doubts_connection());
        assert!(api(kube::Error::LinesCodecMaxLineLengthExceeded).doubts_connection());
        assert!(LabelError::TimedOut { pod: pod() }.doubts_connection());
        assert!(!LabelError::NoPermit { pod: pod() }.doubts_connection());
    }

    #[test]
    fn an_epoch_beyond_what_a_lease_holds_is_nobodys() {
        let marked = |epoch: &str| json!({ "annotations": { EPOCH_ANNOTATION: epoch } });
        assert_eq!(epoch_of(&marked("7")), Some(7));
        assert_eq!(epoch_of(&marked("2147483647")), Some(HIGHEST_EPOCH));
        for text in ["2147483648", "-1", "", "seven"] {
            assert_eq!(epoch_of(&marked(text)), None, "{text:?}");
        }
        assert_eq!(epoch_of(&json!({})), None);
    }
}
