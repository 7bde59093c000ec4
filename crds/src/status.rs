//! What the operator reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
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
    /// The move of the active role that is under way. It is written before the operator acts, so that whoever comes
    /// after an operator that died goes on from here.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub move_: Option<MoveStatus>,
    /// The last move that came to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_move: Option<LastMove>,
    /// The last failover of an active that was blocked or not Ready; the cool-down counts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<LastFailover>,
    /// Hash of the template with which a master got the role in a roll and did not serve: the active is not replaced for
    /// that template. Gone when the template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_template_hash: Option<String>,
    /// Clients of the active, by state; absent while it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientCounts>,
    /// Available, Progressing, Degraded, FailoverBlocked and others; types and reasons are in docs/conditions.md.
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

/// Clients that have memory in the pool, by state. Renewed at most every 10 s, if nothing else changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientCounts {
    /// Heard within the active time.
    #[serde(default)]
    pub active: i64,
    /// Silent for longer; what they hold is kept and not served.
    #[serde(default)]
    pub suspected: i64,
    /// Silent for too long; what they held is being dropped.
    #[serde(default)]
    pub offline: i64,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the pod.
    pub name: String,
    /// `Active`, `Standby`, or `Unknown` if it does not say.
    pub role: String,
    /// Id of its process; absent if it has not said it.
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

/// A move of the active role that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveStatus {
    /// `Fencing`: the pod of the old active is deleted, which makes it release the Lease. `HandingOver`: the old active
    /// is about to be asked to release the Lease for the successor. `Releasing`: it was asked. `Verifying`: another
    /// master holds the Lease; it is to become Ready and be reached through the Service.
    pub phase: String,
    /// Why the role moves. `Blocked`: the active is alive and serves nothing. `NotReady`: the active answers, but its
    /// pod is not Ready. `NodeDrain`: the active's node is cordoned or about to go. `Roll`: the active is the last pod
    /// of an older template.
    pub kind: String,
    /// Who loses the role.
    pub from: MoveParty,
    /// Who is to get it.
    pub to: MoveParty,
    /// What was seen.
    pub reason: String,
    /// Epoch of the old active: the role has moved once there is a higher one.
    pub epoch: i64,
    /// Which try of this kind it is, from 1: a new active that does not become Ready gives the role on once.
    pub attempt: i32,
    /// When the operator decided it.
    pub started_at: Time,
}

/// One side of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveParty {
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// Id of the process; absent if it has not said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

/// A move that came to an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastMove {
    /// As in `status.move`.
    pub kind: String,
    /// `Moved`: the successor is Ready. `NotServing`: the old active lost the Lease, and the first that claimed it did not
    /// become Ready in time; whoever serves now is in the message. `NotReleased`: the old active did not hand the role
    /// over. `Abandoned`: the reason was gone before anything was done.
    pub outcome: String,
    /// Pod that lost the role.
    pub from: String,
    /// Pod that got it, or was to get it.
    pub to: String,
    /// What came of it, in words.
    pub message: String,
    /// How many moves in a row have come to `NotServing` or `NotReleased`.
    pub failures: i32,
    /// When the operator decided it.
    pub started_at: Time,
    /// When it came to its end.
    pub finished_at: Time,
}

/// A failover of an active that was blocked or not Ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastFailover {
    /// When it came to its end.
    pub at: Time,
    /// How many in a row after which the new active did not become Ready either; each doubles the cool-down.
    pub failures: i32,
}
