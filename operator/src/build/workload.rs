//! The StatefulSet.

use super::{flags, hash, meta, selector, services::ports};
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy},
        core::v1::{
            Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
            ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
            PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext,
            WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use mooncake_crds::{MooncakeMaster, names};
use std::collections::BTreeMap;

/// Name of the master's container.
pub(crate) const CONTAINER: &str = "master";
/// A user and group without a name on any machine.
const NOBODY: i64 = 65532;
/// Time between SIGTERM and SIGKILL, seconds; a master needs less than one.
const GRACE_PERIOD_SECONDS: i64 = 10;
/// Where a master writes its incarnation id, which is a proof of its death once the container has ended.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The StatefulSet and the hash of its pod template.
pub(super) fn stateful_set(master: &MooncakeMaster) -> (StatefulSet, String) {
    let name = master.name_any();
    let mut template = template(master);
    // Values of these types are plain data with string keys: serialization has no case that fails.
    let hash = hash(&serde_json::to_value(&template).unwrap_or_default());
    if let Some(meta) = &mut template.metadata {
        meta.labels.get_or_insert_default().insert(names::LABEL_TEMPLATE_HASH.to_owned(), hash.clone());
    }
    let stateful_set = StatefulSet {
        metadata: meta(master, name.clone()),
        spec: Some(StatefulSetSpec {
            replicas: Some(master.spec.replicas),
            service_name: Some(names::pods_service(&name)),
            // A standby is never Ready: in order, the second pod would wait for the first for ever.
            pod_management_policy: Some("Parallel".to_owned()),
            // The operator replaces the pods: standbys first, the active last.
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..Default::default()
            }),
            selector: LabelSelector { match_labels: Some(selector(master)), ..Default::default() },
            template,
            ..Default::default()
        }),
        ..Default::default()
    };
    (stateful_set, hash)
}

fn template(master: &MooncakeMaster) -> PodTemplateSpec {
    let spec = &master.spec;
    let mut labels = spec.pod_labels.clone();
    labels.extend(selector(master));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: (!spec.pod_annotations.is_empty()).then(|| spec.pod_annotations.clone()),
            ..Default::default()
        }),
        spec: Some(PodSpec {
            service_account_name: Some(names::master_account(&master.name_any())),
            // Variables of Services would be taken for settings of the same name.
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(GRACE_PERIOD_SECONDS),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NOBODY),
                run_as_group: Some(NOBODY),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            image_pull_secrets: (!spec.image_pull_secrets.is_empty())
                .then(|| spec.image_pull_secrets.clone()),
            node_selector: (!spec.node_selector.is_empty()).then(|| spec.node_selector.clone()),
            tolerations: (!spec.tolerations.is_empty()).then(|| spec.tolerations.clone()),
            affinity: Some(spec.affinity.clone().unwrap_or_else(|| apart(master))),
            containers: vec![container(master)],
            ..Default::default()
        }),
    }
}

fn container(master: &MooncakeMaster) -> Container {
    let spec = &master.spec;
    let ports = ports(master)
        .into_iter()
        .map(|(name, port)| ContainerPort {
            name: Some(name.to_owned()),
            container_port: port,
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        })
        .collect();
    let (readiness, liveness) = (&spec.probes.readiness, &spec.probes.liveness);
    Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone()),
        image_pull_policy: Some(spec.image_pull_policy.clone()),
        args: Some(flags(master)),
        // POD_IP comes first: the arguments refer to it.
        env: Some(vec![
            field("POD_IP", "status.podIP"),
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_UID", "metadata.uid"),
        ]),
        ports: Some(ports),
        resources: Some(spec.resources.clone().unwrap_or_else(default_resources)),
        readiness_probe: Some(probe(
            "/readyz",
            readiness.period_seconds,
            readiness.timeout_seconds,
            readiness.failure_threshold,
        )),
        liveness_probe: Some(probe(
            "/health",
            liveness.period_seconds,
            liveness.timeout_seconds,
            liveness.failure_threshold,
        )),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Default::default() }),
            ..Default::default()
        }),
        termination_message_path: Some(TERMINATION_LOG.to_owned()),
        termination_message_policy: Some("File".to_owned()),
        ..Default::default()
    }
}

fn field(variable: &str, path: &str) -> EnvVar {
    EnvVar {
        name: variable.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn probe(path: &str, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("metrics".to_owned()),
            ..Default::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        failure_threshold: Some(failures),
        ..Default::default()
    }
}

fn default_resources() -> ResourceRequirements {
    ResourceRequirements {
        requests: Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity("250m".to_owned())),
            ("memory".to_owned(), Quantity("256Mi".to_owned())),
        ])),
        ..Default::default()
    }
}

/// Different hosts rather than different zones; a preference, so that one node is enough to run on.
fn apart(master: &MooncakeMaster) -> Affinity {
    let term = |weight: i32, topology: &str| WeightedPodAffinityTerm {
        weight,
        pod_affinity_term: PodAffinityTerm {
            topology_key: topology.to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(selector(master)),
                ..Default::default()
            }),
            ..Default::default()
        },
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                term(100, "kubernetes.io/hostname"),
                term(50, "topology.kubernetes.io/zone"),
            ]),
            ..Default::default()
        }),
        ..Default::default()
    }
}
