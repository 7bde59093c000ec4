//! What the operator reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator last saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MooncakeMasterStatus {
    /// The generation of the spec that this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The holder of the Lease; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<ActiveStatus>,
    /// Highest epoch seen: it grows by one each time the active role is claimed, and never falls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Duration last seen in the Lease, seconds. Masters wait at least this long when the Lease is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// Pods that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are Ready. Standbys are not Ready by design, so this is 1 when all is well.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods that say themselves that they stand by.
    #[serde(default)]
    pub standby_replicas: i32,
    /// Pods made from the present template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Selects the pods; for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Hash of the present pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_hash: Option<String>,
    /// Each pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// Available, Progressing and Degraded; the reasons are in docs/conditions.md.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The holder of the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveStatus {
    /// Name of its pod.
    pub pod: String,
    /// `host:port` at which it serves clients.
    pub address: String,
    /// Id of its process, new with each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the pod.
    pub name: String,
    /// `Active`, `Standby`, or `Unknown` if it does not say.
    pub role: String,
    /// Id of its process; known for the active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Whether its pod is Ready.
    #[serde(default)]
    pub ready: bool,
    /// Hash of the template that the pod was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_hash: Option<String>,
    /// Why it neither serves nor stands by, for example `ImagePullBackOff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
