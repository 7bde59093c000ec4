//! The PodDisruptionBudget: an eviction waits until the role has moved.

use super::{meta, selector};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt;
use mooncake_crds::MooncakeMaster;

/// One Ready pod must stay, and that is the active: its eviction waits until the role has moved away. Standbys are not
/// Ready by design, so they are evicted whatever the budget says. It selects by instance: by role there would be a
/// moment in every move in which it protects nobody.
pub(super) fn pod_disruption_budget(master: &MooncakeMaster) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: meta(master, master.name_any()),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector { match_labels: Some(selector(master)), ..Default::default() }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}
