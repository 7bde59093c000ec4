//! What a user asks for. The doc comments are what `kubectl explain` shows.

use crate::{GoDuration, MooncakeMasterStatus};
use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, ResourceRequirements, Toleration};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The wanted state of one highly available Mooncake Store master: one active that serves, and standbys.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "store.mooncake.io",
    version = "v1alpha1",
    kind = "MooncakeMaster",
    namespaced,
    shortname = "mcm",
    category = "mooncake",
    derive = "PartialEq",
    status = "MooncakeMasterStatus",
    doc = "A highly available master of a Mooncake Store: one active that serves, and standbys that take over. \
           Clients reach it through the Service of the same name.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Active",
        type_ = "string",
        json_path = ".status.active.pod",
        description = "The pod that holds the Lease"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status",
        description = "Whether the active serves (condition Available)"
    ),
    printcolumn(
        name = "Standbys",
        type_ = "integer",
        json_path = ".status.standbyReplicas",
        description = "Masters that stand by and would take over"
    ),
    printcolumn(
        name = "Epoch",
        type_ = "integer",
        json_path = ".status.epoch",
        description = "How often the active role has changed hands"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Progressing\")].reason",
        description = "Reason of the condition Progressing",
        priority = "1"
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].reason",
        description = "Reason of the condition Degraded",
        priority = "1"
    ),
    printcolumn(
        name = "Suspected",
        type_ = "integer",
        json_path = ".status.clients.suspected",
        description = "Clients that are silent and not yet given up",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MooncakeMasterSpec {
    /// Container image of the master, for example `registry.example.com/mooncake-master:1.0`.
    #[schemars(length(max = 1024))]
    pub image: String,
    /// When the kubelet pulls the image.
    #[serde(default = "default_pull_policy")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: String,
    /// Secrets in the same namespace with credentials for the image's registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// How many masters run: one is active, the others stand by. 1 means that nothing takes over while the one
    /// restarts.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: i32,
    /// Ports. They cannot be changed: clients have them in their configuration.
    #[serde(default)]
    pub ports: Ports,
    /// Compute resources of each master. Unset: requests of 250m CPU and 256Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a node must have to run a master.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the masters tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 64))]
    pub tolerations: Vec<Toleration>,
    /// Scheduling constraints. Unset: the masters prefer different hosts and different zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// When the active role changes hands.
    #[serde(default)]
    pub failover: Failover,
    /// How long a silent client keeps its memory in the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientLiveness>,
    /// Times of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// The master's probe of its own RPC port, which decides on its readiness.
    #[serde(default)]
    pub rpc_health_probe: RpcHealthProbe,
    /// A port on which only heartbeats are served, so that they never wait behind data.
    #[serde(default)]
    pub heartbeat: Heartbeat,
    /// Timing of the kubelet's probes.
    #[serde(default)]
    pub probes: Probes,
    /// Further flags of the master, name (with underscores, without dashes) to value, for example
    /// `eviction_high_watermark_ratio: "0.9"`. Flags with a field of their own here are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub config: BTreeMap<String, String>,
    /// Labels added to the pods. Those of the operator are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations added to the pods. Those of the operator are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub pod_annotations: BTreeMap<String, String>,
    /// The operator changes nothing and only reports. The masters still take over from each other.
    #[serde(default)]
    pub paused: bool,
}

/// Ports of the master and of its Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    /// Port for clients: gRPC and Mooncake's native protocol side by side.
    #[serde(default = "default_rpc_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub rpc: i32,
    /// Port for `/metrics`, `/readyz`, `/health` and the other admin pages.
    #[serde(default = "default_metrics_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub metrics: i32,
}

/// When the active role changes hands: the times of the Lease through which the masters elect the active, and what
/// makes the operator move the role. leaseDuration - 500ms >= renewDeadline >= 2 x retryPeriod, all three in whole
/// milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// How long a standby waits after the active's last renewal before it takes over. 1s to 10m.
    #[serde(default = "default_lease_duration")]
    pub lease_duration: GoDuration,
    /// How long the active serves after its last successful renewal. What is left until leaseDuration is the margin
    /// for a paused process.
    #[serde(default = "default_renew_deadline")]
    pub renew_deadline: GoDuration,
    /// How often the active renews, and the deadline of each request to the API server. 100ms to 60s.
    #[serde(default = "default_retry_period")]
    pub retry_period: GoDuration,
    /// How long the active must be blocked, by the kubelet's readiness and by the operator's own healthCheck alike,
    /// before it is fenced and a standby takes over. 2s to 1h.
    #[serde(default = "default_blocked_after")]
    pub blocked_after: GoDuration,
    /// Least time between two failovers of an active that is blocked or not Ready. It doubles with each one after
    /// which the new active is not Ready either. Drains and rolls do not wait for it. 10s to 24h.
    #[serde(default = "default_cooldown")]
    pub cooldown: GoDuration,
    /// How long the active's pod must be not Ready, while the active answers the operator, before it hands the role
    /// over to a healthy standby. 5s to 1h.
    #[serde(default = "default_not_ready_after")]
    pub not_ready_after: GoDuration,
    /// The operator's own calls of the active.
    #[serde(default)]
    pub health_check: HealthCheck,
}

/// The operator's own calls of the active's HealthCheck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Pause between two calls. 500ms to 1m.
    #[serde(default = "default_health_check_period")]
    pub period: GoDuration,
    /// Time after which a call has failed. 500ms to 1m.
    #[serde(default = "default_health_check_timeout")]
    pub timeout: GoDuration,
    /// Failed calls in a row after which the active counts as failed for the operator.
    #[serde(default = "default_health_check_threshold")]
    #[schemars(range(min = 2, max = 100))]
    pub failure_threshold: i32,
}

/// How long a silent client keeps its memory in the pool. Whole seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientLiveness {
    /// Silence after which a client is suspected: nothing new is placed on it and its objects are not served.
    /// Unset: the master's default of 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_ttl: Option<GoDuration>,
    /// Time in which a suspected client may come back with everything it holds; after it the client is gone.
    /// Unset: activeTtl if that is set, else the master's default of 20s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicion_ttl: Option<GoDuration>,
    /// When at least this percentage of the active clients falls silent within one activeTtl, they are held back from
    /// being dropped for one more suspicionTtl: the network or the master itself is the likely cause. 0: never.
    /// Unset: the master's default of 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub mass_silence_percent: Option<i32>,
}

/// Times of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// How long a read protects its object from removal. Unset: the master's default of 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_kv_lease_ttl: Option<GoDuration>,
    /// Age at which an unfinished put may be replaced by another. Whole seconds. Unset: the master's default of 30s.
    /// After a takeover memory that was mounted before takes no new objects for this time, or for
    /// defaultKvLeaseTtl if that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_start_discard_timeout: Option<GoDuration>,
    /// Age at which the memory of an unfinished put is reused; above putStartDiscardTimeout. Whole seconds.
    /// Unset: the master's default of 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_start_release_timeout: Option<GoDuration>,
}

/// The master's probe of its own RPC port: it calls HealthCheck over TCP, which looks at every shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RpcHealthProbe {
    /// Off: readiness follows the role alone.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Seconds between two probes.
    #[serde(default = "default_probe_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: i32,
    /// Seconds after which a probe counts as failed.
    #[serde(default = "default_probe_timeout")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
}

/// A second server of the master, on threads of its own, that serves only heartbeats. Each change replaces the pods, the
/// active last. docs/heartbeat.md has the order in which a running pool is moved to it and back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// Its port, different from every other port of the master; 0: off. Both Services carry it as `heartbeat`, with the
    /// same number as the master: that is the one which clients are told. It can be changed only while keepOnMain is
    /// true: the Service changes before the active does.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65535))]
    pub port: i32,
    /// Its threads.
    #[serde(default = "default_1")]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: i32,
    /// The rpc port serves heartbeats too. false: it refuses them with HEARTBEAT_ROUTING_MISMATCH, so that clients which
    /// do not know the heartbeat port (released native ones) expire. Has no effect while port is 0.
    #[serde(default = "default_true")]
    pub keep_on_main: bool,
}

/// Timing of the kubelet's probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// `/readyz`: a failure takes the pod out of the Service, nothing else.
    #[serde(default)]
    pub readiness: ReadinessTiming,
    /// `/health`: a failure restarts the container.
    #[serde(default)]
    pub liveness: LivenessTiming,
}

/// Timing of the readiness probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadinessTiming {
    /// Seconds between two probes.
    #[serde(default = "default_1")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: i32,
    /// Seconds after which a probe counts as failed.
    #[serde(default = "default_1")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
    /// Failures in a row before the kubelet acts.
    #[serde(default = "default_2")]
    #[schemars(range(min = 1, max = 3600))]
    pub failure_threshold: i32,
}

/// Timing of the liveness probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LivenessTiming {
    /// Seconds between two probes.
    #[serde(default = "default_10")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: i32,
    /// Seconds after which a probe counts as failed.
    #[serde(default = "default_5")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
    /// Failures in a row before the kubelet acts.
    #[serde(default = "default_6")]
    #[schemars(range(min = 1, max = 3600))]
    pub failure_threshold: i32,
}

impl Default for Ports {
    fn default() -> Self {
        Ports { rpc: default_rpc_port(), metrics: default_metrics_port() }
    }
}

impl Default for Failover {
    fn default() -> Self {
        Failover {
            lease_duration: default_lease_duration(),
            renew_deadline: default_renew_deadline(),
            retry_period: default_retry_period(),
            blocked_after: default_blocked_after(),
            cooldown: default_cooldown(),
            not_ready_after: default_not_ready_after(),
            health_check: HealthCheck::default(),
        }
    }
}

impl Default for HealthCheck {
    fn default() -> Self {
        HealthCheck {
            period: default_health_check_period(),
            timeout: default_health_check_timeout(),
            failure_threshold: default_health_check_threshold(),
        }
    }
}

impl Default for RpcHealthProbe {
    fn default() -> Self {
        RpcHealthProbe {
            enabled: true,
            interval_seconds: default_probe_interval(),
            timeout_seconds: default_probe_timeout(),
        }
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Heartbeat { port: 0, threads: 1, keep_on_main: true }
    }
}

impl Default for ReadinessTiming {
    fn default() -> Self {
        ReadinessTiming { period_seconds: 1, timeout_seconds: 1, failure_threshold: 2 }
    }
}

impl Default for LivenessTiming {
    fn default() -> Self {
        LivenessTiming { period_seconds: 10, timeout_seconds: 5, failure_threshold: 6 }
    }
}

fn default_pull_policy() -> String {
    "IfNotPresent".to_owned()
}

fn default_lease_duration() -> GoDuration {
    "5s".into()
}

fn default_renew_deadline() -> GoDuration {
    "3s".into()
}

fn default_retry_period() -> GoDuration {
    "1s".into()
}

fn default_blocked_after() -> GoDuration {
    "30s".into()
}

fn default_cooldown() -> GoDuration {
    "60s".into()
}

fn default_not_ready_after() -> GoDuration {
    "30s".into()
}

fn default_health_check_period() -> GoDuration {
    "2s".into()
}

fn default_health_check_timeout() -> GoDuration {
    "3s".into()
}

const fn default_health_check_threshold() -> i32 {
    3
}

const fn default_replicas() -> i32 {
    2
}

const fn default_rpc_port() -> i32 {
    50051
}

const fn default_metrics_port() -> i32 {
    9003
}

const fn default_true() -> bool {
    true
}

const fn default_probe_interval() -> i32 {
    5
}

const fn default_probe_timeout() -> i32 {
    3
}

const fn default_1() -> i32 {
    1
}

const fn default_2() -> i32 {
    2
}

const fn default_5() -> i32 {
    5
}

const fn default_6() -> i32 {
    6
}

const fn default_10() -> i32 {
    10
}
