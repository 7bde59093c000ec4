//! What the master processes may do: keep their Lease, and label the pods of their own set.

use super::meta;
use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::ResourceExt;
use mooncake_crds::{MooncakeMaster, names};

pub(super) fn service_account(master: &MooncakeMaster) -> ServiceAccount {
    ServiceAccount { metadata: meta(master, names::master_account(&master.name_any())), ..Default::default() }
}

pub(super) fn role(master: &MooncakeMaster) -> Role {
    let name = master.name_any();
    // All ordinals that may ever exist, not the present ones: a new holder clears the label of every other pod, those
    // included that a scale-out has just added.
    let pods = (0..names::MAX_REPLICAS).map(|ordinal| names::pod(&name, ordinal)).collect();
    let rule = |group: &str, resource: &str, verbs: &[&str], names: Option<Vec<String>>| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        resource_names: names,
        ..Default::default()
    };
    Role {
        metadata: meta(master, names::master_account(&name)),
        rules: Some(vec![
            rule(
                "coordination.k8s.io",
                "leases",
                &["get", "list", "watch", "update"],
                Some(vec![name.clone()]),
            ),
            // A holder re-creates a Lease that was deleted under it. The name of an object that does not exist yet
            // cannot be part of a permission.
            rule("coordination.k8s.io", "leases", &["create"], None),
            rule("", "pods", &["get", "patch"], Some(pods)),
        ]),
    }
}

pub(super) fn role_binding(master: &MooncakeMaster) -> RoleBinding {
    let account = names::master_account(&master.name_any());
    RoleBinding {
        metadata: meta(master, account.clone()),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: account.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account,
            namespace: master.namespace(),
            ..Default::default()
        }]),
    }
}
