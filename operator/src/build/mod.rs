//! From the spec to objects: pure, without a client.

mod access;
mod budget;
mod flags;
mod services;
mod workload;

pub(crate) use workload::CONTAINER;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt, core::ApiResource};
use mooncake_crds::{MooncakeMaster, names};
use mooncake_lease::record::{INCARNATION, RELEASED};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt::Write};

pub use flags::flags;

/// Annotation on each object: hash of what was applied. A field that is no longer wanted shows in it alone.
pub const APPLIED: &str = "mooncake.io/applied";

/// The kinds of objects that follow from a `MooncakeMaster`, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    ServiceAccount,
    Role,
    RoleBinding,
    Service,
    PodsService,
    StatefulSet,
    PodDisruptionBudget,
}

impl Kind {
    /// All, in the order in which they are applied: what a pod needs comes before the pods.
    pub const ALL: [Kind; 7] = [
        Kind::ServiceAccount,
        Kind::Role,
        Kind::RoleBinding,
        Kind::Service,
        Kind::PodsService,
        Kind::StatefulSet,
        Kind::PodDisruptionBudget,
    ];

    /// Where the API server keeps it.
    pub fn api_resource(self) -> ApiResource {
        use k8s_openapi::api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy, rbac::v1 as rbac};
        match self {
            Kind::ServiceAccount => ApiResource::erase::<core::ServiceAccount>(&()),
            Kind::Role => ApiResource::erase::<rbac::Role>(&()),
            Kind::RoleBinding => ApiResource::erase::<rbac::RoleBinding>(&()),
            Kind::Service | Kind::PodsService => ApiResource::erase::<core::Service>(&()),
            Kind::StatefulSet => ApiResource::erase::<apps::StatefulSet>(&()),
            Kind::PodDisruptionBudget => ApiResource::erase::<policy::PodDisruptionBudget>(&()),
        }
    }
}

/// An object as it is wanted: only the fields that the operator decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its content, ready for a server-side apply.
    pub content: Value,
}

impl Object {
    /// Hash of what is applied, as it stands in the annotation.
    pub fn hash(&self) -> &str {
        self.content["metadata"]["annotations"][APPLIED].as_str().unwrap_or_default()
    }
}

/// Everything that follows from a `MooncakeMaster`, but for the Lease, which is created and never applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// In the order of [`Kind::ALL`].
    pub objects: Vec<Object>,
    /// Kind and name of what must not be there.
    pub unwanted: Vec<(Kind, String)>,
    /// Hash of the pod template.
    pub template_hash: String,
}

/// What follows from the spec. `moves_ahead_of_drains`: the operator may read nodes. Without that, and without a
/// standby, a budget would make every drain hang.
pub fn build(master: &MooncakeMaster, moves_ahead_of_drains: bool) -> Desired {
    let (stateful_set, template_hash) = workload::stateful_set(master);
    let mut objects = vec![
        object(Kind::ServiceAccount, &access::service_account(master)),
        object(Kind::Role, &access::role(master)),
        object(Kind::RoleBinding, &access::role_binding(master)),
        object(Kind::Service, &services::active(master)),
        object(Kind::PodsService, &services::pods(master)),
        object(Kind::StatefulSet, &stateful_set),
    ];
    let budget = object(Kind::PodDisruptionBudget, &budget::pod_disruption_budget(master));
    let mut unwanted = Vec::new();
    if moves_ahead_of_drains && master.spec.replicas > 1 {
        objects.push(budget);
    } else {
        unwanted.push((budget.kind, budget.name));
    }
    Desired { objects, unwanted, template_hash }
}

/// The incarnation that a Lease names which no master has held yet.
const NOBODY: &str = "nobody";

/// The Lease as it is created: nobody holds it, and the epoch goes on from the highest one seen. `released`: it bears
/// the mark of a holder that gave it back, so that nobody has to be waited for.
pub fn lease(master: &MooncakeMaster, epoch: i64, duration_seconds: i32, released: bool) -> Value {
    let mut metadata = meta(master, master.name_any());
    if released {
        let mark = |name: &str| (name.to_owned(), NOBODY.to_owned());
        metadata.annotations = Some(BTreeMap::from([mark(INCARNATION), mark(RELEASED)]));
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": { "leaseTransitions": epoch, "leaseDurationSeconds": duration_seconds },
    })
}

/// Metadata by which a Lease that a master had to create becomes the resource's own. Its spec stays the masters'.
/// It is for that very state of that very Lease: the write fails if there is another by now, or none.
pub fn lease_adoption(master: &MooncakeMaster, uid: &str, resource_version: &str) -> Value {
    let mut metadata = meta(master, master.name_any());
    metadata.uid = Some(uid.to_owned());
    metadata.resource_version = Some(resource_version.to_owned());
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
    })
}

/// Labels that select the pods.
pub fn selector(master: &MooncakeMaster) -> BTreeMap<String, String> {
    BTreeMap::from([
        (names::LABEL_APP.to_owned(), names::APP_NAME.to_owned()),
        (names::LABEL_INSTANCE.to_owned(), master.name_any()),
    ])
}

fn labels(master: &MooncakeMaster) -> BTreeMap<String, String> {
    let mut labels = selector(master);
    labels.insert(names::LABEL_MANAGED_BY.to_owned(), names::FIELD_MANAGER.to_owned());
    labels
}

fn meta(master: &MooncakeMaster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: master.namespace(),
        labels: Some(labels(master)),
        owner_references: owner(master).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The reference by which the garbage collector deletes what was made for a resource.
fn owner(master: &MooncakeMaster) -> Option<OwnerReference> {
    let mut owner = master.controller_owner_ref(&())?;
    // Nothing here blocks the deletion of the resource.
    owner.block_owner_deletion = None;
    Some(owner)
}

fn object<T: Serialize + Resource>(kind: Kind, typed: &T) -> Object {
    // Values of these types are plain data with string keys: serialization has no case that fails.
    let mut content = serde_json::to_value(typed).unwrap_or_default();
    let hash = hash(&content);
    content["metadata"]["annotations"][APPLIED] = Value::from(hash);
    Object { kind, name: typed.meta().name.clone().unwrap_or_default(), content }
}

/// Ten hexadecimal digits of the SHA-256 of the JSON text, whose keys are sorted.
fn hash(content: &Value) -> String {
    let digest = Sha256::digest(content.to_string().as_bytes());
    digest.iter().take(5).fold(String::with_capacity(10), |mut text, byte| {
        // Writing to a String has no case that fails.
        _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
