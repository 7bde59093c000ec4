//! The command line of a master.

use kube::ResourceExt;
use mooncake_crds::{GoDuration, MooncakeMaster, names};
use std::time::Duration;

/// Flags of the master's container. `$(POD_IP)` is replaced by the kubelet.
///
/// A duration that cannot be parsed passes no flag: such a spec is refused before anything is built from it.
pub fn flags(master: &MooncakeMaster) -> Vec<String> {
    let spec = &master.spec;
    let mut flags = Flags(Vec::new());
    flags.set("rpc_address", "$(POD_IP)");
    flags.set("rpc_port", spec.ports.rpc);
    flags.set("metrics_port", spec.ports.metrics);
    flags.set("enable_ha", true);
    flags.set("ha_backend_type", "k8s");
    flags.set(
        "ha_backend_connstring",
        format!("{}/{}", master.namespace().unwrap_or_default(), master.name_any()),
    );
    flags.set("ha_statefulset", master.name_any());
    flags.set("ha_max_ordinal", names::MAX_REPLICAS - 1);
    flags.millis("lease_duration_ms", Some(&spec.failover.lease_duration));
    flags.millis("lease_renew_deadline_ms", Some(&spec.failover.renew_deadline));
    flags.millis("lease_retry_period_ms", Some(&spec.failover.retry_period));
    flags.set("enable_rpc_health_probe", spec.rpc_health_probe.enabled);
    flags.set("rpc_probe_interval_seconds", spec.rpc_health_probe.interval_seconds);
    flags.set("rpc_probe_timeout_seconds", spec.rpc_health_probe.timeout_seconds);
    let heartbeat = &spec.heartbeat;
    // Without a port the others change nothing, and a pod is not replaced for them.
    if heartbeat.port != 0 {
        flags.set("heartbeat_rpc_port", heartbeat.port);
        flags.set("heartbeat_rpc_thread_num", heartbeat.threads);
        flags.set("heartbeat_keep_on_main", heartbeat.keep_on_main);
    }
    if let Some(client) = &spec.client {
        flags.seconds("client_active_ttl_sec", client.active_ttl.as_ref());
        flags.seconds("client_suspicion_ttl_sec", client.suspicion_ttl.as_ref());
        if let Some(percent) = client.mass_silence_percent {
            flags.set("client_mass_silence_ratio", f64::from(percent) / 100.0);
        }
    }
    if let Some(store) = &spec.store {
        flags.millis("default_kv_lease_ttl", store.default_kv_lease_ttl.as_ref());
        flags.seconds("put_start_discard_timeout_sec", store.put_start_discard_timeout.as_ref());
        flags.seconds("put_start_release_timeout_sec", store.put_start_release_timeout.as_ref());
    }
    for (flag, value) in &spec.config {
        flags.set(flag, escape(value));
    }
    flags.0
}

/// In a container's arguments `$(X)` is a reference, and `$$` stands for a dollar sign.
fn escape(value: &str) -> String {
    value.replace('$', "$$")
}

struct Flags(Vec<String>);

impl Flags {
    fn set(&mut self, flag: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{flag}={value}"));
    }

    fn millis(&mut self, flag: &str, value: Option<&GoDuration>) {
        if let Some(value) = parsed(value) {
            self.set(flag, value.as_millis());
        }
    }

    fn seconds(&mut self, flag: &str, value: Option<&GoDuration>) {
        if let Some(value) = parsed(value) {
            self.set(flag, value.as_secs());
        }
    }
}

fn parsed(value: Option<&GoDuration>) -> Option<Duration> {
    value.and_then(|value| value.parse().ok())
}
