//! Everything that the API server refuses beyond types and ranges, as one table of CEL rules.

use serde_json::{Value, json};

/// A CEL rule in the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The field at which the rule sits; empty for the object itself. `self` is its value.
    pub at: &'static str,
    /// The field below it that an error names, as a JSON path (`.metrics`), or empty for `at` itself.
    pub field: &'static str,
    /// The expression; true lets the object in.
    pub rule: String,
    /// What a user reads. Begins with the field's path and says what was expected.
    pub message: String,
}

impl Rule {
    /// As it stands in the schema.
    pub fn to_schema(&self) -> Value {
        let mut rule = json!({ "rule": self.rule, "message": self.message });
        if !self.field.is_empty() {
            rule["fieldPath"] = json!(self.field);
        }
        rule
    }

    /// The path that an error names.
    pub fn path(&self) -> String {
        format!("{}{}", self.at, self.field).trim_start_matches('.').to_owned()
    }
}

/// Flags of the master that the operator sets, and the field to use instead.
pub const OWNED_FLAGS: &[(&str, &str)] = &[
    ("client_active_ttl_sec", "spec.client.activeTtl"),
    ("client_live_ttl_sec", "spec.client.activeTtl"),
    ("client_mass_silence_ratio", "spec.client.massSilencePercent"),
    ("client_suspicion_ttl_sec", "spec.client.suspicionTtl"),
    ("client_ttl", "spec.client.activeTtl"),
    ("config_path", "spec.config"),
    ("default_kv_lease_ttl", "spec.store.defaultKvLeaseTtl"),
    ("enable_ha", "none: always on"),
    ("enable_rpc_health_probe", "spec.rpcHealthProbe.enabled"),
    ("ha_backend_connstring", "none: the Lease is the operator's"),
    ("ha_backend_type", "none: always k8s"),
    ("ha_max_ordinal", "none: always the largest"),
    ("ha_statefulset", "none: the name of the resource"),
    ("heartbeat_keep_on_main", "spec.heartbeat.keepOnMain"),
    ("heartbeat_rpc_port", "spec.heartbeat.port"),
    ("heartbeat_rpc_thread_num", "spec.heartbeat.threads"),
    ("lease_duration_ms", "spec.failover.leaseDuration"),
    ("lease_renew_deadline_ms", "spec.failover.renewDeadline"),
    ("lease_retry_period_ms", "spec.failover.retryPeriod"),
    ("metrics_host", "none: all addresses of the pod"),
    ("metrics_port", "spec.ports.metrics"),
    ("pod_name", "none: the pod's own"),
    ("pod_namespace", "none: the pod's own"),
    ("pod_uid", "none: the pod's own"),
    ("port", "spec.ports.rpc"),
    ("put_start_discard_timeout_sec", "spec.store.putStartDiscardTimeout"),
    ("put_start_release_timeout_sec", "spec.store.putStartReleaseTimeout"),
    ("rpc_address", "none: the pod's address"),
    ("rpc_advertise_address", "none: the pod's address"),
    ("rpc_interface", "none: the pod's address"),
    ("rpc_port", "spec.ports.rpc"),
    ("rpc_probe_interval_seconds", "spec.rpcHealthProbe.intervalSeconds"),
    ("rpc_probe_timeout_seconds", "spec.rpcHealthProbe.timeoutSeconds"),
    ("termination_log", "none: the container's terminationMessagePath"),
];

/// The flag in `spec.config` that opens a further port.
pub const PORT_FLAG: &str = "http_metadata_server_port";

/// Prefixes of label and annotation keys that belong to the operator or to Kubernetes.
pub const RESERVED_PREFIXES: &[&str] = &[
    "mooncake.io/",
    "app.kubernetes.io/",
    "kubernetes.io/",
    "apps.kubernetes.io/",
    "statefulset.kubernetes.io/",
];
/// Label of the StatefulSet controller, without a prefix.
pub const RESERVED_LABEL: &str = "controller-revision-hash";

/// Durations that must lie in a range: path, least, most.
pub const DURATION_RANGES: &[(&str, &str, &str)] = &[
    ("spec.failover.leaseDuration", "1s", "10m"),
    ("spec.failover.renewDeadline", "200ms", "10m"),
    ("spec.failover.retryPeriod", "100ms", "60s"),
    ("spec.failover.blockedAfter", "2s", "1h"),
    ("spec.failover.cooldown", "10s", "24h"),
    ("spec.failover.notReadyAfter", "5s", "1h"),
    ("spec.failover.healthCheck.period", "500ms", "1m"),
    ("spec.failover.healthCheck.timeout", "500ms", "1m"),
    ("spec.client.activeTtl", "1s", "24h"),
    ("spec.client.suspicionTtl", "1s", "24h"),
    ("spec.store.defaultKvLeaseTtl", "1ms", "24h"),
    ("spec.store.putStartDiscardTimeout", "1s", "24h"),
    ("spec.store.putStartReleaseTimeout", "1s", "24h"),
];

/// Least time between the moment when an active stops serving and the one when a standby may take over.
pub const LEAST_LEASE_MARGIN: &str = "500ms";

/// Durations that the master takes in whole milliseconds: a finer part would be cut off.
pub const WHOLE_MILLISECONDS: &[&str] = &[
    "spec.failover.leaseDuration",
    "spec.failover.renewDeadline",
    "spec.failover.retryPeriod",
    "spec.store.defaultKvLeaseTtl",
];

/// Durations that the master takes in whole seconds.
pub const WHOLE_SECONDS: &[&str] = &[
    "spec.client.activeTtl",
    "spec.client.suspicionTtl",
    "spec.store.putStartDiscardTimeout",
    "spec.store.putStartReleaseTimeout",
];

/// The master's own defaults, where a rule compares a field that is set with one that is not.
pub const DEFAULT_PUT_START_DISCARD_TIMEOUT: &str = "30s";
/// See [`DEFAULT_PUT_START_DISCARD_TIMEOUT`].
pub const DEFAULT_PUT_START_RELEASE_TIMEOUT: &str = "600s";

fn list(items: impl IntoIterator<Item = &'static str>) -> String {
    let quoted: Vec<String> = items.into_iter().map(|item| format!("'{item}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// All rules.
pub fn all() -> Vec<Rule> {
    let name_limit = crate::names::MAX_NAME_LENGTH;
    let mut rules = vec![
        Rule {
            at: "",
            field: ".metadata.name",
            rule: format!("self.metadata.name.size() <= {name_limit}"),
            message: format!(
                "metadata.name must have at most {name_limit} characters: the names and labels of its pods and \
                 Services are derived from it"
            ),
        },
        Rule {
            at: "",
            field: ".metadata.name",
            rule: "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')".to_owned(),
            message: "metadata.name must begin with a letter and consist of lower case letters, digits and '-': it is \
                      the name of a Service"
                .to_owned(),
        },
        Rule {
            at: "spec.image",
            field: "",
            rule: r"self.matches('^\\S+$')".to_owned(),
            message: "spec.image must name a container image, without blanks, such as \
                      registry.example.com/mooncake-master:1.0"
                .to_owned(),
        },
        Rule {
            at: "spec.ports",
            field: ".metrics",
            rule: "self.metrics != self.rpc".to_owned(),
            message: "spec.ports.metrics must differ from spec.ports.rpc".to_owned(),
        },
        Rule {
            at: "spec.ports",
            field: ".rpc",
            rule: "self.rpc == oldSelf.rpc".to_owned(),
            message: "spec.ports.rpc cannot be changed: clients have it in their configuration".to_owned(),
        },
        Rule {
            at: "spec.ports",
            field: ".metrics",
            rule: "self.metrics == oldSelf.metrics".to_owned(),
            message: "spec.ports.metrics cannot be changed: pods of the old and the new template are probed on it"
                .to_owned(),
        },
        Rule {
            at: "spec.failover",
            field: ".renewDeadline",
            rule: format!(
                "duration(self.renewDeadline) + duration('{LEAST_LEASE_MARGIN}') <= duration(self.leaseDuration)"
            ),
            message: format!(
                "spec.failover.renewDeadline must be at least {LEAST_LEASE_MARGIN} below spec.failover.leaseDuration"
            ),
        },
        Rule {
            at: "spec.failover",
            field: ".retryPeriod",
            rule: "duration(self.retryPeriod) + duration(self.retryPeriod) <= duration(self.renewDeadline)".to_owned(),
            message: "spec.failover.retryPeriod must be at most half of spec.failover.renewDeadline".to_owned(),
        },
        Rule {
            at: "spec.store",
            field: ".putStartReleaseTimeout",
            rule: format!(
                "duration(has(self.putStartReleaseTimeout) ? self.putStartReleaseTimeout : \
                 '{DEFAULT_PUT_START_RELEASE_TIMEOUT}') > duration(has(self.putStartDiscardTimeout) ? \
                 self.putStartDiscardTimeout : '{DEFAULT_PUT_START_DISCARD_TIMEOUT}')"
            ),
            message: "spec.store.putStartReleaseTimeout (unset: 10m) must be above \
                      spec.store.putStartDiscardTimeout (unset: 30s)"
                .to_owned(),
        },
        Rule {
            at: "spec.config",
            field: "",
            rule: format!("{}.all(flag, !(flag in self))", list(OWNED_FLAGS.iter().map(|(flag, _)| *flag))),
            message: format!(
                "spec.config must not set a flag that has its own field or is the operator's: {}",
                OWNED_FLAGS.iter().map(|(flag, _)| *flag).collect::<Vec<_>>().join(", ")
            ),
        },
        Rule {
            at: "spec.config",
            field: "",
            rule: "self.all(flag, flag.matches('^[a-z][a-z0-9_]{0,62}$'))".to_owned(),
            message: "spec.config must have flag names with underscores and without dashes, such as \
                      eviction_high_watermark_ratio"
                .to_owned(),
        },
        Rule {
            at: "spec",
            field: ".config",
            rule: format!(
                "!has(self.config) || !('{PORT_FLAG}' in self.config) || !(self.config['{PORT_FLAG}'] in \
                 [string(self.ports.rpc), string(self.ports.metrics)] || (self.heartbeat.port != 0 && \
                 self.config['{PORT_FLAG}'] == string(self.heartbeat.port)))"
            ),
            message: format!(
                "spec.config must give {PORT_FLAG} a port other than spec.ports.rpc, spec.ports.metrics and \
                 spec.heartbeat.port"
            ),
        },
        Rule {
            at: "spec",
            field: ".heartbeat.port",
            rule: "self.heartbeat.port != self.ports.rpc && self.heartbeat.port != self.ports.metrics".to_owned(),
            message: "spec.heartbeat.port must differ from spec.ports.rpc and spec.ports.metrics".to_owned(),
        },
        Rule {
            at: "spec.heartbeat",
            field: ".port",
            // While there is no port the rpc port serves heartbeats in any case.
            rule: "self.port == oldSelf.port || ((oldSelf.keepOnMain || oldSelf.port == 0) && (self.keepOnMain || \
                   self.port == 0))"
                .to_owned(),
            message: "spec.heartbeat.port can be changed only while spec.heartbeat.keepOnMain is true, before and \
                      after: the Service changes before the active does, and until then clients need the rpc port"
                .to_owned(),
        },
    ];
    for (field, what) in [("spec.podLabels", "labels"), ("spec.podAnnotations", "annotations")] {
        rules.push(Rule {
            at: field,
            field: "",
            rule: format!(
                "self.all(key, key != '{RESERVED_LABEL}' && !{}.exists(prefix, key.startsWith(prefix)))",
                list(RESERVED_PREFIXES.iter().copied())
            ),
            message: format!(
                "{field} must not contain {what} of the operator or of Kubernetes ({RESERVED_LABEL}, {})",
                RESERVED_PREFIXES.join(", ")
            ),
        });
    }
    for &(path, least, most) in DURATION_RANGES {
        rules.push(Rule {
            at: path,
            field: "",
            rule: format!("duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"),
            message: format!("{path} must be from {least} to {most}"),
        });
    }
    for &path in WHOLE_MILLISECONDS {
        rules.push(Rule {
            at: path,
            field: "",
            // On the text, as below.
            rule: r"self.matches('^([0-9]+ms|[0-9]+(\\.[0-9]{1,3})?(s|m|h))+$')".to_owned(),
            message: format!("{path} must be whole milliseconds, such as 500ms or 1.5s"),
        });
    }
    for &path in WHOLE_SECONDS {
        rules.push(Rule {
            at: path,
            field: "",
            // On the text: computing with the duration exceeds the API server's cost limit for rules.
            rule: "self.matches('^([0-9]+(s|m|h))+$')".to_owned(),
            message: format!("{path} must be whole seconds, such as 10s or 1m30s"),
        });
    }
    rules
}
