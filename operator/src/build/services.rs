//! The two Services: one for clients, one with an address for every pod.

use super::{meta, selector};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;
use mooncake_crds::{MooncakeMaster, names};

/// Name and number of each port of a master.
pub(super) fn ports(master: &MooncakeMaster) -> Vec<(&'static str, i32)> {
    let mut ports = vec![("rpc", master.spec.ports.rpc), ("metrics", master.spec.ports.metrics)];
    if master.spec.heartbeat.port != 0 {
        ports.push(("heartbeat", master.spec.heartbeat.port));
    }
    ports
}

/// Clients reach the active through it: the label says who it is, readiness decides on top.
pub(super) fn active(master: &MooncakeMaster) -> Service {
    let mut selector = selector(master);
    selector.insert(names::LABEL_ROLE.to_owned(), names::ROLE_LEADER.to_owned());
    service(master, master.name_any(), ServiceSpec { selector: Some(selector), ..Default::default() })
}

/// A stable name for each pod, ready or not.
pub(super) fn pods(master: &MooncakeMaster) -> Service {
    let spec = ServiceSpec {
        selector: Some(selector(master)),
        cluster_ip: Some("None".to_owned()),
        publish_not_ready_addresses: Some(true),
        ..Default::default()
    };
    service(master, names::pods_service(&master.name_any()), spec)
}

fn service(master: &MooncakeMaster, name: String, spec: ServiceSpec) -> Service {
    let ports = ports(master)
        .into_iter()
        .map(|(name, port)| ServicePort {
            name: Some(name.to_owned()),
            port,
            // By name: while a roll changes a number, each pod is reached at its own.
            target_port: Some(IntOrString::String(name.to_owned())),
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        })
        .collect();
    Service {
        metadata: meta(master, name),
        spec: Some(ServiceSpec { ports: Some(ports), type_: Some("ClusterIP".to_owned()), ..spec }),
        ..Default::default()
    }
}
