//! The rules of the definition once more, in Rust: an operator may meet a resource that an older definition let in.

use crate::{GoDuration, MooncakeMaster, MooncakeMasterSpec, names, rules};
use std::{fmt, time::Duration};

/// A field and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.ports.metrics`.
    pub path: String,
    /// What was expected; begins with the path.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a resource; empty if it is good. Changes of fields that cannot be changed are the
/// API server's to refuse.
pub fn validate(master: &MooncakeMaster) -> Vec<FieldError> {
    let mut errors = Errors(Vec::new());
    let name = master.metadata.name.as_deref().unwrap_or_default();
    let spec = &master.spec;

    errors.check("metadata.name", name.len() <= names::MAX_NAME_LENGTH, || {
        format!("must have at most {} characters", names::MAX_NAME_LENGTH)
    });
    let name_is_a_label = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit());
    errors.check("metadata.name", name_is_a_label, || {
        "must begin with a letter and consist of lower case letters, digits and '-'".to_owned()
    });
    errors.check("spec.image", !spec.image.is_empty() && !spec.image.contains(char::is_whitespace), || {
        "must name a container image, without blanks".to_owned()
    });
    errors.check(
        "spec.imagePullPolicy",
        ["Always", "IfNotPresent", "Never"].contains(&&*spec.image_pull_policy),
        || "must be Always, IfNotPresent or Never".to_owned(),
    );
    errors.check("spec.replicas", (1..=names::MAX_REPLICAS).contains(&spec.replicas), || {
        format!("must be from 1 to {}", names::MAX_REPLICAS)
    });
    errors.ports(spec);

    let failover = &spec.failover;
    let lease = errors.duration("spec.failover.leaseDuration", &failover.lease_duration);
    let renew = errors.duration("spec.failover.renewDeadline", &failover.renew_deadline);
    let retry = errors.duration("spec.failover.retryPeriod", &failover.retry_period);
    if let (Some(lease), Some(renew), Some(retry)) = (lease, renew, retry) {
        let margin = GoDuration::from(rules::LEAST_LEASE_MARGIN).parse().unwrap_or_default();
        errors.check("spec.failover.renewDeadline", renew + margin <= lease, || {
            format!("must be at least {} below spec.failover.leaseDuration", rules::LEAST_LEASE_MARGIN)
        });
        errors.check("spec.failover.retryPeriod", retry * 2 <= renew, || {
            "must be at most half of spec.failover.renewDeadline".to_owned()
        });
    }
    for (path, duration) in [
        ("spec.failover.blockedAfter", &failover.blocked_after),
        ("spec.failover.cooldown", &failover.cooldown),
        ("spec.failover.notReadyAfter", &failover.not_ready_after),
        ("spec.failover.healthCheck.period", &failover.health_check.period),
        ("spec.failover.healthCheck.timeout", &failover.health_check.timeout),
    ] {
        errors.duration(path, duration);
    }
    errors.check(
        "spec.failover.healthCheck.failureThreshold",
        (2..=100).contains(&failover.health_check.failure_threshold),
        || "must be from 2 to 100".to_owned(),
    );
    if let Some(client) = &spec.client {
        errors.optional_duration("spec.client.activeTtl", client.active_ttl.as_ref());
        errors.optional_duration("spec.client.suspicionTtl", client.suspicion_ttl.as_ref());
        let percent = client.mass_silence_percent.unwrap_or_default();
        errors.check("spec.client.massSilencePercent", (0..=100).contains(&percent), || {
            "must be from 0 to 100".to_owned()
        });
    }
    if let Some(store) = &spec.store {
        errors.optional_duration("spec.store.defaultKvLeaseTtl", store.default_kv_lease_ttl.as_ref());
        let discard = errors.duration_or(
            "spec.store.putStartDiscardTimeout",
            store.put_start_discard_timeout.as_ref(),
            Duration::from_secs(30),
        );
        let release = errors.duration_or(
            "spec.store.putStartReleaseTimeout",
            store.put_start_release_timeout.as_ref(),
            Duration::from_secs(600),
        );
        if let (Some(discard), Some(release)) = (discard, release) {
            errors.check("spec.store.putStartReleaseTimeout", release > discard, || {
                "(unset: 10m) must be above spec.store.putStartDiscardTimeout (unset: 30s)".to_owned()
            });
        }
    }
    let probe = &spec.rpc_health_probe;
    let (readiness, liveness) = (&spec.probes.readiness, &spec.probes.liveness);
    for (path, value) in [
        ("spec.rpcHealthProbe.intervalSeconds", probe.interval_seconds),
        ("spec.rpcHealthProbe.timeoutSeconds", probe.timeout_seconds),
        ("spec.probes.readiness.periodSeconds", readiness.period_seconds),
        ("spec.probes.readiness.timeoutSeconds", readiness.timeout_seconds),
        ("spec.probes.readiness.failureThreshold", readiness.failure_threshold),
        ("spec.probes.liveness.periodSeconds", liveness.period_seconds),
        ("spec.probes.liveness.timeoutSeconds", liveness.timeout_seconds),
        ("spec.probes.liveness.failureThreshold", liveness.failure_threshold),
    ] {
        errors.check(path, (1..=3600).contains(&value), || "must be from 1 to 3600".to_owned());
    }

    for flag in spec.config.keys() {
        if let Some((flag, instead)) = rules::OWNED_FLAGS.iter().find(|(owned, _)| owned == flag) {
            errors.check("spec.config", false, || format!("must not set {flag}; use {instead}"));
        }
        errors.check("spec.config", is_flag_name(flag), || {
            format!("must have flag names with underscores and without dashes, found {flag:?}")
        });
    }
    for (path, map) in [("spec.podLabels", &spec.pod_labels), ("spec.podAnnotations", &spec.pod_annotations)]
    {
        for key in map.keys() {
            let reserved = key == rules::RESERVED_LABEL
                || rules::RESERVED_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
            errors.check(path, !reserved, || {
                format!("must not contain {key}, which is the operator's or Kubernetes'")
            });
        }
    }
    errors.0
}

fn is_flag_name(flag: &str) -> bool {
    flag.len() <= 63
        && flag.starts_with(|c: char| c.is_ascii_lowercase())
        && flag.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
}

struct Errors(Vec<FieldError>);

impl Errors {
    fn check(&mut self, path: &str, good: bool, expected: impl FnOnce() -> String) {
        if !good {
            self.0.push(FieldError { path: path.to_owned(), message: format!("{path} {}", expected()) });
        }
    }

    /// Each port in its range, and no two of them the same.
    fn ports(&mut self, spec: &MooncakeMasterSpec) {
        for (path, port) in [("spec.ports.rpc", spec.ports.rpc), ("spec.ports.metrics", spec.ports.metrics)] {
            self.check(path, (1..=65535).contains(&port), || "must be from 1 to 65535".to_owned());
        }
        self.check("spec.ports.metrics", spec.ports.metrics != spec.ports.rpc, || {
            "must differ from spec.ports.rpc".to_owned()
        });
        let heartbeat = &spec.heartbeat;
        self.check("spec.heartbeat.port", (0..=65535).contains(&heartbeat.port), || {
            "must be from 0 to 65535".to_owned()
        });
        self.check(
            "spec.heartbeat.port",
            heartbeat.port != spec.ports.rpc && heartbeat.port != spec.ports.metrics,
            || "must differ from spec.ports.rpc and spec.ports.metrics".to_owned(),
        );
        self.check("spec.heartbeat.threads", (1..=1024).contains(&heartbeat.threads), || {
            "must be from 1 to 1024".to_owned()
        });
        if let Some(port) = spec.config.get(rules::PORT_FLAG) {
            let taken = [spec.ports.rpc, spec.ports.metrics, heartbeat.port];
            let taken = taken.iter().any(|taken| *taken != 0 && taken.to_string() == *port);
            self.check("spec.config", !taken, || format!("must give {} a port of its own", rules::PORT_FLAG));
        }
    }

    fn duration(&mut self, path: &str, text: &GoDuration) -> Option<Duration> {
        let value = match text.parse() {
            Ok(value) => value,
            Err(error) => {
                self.check(path, false, || format!("is not valid: {error}"));
                return None;
            }
        };
        for &(_, least, most) in rules::DURATION_RANGES.iter().filter(|(of, ..)| *of == path) {
            let limit = |text: &str| GoDuration::from(text).parse().unwrap_or_default();
            self.check(path, (limit(least)..=limit(most)).contains(&value), || {
                format!("must be from {least} to {most}")
            });
        }
        if rules::WHOLE_MILLISECONDS.contains(&path) {
            self.check(path, text.is_written_in_millis(), || {
                "must be whole milliseconds, such as 500ms or 1.5s".to_owned()
            });
        }
        if rules::WHOLE_SECONDS.contains(&path) {
            let whole = !text.0.contains('.') && !text.0.contains("ms");
            self.check(path, whole, || "must be whole seconds, such as 10s or 1m30s".to_owned());
        }
        Some(value)
    }

    fn optional_duration(&mut self, path: &str, text: Option<&GoDuration>) {
        if let Some(text) = text {
            self.duration(path, text);
        }
    }

    fn duration_or(&mut self, path: &str, text: Option<&GoDuration>, default: Duration) -> Option<Duration> {
        text.map_or(Some(default), |text| self.duration(path, text))
    }
}
