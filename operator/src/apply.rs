//! Carrying out actions.

use crate::{
    build::{self, Desired},
    decide::{Action, LeaseState, ObjectState, Observed, PodRef, Presence},
    observe::{in_time, lease_resource},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use mooncake_crds::{MooncakeMaster, names};
use mooncake_lease::record::DESIGNATED;
use serde_json::{Value, json};

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, or was done already.
    Done,
    /// The object has changed since it was observed: decide anew.
    Stale,
}

/// Carries out one action.
pub async fn apply(
    client: &Client,
    master: &MooncakeMaster,
    desired: &Desired,
    seen: &Observed,
    action: &Action,
) -> Result<Outcome, kube::Error> {
    match in_time(write(client, master, desired, seen, action)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Stale),
        other => other,
    }
}

async fn write(
    client: &Client,
    master: &MooncakeMaster,
    desired: &Desired,
    seen: &Observed,
    action: &Action,
) -> Result<Outcome, kube::Error> {
    let namespace = master.namespace().unwrap_or_default();
    match action {
        Action::Apply(kind) => {
            let Some(object) = desired.objects.iter().find(|object| object.kind == *kind) else {
                return Ok(Outcome::Stale);
            };
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &namespace, &kind.api_resource());
            // Fields of ours that somebody changed are taken back. An object that was not there a moment ago is not
            // ours if it is there now: a conflict then ends the pass, and the next one sees whose it is.
            let is_drifted =
                |state: &ObjectState| state.kind == *kind && matches!(state.presence, Presence::Drifted(_));
            let force = seen.objects.iter().any(is_drifted);
            let params = PatchParams { force, ..PatchParams::apply(names::FIELD_MANAGER) };
            api.patch(&object.name, &params, &Patch::Apply(&object.content)).await.map(drop)
        }
        Action::CreateLease { epoch, released } => {
            let lease = build::lease(master, *epoch, lease_duration_seconds(master), *released);
            create(client, &namespace, &lease).await
        }
        Action::AdoptLease => {
            let LeaseState::Present(lease) = &seen.lease else { return Ok(Outcome::Stale) };
            let adoption = build::lease_adoption(master, &lease.uid, &lease.resource_version);
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &lease_resource());
            let params = PatchParams::apply(names::FIELD_MANAGER).force();
            api.patch(&master.name_any(), &params, &Patch::Apply(adoption)).await.map(drop)
        }
        Action::ClearLabel(pod) => label(client, &namespace, pod, &Value::Null).await,
        Action::SetLabel(pod) => label(client, &namespace, pod, &json!(names::ROLE_LEADER)).await,
        Action::DeletePod { pod, .. } => {
            delete_pod(client, &namespace, &pod.name, &pod.uid, Some(&pod.resource_version)).await
        }
        Action::Fence { pod, uid } => delete_pod(client, &namespace, pod, uid, None).await,
        Action::Designate { uid, resource_version, successor } => {
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &lease_resource());
            let patch = json!({ "metadata": {
                "uid": uid,
                "resourceVersion": resource_version,
                "annotations": { DESIGNATED: successor },
            }});
            api.patch(&master.name_any(), &manager(), &Patch::Merge(&patch)).await.map(drop)
        }
        Action::Remove { kind, uid } => {
            let Some((_, name)) = desired.unwanted.iter().find(|(unwanted, _)| unwanted == kind) else {
                return Ok(Outcome::Stale);
            };
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &namespace, &kind.api_resource());
            gone(api.delete(name, &only(uid, None)).await.map(drop))
        }
    }
    .map(|()| Outcome::Done)
}

/// The uid makes it that very pod, the resource version that very state of it.
async fn delete_pod(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    version: Option<&str>,
) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    gone(api.delete(name, &only(uid, version)).await.map(drop))
}

fn only(uid: &str, resource_version: Option<&str>) -> DeleteParams {
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: resource_version.map(str::to_owned) };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// What is not there any more needs nothing done to it.
fn gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

fn manager() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Whole seconds for a Lease that does not exist: the longest that a holder may have worked with.
fn lease_duration_seconds(master: &MooncakeMaster) -> i32 {
    let wanted = master.spec.failover.lease_duration.parse().unwrap_or_default();
    let wanted = wanted.as_secs() + u64::from(wanted.subsec_nanos() > 0);
    let seen = master.status.as_ref().and_then(|status| status.lease_duration_seconds).unwrap_or(1);
    i32::try_from(wanted).unwrap_or(i32::MAX).max(seen)
}

async fn create(client: &Client, namespace: &str, lease: &Value) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &lease_resource());
    let lease: DynamicObject = serde_json::from_value(lease.clone()).map_err(kube::Error::SerdeError)?;
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    api.create(&params, &lease).await.map(drop)
}

async fn label(client: &Client, namespace: &str, pod: &PodRef, value: &Value) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = json!({ "metadata": {
        "uid": pod.uid,
        "resourceVersion": pod.resource_version,
        "labels": { names::LABEL_ROLE: value },
    }});
    gone(api.patch(&pod.name, &manager(), &Patch::Merge(&patch)).await.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Why;
    use kube::client::Body;
    use std::{convert::Infallible, future::pending, time::Duration};
    use tokio::time::Instant;

    /// A connection that says nothing must not hold up a resource for ever.
    #[tokio::test(start_paused = true)]
    async fn every_write_has_a_deadline() {
        let silent =
            tower::service_fn(|_: http::Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
        let client = Client::new(silent, "ns");
        let master: MooncakeMaster = serde_json::from_value(json!({ "apiVersion": "store.mooncake.io/v1alpha1",
            "kind": "MooncakeMaster", "metadata": { "name": "m", "namespace": "ns" }, "spec": { "image": "i:1" } }))
        .expect("a resource");
        let desired = build::build(&master, false);
        let kind = build::Kind::PodDisruptionBudget;
        let text = str::to_owned;
        let pod = PodRef { name: text("m-0"), uid: text("u"), resource_version: text("1") };
        let seen = crate::decide::tests::with(|_| ());
        for action in [
            Action::Apply(build::Kind::Service),
            Action::CreateLease { epoch: 1, released: false },
            Action::AdoptLease,
            Action::ClearLabel(pod.clone()),
            Action::SetLabel(pod.clone()),
            Action::DeletePod { pod, why: Why::Heal },
            Action::Fence { pod: text("m-0"), uid: text("u") },
            Action::Designate { uid: text("lease"), resource_version: text("1"), successor: None },
            Action::Remove { kind, uid: text("u") },
        ] {
            let start = Instant::now();
            let error = apply(&client, &master, &desired, &seen, &action).await.expect_err("no answer");
            assert!(error.to_string().contains("no answer within 10 s"), "{action:?}: {error}");
            assert_eq!(start.elapsed(), Duration::from_secs(10), "{action:?}");
        }
        let start = Instant::now();
        let report = mooncake_crds::MooncakeMasterStatus { epoch: Some(1), ..Default::default() };
        crate::status::write(&client, &master, &report).await.expect_err("no answer");
        assert_eq!(start.elapsed(), Duration::from_secs(10), "the status");
    }
}
