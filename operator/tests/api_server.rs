//! The operator against a real API server: admission, defaulting, RBAC, server-side apply and watches are the real ones.
//! One server for all scenarios, a namespace for each.

mod support;

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Service, events::v1::Event};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use mooncake_crds::{MooncakeMaster, names};
use mooncake_operator::{
    build::Kind,
    controller::{Context, pass},
    metrics::Metrics,
    observe::lease_resource,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use support::{
    master, masters, merge,
    server::{Server, Who, apply, create},
};

#[path = "api_server/contest.rs"]
mod contest;
#[path = "api_server/life.rs"]
mod life;
#[path = "api_server/manifests.rs"]
mod manifests;
#[path = "api_server/process.rs"]
mod process;

fn context(server: &Server) -> Context {
    context_of(server, Who::Operator)
}

fn context_of(server: &Server, who: Who) -> Context {
    let metrics = Metrics::new().expect("metrics");
    Context::new(server.client(who), "operator".to_owned(), metrics, Arc::new(|| true))
}

async fn get(admin: &Client, namespace: &str, name: &str) -> MooncakeMaster {
    masters(admin, namespace).get(name).await.expect("the resource")
}

fn reason(master: &MooncakeMaster, condition: &str) -> String {
    let status = master.status.clone().unwrap_or_default();
    let found = status.conditions.into_iter().find(|found| found.type_ == condition);
    found.map(|found| format!("{} {}", found.status, found.reason)).unwrap_or_default()
}

/// resourceVersion of everything that the operator makes, and of the resource itself.
async fn versions(admin: &Client, namespace: &str, name: &str) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut resources: Vec<_> = Kind::ALL.iter().map(|kind| kind.api_resource()).collect();
    resources.push(lease_resource());
    resources.push(kube::core::ApiResource::erase::<MooncakeMaster>(&()));
    for resource in resources {
        let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace, &resource);
        for object in api.list(&ListParams::default()).await.expect("a list") {
            if object.name_any().starts_with(name) {
                let key = format!("{} {}", resource.kind, object.name_any());
                versions.insert(key, object.resource_version().unwrap_or_default());
            }
        }
    }
    versions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_against_a_real_api_server() {
    let server = Server::start().await;
    bad_resources_are_refused_with_the_fields_path(&server).await;
    what_cannot_change_is_refused(&server).await;
    a_pass_creates_everything_and_the_next_writes_nothing(&server).await;
    fields_of_others_survive_and_ours_come_back(&server).await;
    foreign_objects_are_refused_and_not_touched(&server).await;
    a_deleted_lease_goes_on_with_the_epoch(&server).await;
    a_lease_that_a_master_created_is_adopted(&server).await;
    what_the_api_server_refuses_is_on_status(&server).await;
    contest::a_field_that_is_changed_back_is_corrected_ever_later(&server).await;
    manifests::an_operator_of_one_namespace_needs_nothing_outside(&server).await;
    manifests::the_address_of_the_runbooks_is_set_in_one_place(&server);
    manifests::calls_for_leases_have_a_priority_level_of_their_own(&server).await;
    process::two_processes_elect_one_and_hand_over(&server).await;
    life::a_pair_lives_through_changes_and_faults(&server).await;
}

async fn bad_resources_are_refused_with_the_fields_path(server: &Server) {
    server.namespace("bad").await;
    let admin = server.client(Who::Admin);
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../crds/tests/bad-resources.json")).expect("the table");
    for case in cases {
        let mut object = master("bad", "m", &json!({}));
        merge(&mut object, &case["patch"]);
        let path = case["path"].as_str().expect("a path");
        match create(&admin, &object).await {
            Err(kube::Error::Api(answer)) => {
                assert_eq!(answer.code, 422, "{object} {answer:?}");
                assert!(answer.message.contains(path), "{path} is not in: {}", answer.message);
                let causes: Vec<String> = answer
                    .details
                    .iter()
                    .flat_map(|d| d.causes.iter().map(|cause| cause.field.clone()))
                    .collect();
                assert!(causes.iter().any(|field| field.starts_with(path)), "{path} is not among {causes:?}");
            }
            other => panic!("{object} was not refused: {other:?}"),
        }
    }
    // The longest name, and the smallest spec: defaults are there, but none for the clients' times (B11).
    let name = "n".repeat(names::MAX_NAME_LENGTH);
    create(&admin, &master("bad", &name, &json!({ "client": {} }))).await.expect("a good resource");
    let good = get(&admin, "bad", &name).await;
    assert_eq!((good.spec.replicas, good.spec.ports.rpc, good.spec.ports.metrics), (2, 50051, 9003));
    assert_eq!(good.spec.client.expect("client").active_ttl, None);
}

async fn what_cannot_change_is_refused(server: &Server) {
    let admin = server.client(Who::Admin);
    create(&admin, &master("bad", "fixed", &json!({}))).await.expect("a good resource");
    for (port, path) in [("rpc", "spec.ports.rpc"), ("metrics", "spec.ports.metrics")] {
        let patch = json!({ "spec": { "ports": { port: 7000 } } });
        let result =
            masters(&admin, "bad").patch("fixed", &PatchParams::default(), &Patch::Merge(&patch)).await;
        let message = result.expect_err("refused").to_string();
        assert!(message.contains(path) && message.contains("cannot be changed"), "{message}");
    }
    // The phases of a roll-out, one step at a time, forwards and backwards; and what would skip one.
    let change = async |port: i32, keep_on_main: bool| {
        let patch = json!({ "spec": { "heartbeat": { "port": port, "keepOnMain": keep_on_main } } });
        masters(&admin, "bad").patch("fixed", &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    for (port, keep_on_main, good) in [
        (50052, false, false),
        (50052, true, true),
        (50053, true, true),
        (50054, false, false),
        (50053, false, true),
        (50054, false, false),
        (50054, true, false),
        (0, false, false),
        (50053, true, true),
        (0, true, true),
        (0, false, true),
        (50052, true, true),
    ] {
        match change(port, keep_on_main).await {
            Ok(_) => assert!(good, "{port} {keep_on_main}"),
            Err(error) => {
                let message = error.to_string();
                assert!(!good, "{port} {keep_on_main}: {message}");
                assert!(message.contains("spec.heartbeat.port can be changed only while"), "{message}");
            }
        }
    }
}

async fn a_pass_creates_everything_and_the_next_writes_nothing(server: &Server) {
    server.namespace("create").await;
    let (admin, context) = (server.client(Who::Admin), context(server));
    // Values that the API server rewrites must not look like a difference for ever.
    let spec = json!({
        "resources": { "requests": { "cpu": "0.5", "memory": "1024Mi" }, "limits": { "memory": "1.5Gi" } },
        "heartbeat": { "port": 50052 },
        "config": { "eviction_high_watermark_ratio": "0.9" },
        "tolerations": [{ "key": "x", "operator": "Exists" }],
        "podLabels": { "team": "kv" },
    });
    create(&admin, &master("create", "m", &spec)).await.expect("a good resource");
    let first = pass(&context, "create", "m").await;
    assert!(first.writes > 7, "{first:?}");
    // The StatefulSet controller's part.
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), "create");
    let status = json!({ "status": { "observedGeneration": 1, "replicas": 0 } });
    sets.patch_status("m", &PatchParams::default(), &Patch::Merge(&status)).await.expect("a StatefulSet");
    pass(&context, "create", "m").await;

    let before = versions(&admin, "create", "m").await;
    for kind in [
        "ServiceAccount m-master",
        "Role m-master",
        "RoleBinding m-master",
        "Service m",
        "Service m-pods",
        "StatefulSet m",
        "PodDisruptionBudget m",
        "Lease m",
        "MooncakeMaster m",
    ] {
        assert!(before.contains_key(kind), "{kind} is not in {before:?}");
    }
    for _ in 0..3 {
        assert_eq!(pass(&context, "create", "m").await.writes, 0);
    }
    assert_eq!(versions(&admin, "create", "m").await, before);
    let seen = get(&admin, "create", "m").await;
    assert_eq!(reason(&seen, "Available"), "False NoActive");
    let status = seen.status.clone().expect("a status");
    assert_eq!(status.conditions[0].message, "no master has claimed the Lease yet");
    assert_eq!(reason(&seen, "Progressing"), "True Creating");
    assert_eq!(reason(&seen, "Degraded"), "False AsExpected");
    assert_eq!(seen.status.expect("status").observed_generation, Some(1));
    let scale = masters(&admin, "create").get_scale("m").await.expect("a scale");
    let selector = scale.status.and_then(|status| status.selector).expect("a selector");
    assert_eq!(selector, "app.kubernetes.io/instance=m,app.kubernetes.io/name=mooncake-master");
}

async fn fields_of_others_survive_and_ours_come_back(server: &Server) {
    let (admin, context) = (server.client(Who::Admin), context(server));
    let services: Api<Service> = Api::namespaced(admin.clone(), "create");
    let theirs = json!({ "metadata": { "annotations": { "example.com/theirs": "1" } },
        "spec": { "sessionAffinity": "ClientIP", "ports": [{ "name": "rpc", "port": 50051, "targetPort": 1 }] } });
    services.patch("m", &PatchParams::default(), &Patch::Strategic(&theirs)).await.expect("a patch");
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), "create");
    let scaled = json!({ "spec": { "replicas": 7 } });
    sets.patch("m", &PatchParams::default(), &Patch::Merge(&scaled)).await.expect("a patch");

    assert_eq!(pass(&context, "create", "m").await.writes - 1, 2, "two objects, and the status");
    let service = services.get("m").await.expect("a Service");
    assert_eq!(service.annotations()["example.com/theirs"], "1");
    let spec = service.spec.expect("a spec");
    assert_eq!(spec.session_affinity.as_deref(), Some("ClientIP"));
    let rpc =
        spec.ports.expect("ports").into_iter().find(|port| port.name.as_deref() == Some("rpc")).expect("rpc");
    assert_eq!(serde_json::to_value(rpc.target_port).expect("JSON"), json!("rpc"));
    assert_eq!(sets.get("m").await.expect("a StatefulSet").spec.expect("a spec").replicas, Some(2));

    // What is no longer wanted goes, although nothing that is wanted differs.
    let patch = json!({ "spec": { "podLabels": null, "config": null, "heartbeat": null } });
    masters(&admin, "create")
        .patch("m", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("a patch");
    pass(&context, "create", "m").await;
    let template = sets.get("m").await.expect("a StatefulSet").spec.expect("a spec").template;
    assert!(!template.metadata.expect("metadata").labels.expect("labels").contains_key("team"));
    let ports = services.get("m").await.expect("a Service").spec.expect("a spec").ports.expect("ports");
    assert_eq!(ports.len(), 2, "the heartbeat port is gone: {ports:?}");
    let settle = json!({ "status": { "observedGeneration": 99, "replicas": 0 } });
    sets.patch_status("m", &PatchParams::default(), &Patch::Merge(&settle)).await.expect("a status");
    pass(&context, "create", "m").await;
    assert_eq!(pass(&context, "create", "m").await.writes, 0);
}

async fn foreign_objects_are_refused_and_not_touched(server: &Server) {
    server.namespace("foreign").await;
    let (admin, context) = (server.client(Who::Admin), context(server));
    let theirs = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "m", "namespace": "foreign" },
        "spec": { "ports": [{ "port": 80 }], "selector": { "app": "theirs" } } });
    apply(&admin, &theirs).await;
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "other", "namespace": "foreign" }, "spec": { "holderIdentity": "somebody" } });
    apply(&admin, &lease).await;
    let before = versions(&admin, "foreign", "").await;
    for name in ["m", "other"] {
        create(&admin, &master("foreign", name, &json!({}))).await.expect("a good resource");
        for _ in 0..2 {
            pass(&context, "foreign", name).await;
        }
        let seen = get(&admin, "foreign", name).await;
        assert_eq!(reason(&seen, "Degraded"), "True ForeignObject");
        assert_eq!(reason(&seen, "Progressing"), "False Stopped");
        assert_eq!(pass(&context, "foreign", name).await.writes, 0, "said once");
    }
    let mut after = versions(&admin, "foreign", "").await;
    after.retain(|key, _| !key.starts_with("MooncakeMaster"));
    assert_eq!(before, after, "nothing was touched and nothing was made beside it");
    let events: Api<Event> = Api::namespaced(admin.clone(), "foreign");
    let said = events.list(&ListParams::default()).await.expect("Events");
    assert!(said.iter().any(|event| event.reason.as_deref() == Some("ForeignObject")), "{said:?}");

    Api::<Service>::namespaced(admin.clone(), "foreign")
        .delete("m", &DeleteParams::default())
        .await
        .expect("a delete");
    pass(&context, "foreign", "m").await;
    pass(&context, "foreign", "m").await;
    assert_eq!(reason(&get(&admin, "foreign", "m").await, "Degraded"), "False AsExpected");
    assert!(versions(&admin, "foreign", "m").await.contains_key("StatefulSet m"));
}

/// Design, leadership 2: created only when missing, with the epoch from status; its spec is never written otherwise.
async fn a_deleted_lease_goes_on_with_the_epoch(server: &Server) {
    server.namespace("lease").await;
    let (admin, context) = (server.client(Who::Admin), context(server));
    create(&admin, &master("lease", "m", &json!({}))).await.expect("a good resource");
    pass(&context, "lease", "m").await;
    let leases: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "lease", &lease_resource());
    let held = json!({ "metadata": { "annotations": { "mooncake.io/pod-name": "m-0", "mooncake.io/pod-uid": "u",
            "mooncake.io/incarnation": "i" } },
        "spec": { "holderIdentity": "10.0.0.1:50051", "leaseTransitions": 7, "leaseDurationSeconds": 9,
            "renewTime": "2026-01-01T00:00:00.000000Z" } });
    leases.patch("m", &PatchParams::default(), &Patch::Merge(&held)).await.expect("a Lease");
    let version = leases.get("m").await.expect("a Lease").resource_version();
    pass(&context, "lease", "m").await;
    assert_eq!(leases.get("m").await.expect("a Lease").resource_version(), version);
    let seen = get(&admin, "lease", "m").await.status.expect("a status");
    assert_eq!((seen.epoch, seen.lease_duration_seconds), (Some(7), Some(9)));

    leases.delete("m", &DeleteParams::default()).await.expect("a delete");
    pass(&context, "lease", "m").await;
    let lease = leases.get("m").await.expect("a Lease");
    assert_eq!(lease.data["spec"], json!({ "leaseTransitions": 7, "leaseDurationSeconds": 9 }));
    assert_eq!(lease.owner_references()[0].name, "m");
    pass(&context, "lease", "m").await;
    assert_eq!(get(&admin, "lease", "m").await.status.expect("a status").epoch, Some(7));
}

async fn a_lease_that_a_master_created_is_adopted(server: &Server) {
    let (admin, context) = (server.client(Who::Admin), context(server));
    let leases: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "lease", &lease_resource());
    leases.delete("m", &DeleteParams::default()).await.expect("a delete");
    let spec =
        json!({ "holderIdentity": "10.0.0.1:50051", "leaseTransitions": 8, "leaseDurationSeconds": 5 });
    let mut lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "m", "namespace": "lease", "annotations": { "mooncake.io/pod-name": "m-0",
            "mooncake.io/pod-uid": "u", "mooncake.io/incarnation": "i" } }, "spec": spec });
    create(&admin, &lease).await.expect("a Lease");
    pass(&context, "lease", "m").await;
    let found = leases.get("m").await.expect("a Lease");
    assert_eq!(found.data["spec"], spec, "its spec is the masters'");
    assert_eq!(found.annotations()["mooncake.io/incarnation"], "i");
    assert_eq!(found.owner_references()[0].name, "m");
    assert_eq!(reason(&get(&admin, "lease", "m").await, "Degraded"), "False AsExpected");
    pass(&context, "lease", "m").await;
    assert_eq!(pass(&context, "lease", "m").await.writes, 0);
    // One of another set is not.
    leases.delete("m", &DeleteParams::default()).await.expect("a delete");
    lease["metadata"]["annotations"]["mooncake.io/pod-name"] = json!("other-0");
    create(&admin, &lease).await.expect("a Lease");
    pass(&context, "lease", "m").await;
    assert_eq!(reason(&get(&admin, "lease", "m").await, "Degraded"), "True ForeignObject");
}

async fn what_the_api_server_refuses_is_on_status(server: &Server) {
    server.namespace("quota").await;
    let (admin, context) = (server.client(Who::Admin), context(server));
    // A field that the definition passes through, and that the StatefulSet's own validation refuses.
    let spec = json!({ "tolerations": [{ "key": "x", "operator": "Nonsense" }] });
    create(&admin, &master("quota", "m", &spec)).await.expect("a resource");
    for _ in 0..3 {
        pass(&context, "quota", "m").await;
    }
    let seen = get(&admin, "quota", "m").await;
    assert_eq!(reason(&seen, "Degraded"), "True ApplyFailed");
    let message = seen.status.expect("a status").conditions[2].message.clone();
    assert!(message.contains("Nonsense"), "{message}");
    let version = get(&admin, "quota", "m").await.resource_version();
    pass(&context, "quota", "m").await;
    assert_eq!(get(&admin, "quota", "m").await.resource_version(), version, "a steady error is written once");
    let patch = json!({ "spec": { "tolerations": null } });
    masters(&admin, "quota")
        .patch("m", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("a patch");
    pass(&context, "quota", "m").await;
    assert_eq!(reason(&get(&admin, "quota", "m").await, "Degraded"), "False AsExpected");
}
