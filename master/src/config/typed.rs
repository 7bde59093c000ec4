//! The typed configuration and the rules that options must keep among each other.

mod metadata;
mod store;

pub use metadata::{MetadataConfig, RemoteMetadataConfig};

use super::{
    Surroundings,
    errors::{ConfigError, Source},
    resolve::{Layers, Resolved},
    value::Value,
};
use crate::{
    rpc::native::generation::{Generation, NAMES},
    types::{CoreOptions, MAX_EXIST_LEASE_BOUND},
};
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// Everything that the process needs to know to start.
#[derive(Debug, Clone)]
pub struct Config {
    /// `cluster_id`.
    pub cluster_id: String,
    /// The RPC server.
    pub rpc: RpcConfig,
    /// The heartbeat server.
    pub heartbeat: HeartbeatConfig,
    /// The admin HTTP server.
    pub admin: AdminConfig,
    /// The self-probe.
    pub probe: ProbeConfig,
    /// Leadership; None for a standalone master.
    pub ha: Option<HaConfig>,
    /// What `GetStorageConfig` says.
    pub storage: StorageAnswers,
    /// The HTTP metadata server; None: there is none.
    pub metadata: Option<MetadataConfig>,
    /// One that runs elsewhere and from which the entries of lost clients are removed.
    pub metadata_elsewhere: Option<RemoteMetadataConfig>,
    /// The store.
    pub core: CoreOptions,
    /// Logging.
    pub log: LogConfig,
    /// Where the incarnation id is written at start; None for nowhere.
    pub termination_log: Option<PathBuf>,
    /// Whether fault injection is allowed.
    pub enable_fault_injection: bool,
}

/// The RPC server: both protocols on one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcConfig {
    /// Address to bind.
    pub address: IpAddr,
    /// Port to bind.
    pub port: u16,
    /// `host:port` under which clients reach this process.
    pub advertised: String,
    /// Data threads, at least 1.
    pub threads: usize,
    /// `TCP_NODELAY`.
    pub tcp_no_delay: bool,
    /// Largest body of a request, bytes.
    pub max_frame_bytes: usize,
    /// Bytes in flight in the whole process; at least `max_frame_bytes`.
    pub byte_budget: usize,
    /// Connections in total.
    pub max_connections: usize,
    /// Connections of one peer address.
    pub max_connections_per_address: usize,
    /// Generation of a native client that nothing tells about.
    pub default_generation: &'static Generation,
    /// Further ports, each for native clients of one generation.
    pub generation_ports: Vec<(&'static Generation, u16)>,
}

/// The dedicated heartbeat server (C1, C2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatConfig {
    /// Its port; None: there is none.
    pub port: Option<u16>,
    /// Its threads, at least 1.
    pub threads: usize,
    /// The main server serves Ping, too.
    pub keep_on_main: bool,
}

/// The admin HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// Address to bind.
    pub host: IpAddr,
    /// Port to bind.
    pub port: u16,
    /// Log the summary every 10 s.
    pub report_metrics: bool,
}

/// The self-probe (A4, A8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeConfig {
    /// false: `/readyz` follows `service_available` alone.
    pub enabled: bool,
    /// From the start of one round to the start of the next.
    pub interval: Duration,
    /// Of one round.
    pub timeout: Duration,
}

impl ProbeConfig {
    /// How long one `HealthCheck` call may take (A2): the smaller of 2 s and two thirds of the probe's timeout.
    pub fn health_check_budget(&self) -> Duration {
        Duration::from_secs(2).min(self.timeout * 2 / 3)
    }
}

/// Leadership through a Kubernetes Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaConfig {
    /// Namespace of the Lease.
    pub lease_namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// This pod; None: no leader label is written.
    pub pod: Option<PodIdentity>,
    /// Lease duration; greater than the renew deadline.
    pub lease_duration: Duration,
    /// Renew deadline; at least twice the retry period.
    pub renew_deadline: Duration,
    /// Retry period.
    pub retry_period: Duration,
}

/// Who this pod is among the pods of its `StatefulSet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// `StatefulSet`; its pods are `<statefulset>-0` to `<statefulset>-<max_ordinal>`.
    pub statefulset: String,
    /// Highest ordinal.
    pub max_ordinal: u32,
}

/// What clients are told about their own disk storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageAnswers {
    /// `enable_disk_eviction`.
    pub enable_disk_eviction: bool,
    /// `quota_bytes`.
    pub quota_bytes: u64,
    /// `root_fs_dir`/`cluster_id`; None without `root_fs_dir`.
    pub disk_directory: Option<String>,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A filter that tracing-subscriber understands.
    pub filter: String,
    /// Text or JSON.
    pub format: LogFormat,
}

/// The shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogFormat {
    Text,
    Json,
}

impl Resolved {
    fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Bool(true))
    }

    fn count(&self, name: &str) -> u64 {
        if let Value::Count(n) = self.value(name) { *n } else { unreachable!("{name} is a count") }
    }

    fn number(&self, name: &str) -> f64 {
        if let Value::Number(n) = self.value(name) { *n } else { unreachable!("{name} is a number") }
    }

    fn port(&self, name: &str) -> u16 {
        // The table bounds every port.
        self.count(name) as u16
    }

    fn text(&self, name: &str) -> &str {
        if let Value::Text(text) = self.value(name) { text } else { unreachable!("{name} is text") }
    }

    fn address(&self, name: &str) -> IpAddr {
        if let Value::Address(ip) = self.value(name) { *ip } else { unreachable!("{name} is an address") }
    }

    fn time(&self, name: &str) -> Duration {
        if let Value::Duration(d) = self.value(name) { *d } else { unreachable!("{name} is a duration") }
    }

    /// An option with its value and source, for messages.
    fn show(&self, name: &str) -> String {
        format!("`{name}` = {} ({})", self.value(name), self.source(name))
    }
}

/// Builds the typed configuration and adds every broken rule to the errors.
pub(super) fn build(r: &mut Resolved, layers: &mut Layers, surroundings: &Surroundings<'_>) -> Config {
    interface(r, layers, surroundings);
    check_ports(r, &mut layers.errors);
    check_rules(r, &mut layers.errors);
    let rpc = rpc(r, &mut layers.errors);
    let ha = r.flag("enable_ha").then(|| ha(r, &mut layers.errors));
    let filter = r.text("log_level").to_owned();
    if let Err(problem) = tracing_subscriber::EnvFilter::try_new(&filter) {
        layers.errors.push(ConfigError::BadValue {
            option: "log_level",
            from: r.source("log_level"),
            value: filter.clone(),
            expected: format!("error, warn, info, debug, trace or a filter ({problem})"),
        });
    }
    let metadata_elsewhere = metadata::elsewhere(r, layers, surroundings);
    let heartbeat_port = r.port("heartbeat_rpc_port");
    Config {
        cluster_id: r.text("cluster_id").to_owned(),
        rpc,
        heartbeat: HeartbeatConfig {
            port: (heartbeat_port > 0).then_some(heartbeat_port),
            threads: r.count("heartbeat_rpc_thread_num") as usize,
            keep_on_main: r.flag("heartbeat_keep_on_main"),
        },
        admin: AdminConfig {
            host: r.address("metrics_host"),
            port: r.port("metrics_port"),
            report_metrics: r.flag("enable_metric_reporting"),
        },
        probe: ProbeConfig {
            enabled: r.flag("enable_rpc_health_probe"),
            interval: r.time("rpc_probe_interval_seconds"),
            timeout: r.time("rpc_probe_timeout_seconds"),
        },
        ha,
        storage: StorageAnswers {
            enable_disk_eviction: r.flag("enable_disk_eviction"),
            quota_bytes: r.count("quota_bytes"),
            disk_directory: disk_directory(r),
        },
        metadata: metadata::own(r),
        metadata_elsewhere,
        core: store::core_options(r),
        log: LogConfig {
            filter,
            format: if r.text("log_format") == "json" { LogFormat::Json } else { LogFormat::Text },
        },
        termination_log: Some(r.text("termination_log")).filter(|p| !p.is_empty()).map(PathBuf::from),
        enable_fault_injection: r.flag("enable_fault_injection"),
    }
}

fn interface(r: &mut Resolved, layers: &mut Layers, surroundings: &Surroundings<'_>) {
    let name = r.text("rpc_interface").to_owned();
    if name.is_empty() {
        return;
    }
    match (surroundings.interface_address)(&name) {
        Ok(address) => {
            if r.is_given("rpc_address") {
                layers.warnings.push("`rpc_interface` is given, so `rpc_address` has no effect".to_owned());
            }
            r.set("rpc_address", Value::Address(address), Source::Derived);
        }
        Err(expected) => layers.errors.push(ConfigError::BadValue {
            option: "rpc_interface",
            from: r.source("rpc_interface"),
            value: name,
            expected,
        }),
    }
}

fn rpc(r: &Resolved, errors: &mut Vec<ConfigError>) -> RpcConfig {
    let (address, port) = (r.address("rpc_address"), r.port("rpc_port"));
    let advertised = match r.text("rpc_advertise_address") {
        "" => std::net::SocketAddr::new(address, port).to_string(),
        given => with_port(given, port).unwrap_or_else(|| {
            errors.push(ConfigError::BadValue {
                option: "rpc_advertise_address",
                from: r.source("rpc_advertise_address"),
                value: given.to_owned(),
                expected: "host, host:port or [IPv6 address]:port".to_owned(),
            });
            String::new()
        }),
    };
    if r.flag("enable_ha") && r.text("rpc_advertise_address").is_empty() && address.is_unspecified() {
        errors.push(ConfigError::Conflict(format!(
            "`enable_ha` needs an address that clients can reach, but {} is a wildcard: set `rpc_address` to an \
             address of this machine, or `rpc_advertise_address`",
            r.show("rpc_address")
        )));
    }
    RpcConfig {
        address,
        port,
        advertised,
        threads: r.count("rpc_thread_num") as usize,
        tcp_no_delay: r.flag("rpc_enable_tcp_no_delay"),
        max_frame_bytes: r.count("max_frame_bytes") as usize,
        byte_budget: r.count("rpc_byte_budget") as usize,
        max_connections: r.count("max_connections") as usize,
        max_connections_per_address: r.count("max_connections_per_address") as usize,
        // The table takes names of generations only.
        default_generation: Generation::by_name(r.text("wire_default_generation"))
            .unwrap_or_else(Generation::newest),
        generation_ports: generation_ports(r, errors),
    }
}

/// `<generation>=<port>`, separated by commas; every generation and every port once.
fn generation_ports(r: &Resolved, errors: &mut Vec<ConfigError>) -> Vec<(&'static Generation, u16)> {
    const OPTION: &str = "wire_generation_ports";
    let text = r.text(OPTION);
    let mut ports: Vec<(&'static Generation, u16)> = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let parsed = pair.split_once('=').and_then(|(generation, port)| {
            let port = port.trim().parse().ok().filter(|port| *port > 0)?;
            Some((Generation::by_name(generation.trim())?, port))
        });
        let is_new = |(generation, port): &(&Generation, u16)| {
            ports.iter().all(|(other, taken)| other != generation && taken != port)
        };
        let Some(port) = parsed.filter(is_new) else {
            errors.push(ConfigError::BadValue {
                option: OPTION,
                from: r.source(OPTION),
                value: text.to_owned(),
                expected: format!(
                    "<generation>=<port>, separated by commas, each generation (one of {}) and each port (1 to 65535) at \
                     most once",
                    NAMES.join(", ")
                ),
            });
            return Vec::new();
        };
        ports.push(port);
    }
    for (generation, port) in &ports {
        for name in own_ports(r).filter(|name| r.port(name) == *port) {
            errors.push(ConfigError::Conflict(format!(
                "{} and {port} of {} (`{OPTION}`) must be different ports",
                r.show(name),
                generation.name()
            )));
        }
    }
    ports
}

/// `host` → `host:port`; `host:port` as it is. None if it is neither.
fn with_port(given: &str, port: u16) -> Option<String> {
    if let Ok(ip) = given.parse::<IpAddr>() {
        return (!ip.is_unspecified()).then(|| std::net::SocketAddr::new(ip, port).to_string());
    }
    if let Ok(address) = given.parse::<std::net::SocketAddr>() {
        return (!address.ip().is_unspecified() && address.port() > 0).then(|| address.to_string());
    }
    let (host, own_port) = match given.split_once(':') {
        Some((host, text)) => (host, text.parse().ok().filter(|p| *p > 0)?),
        None => (given, port),
    };
    let is_name = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    is_name.then(|| format!("{host}:{own_port}"))
}

/// Where DISK replicas lie.
fn disk_directory(r: &Resolved) -> Option<String> {
    let root = r.text("root_fs_dir");
    (!root.is_empty()).then(|| format!("{}/{}", root.trim_end_matches('/'), r.text("cluster_id")))
}

fn ha(r: &Resolved, errors: &mut Vec<ConfigError>) -> HaConfig {
    if r.text("ha_backend_type") != "k8s" {
        errors.push(ConfigError::NotInThisVersion {
            option: "ha_backend_type",
            from: r.source("ha_backend_type"),
            value: r.text("ha_backend_type").to_owned(),
            accepted: "k8s".to_owned(),
        });
    }
    let connstring = r.text("ha_backend_connstring");
    let (lease_namespace, lease_name) = connstring.split_once('/').unwrap_or(("default", connstring));
    if !is_dns_name(lease_namespace) || !is_dns_name(lease_name) {
        errors.push(ConfigError::BadValue {
            option: "ha_backend_connstring",
            from: r.source("ha_backend_connstring"),
            value: connstring.to_owned(),
            expected: "the Lease as `namespace/name` (enable_ha is on)".to_owned(),
        });
    }
    let retry = r.time("lease_retry_period_ms");
    HaConfig {
        lease_namespace: lease_namespace.to_owned(),
        lease_name: lease_name.to_owned(),
        pod: pod(r, errors),
        lease_duration: r.time("lease_duration_ms"),
        renew_deadline: r.time("lease_renew_deadline_ms"),
        retry_period: retry,
    }
}

fn pod(r: &Resolved, errors: &mut Vec<ConfigError>) -> Option<PodIdentity> {
    let (name, namespace, uid) = (r.text("pod_name"), r.text("pod_namespace"), r.text("pod_uid"));
    if name.is_empty() && namespace.is_empty() && uid.is_empty() {
        return None;
    }
    for (option, value) in [("pod_name", name), ("pod_namespace", namespace), ("pod_uid", uid)] {
        if value.is_empty() {
            errors.push(ConfigError::Conflict(format!(
                "`{option}` is empty, but pod_name, pod_namespace and pod_uid go together (flags, or environment \
                 variables POD_NAME, POD_NAMESPACE and POD_UID)"
            )));
        }
    }
    let statefulset = match r.text("ha_statefulset") {
        "" => match name.rsplit_once('-') {
            Some((set, ordinal)) if ordinal.parse::<u32>().is_ok() => set,
            _ => name,
        },
        given => given,
    };
    Some(PodIdentity {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        uid: uid.to_owned(),
        statefulset: statefulset.to_owned(),
        max_ordinal: r.count("ha_max_ordinal") as u32,
    })
}

/// Letters, digits, `-` and `.`, lower case, at most 253: what Kubernetes takes as a name.
fn is_dns_name(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
        && !name.starts_with(['-', '.'])
        && !name.ends_with(['-', '.'])
}

/// The options that name a port on which this process listens.
fn own_ports(r: &Resolved) -> impl Iterator<Item = &'static str> {
    let metadata = r.flag("enable_http_metadata_server").then_some("http_metadata_server_port");
    ["rpc_port", "heartbeat_rpc_port", "metrics_port"].into_iter().chain(metadata)
}

fn check_ports(r: &Resolved, errors: &mut Vec<ConfigError>) {
    let ports: Vec<(&str, u16)> =
        own_ports(r).map(|name| (name, r.port(name))).filter(|(_, port)| *port > 0).collect();
    for (i, (name, port)) in ports.iter().enumerate() {
        for (other, _) in ports[..i].iter().filter(|(_, p)| p == port) {
            errors.push(ConfigError::Conflict(format!(
                "{} and {} must be different ports",
                r.show(other),
                r.show(name)
            )));
        }
    }
}

fn check_rules(r: &Resolved, errors: &mut Vec<ConfigError>) {
    if r.text("allocation_strategy") == "cxl" {
        errors.push(ConfigError::NotInThisVersion {
            option: "allocation_strategy",
            from: r.source("allocation_strategy"),
            value: "cxl".to_owned(),
            accepted: "random, free_ratio_first, ssd_free_ratio_first, local_first".to_owned(),
        });
    }
    let mut must = |holds: bool, rule: &str, options: &[&str]| {
        if !holds {
            let shown: Vec<String> = options.iter().map(|name| r.show(name)).collect();
            errors.push(ConfigError::Conflict(format!("{}: expected {rule}", shown.join(", "))));
        }
    };
    let (release, discard) = ("put_start_release_timeout_sec", "put_start_discard_timeout_sec");
    must(r.time(release) > r.time(discard), &format!("{release} > {discard}"), &[release, discard]);
    let (default_pin, max_pin) = ("default_kv_soft_pin_ttl", "max_kv_soft_pin_ttl");
    must(
        r.time(default_pin) <= r.time(max_pin),
        &format!("{default_pin} <= {max_pin}"),
        &[default_pin, max_pin],
    );
    let bound = "exist_lease_bound_ms";
    must(r.time(bound) <= MAX_EXIST_LEASE_BOUND, "at most 4 h", &[bound]);
    let (budget, frame) = ("rpc_byte_budget", "max_frame_bytes");
    must(r.count(budget) / 4 * 3 >= r.count(frame), &format!("{budget} >= 4/3 of {frame}"), &[budget, frame]);
    let (duration, deadline, retry) =
        ("lease_duration_ms", "lease_renew_deadline_ms", "lease_retry_period_ms");
    must(
        r.time(duration) > r.time(deadline) && r.time(deadline) >= r.time(retry) * 2,
        &format!("{duration} > {deadline} >= 2 x {retry}"),
        &[duration, deadline, retry],
    );
    let id = r.text("cluster_id");
    must(
        (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)),
        "1 to 128 of A-Z, a-z, 0-9, `_`, `.` and `-`",
        &["cluster_id"],
    );
}
