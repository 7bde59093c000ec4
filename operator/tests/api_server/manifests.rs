//! What the manifests grant and ask for: an operator of one namespace, a priority level for Leases, and where the alerts
//! point to.

use super::{context_of, versions};
use crate::support::{
    eventually, master,
    server::{Server, Who, apply, create},
};
use k8s_openapi::api::{apps::v1::StatefulSet, flowcontrol::v1::FlowSchema};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    client::Body,
};
use mooncake_operator::controller::pass;
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};

/// Resources outside of every namespace, which a Role cannot grant.
const CLUSTER_RESOURCES: &[&str] = &["nodes"];

fn rules(documents: &[Value], kind: &str) -> Vec<Value> {
    let role = documents.iter().find(|document| document["kind"] == kind).expect(kind);
    role["rules"].as_array().expect("rules").clone()
}

pub(crate) async fn an_operator_of_one_namespace_needs_nothing_outside(server: &Server) {
    let namespace = "mooncake";
    server.namespace(namespace).await;
    let admin = server.client(Who::Admin);
    let overlay = server.kustomize("namespaced");
    for object in &overlay {
        assert_eq!(object["metadata"]["namespace"], namespace, "outside of the namespace: {object}");
        apply(&admin, object).await;
    }
    let mut cluster_wide = rules(&server.kustomize("base"), "ClusterRole");
    cluster_wide.retain(|rule| !CLUSTER_RESOURCES.iter().any(|resource| rule["resources"][0] == *resource));
    assert_eq!(rules(&overlay, "Role"), cluster_wide, "the same rights in both manifests");

    let context = context_of(server, Who::NamespacedOperator);
    create(&admin, &master(namespace, "m", &json!({}))).await.expect("a good resource");
    let first = pass(&context, namespace, "m").await;
    assert!(first.writes > 7, "{first:?}");
    // The StatefulSet controller's part.
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), namespace);
    let status = json!({ "status": { "observedGeneration": 1, "replicas": 0 } });
    sets.patch_status("m", &PatchParams::default(), &Patch::Merge(&status)).await.expect("a StatefulSet");
    pass(&context, namespace, "m").await;
    assert_eq!(pass(&context, namespace, "m").await.writes, 0);

    server.namespace("outside").await;
    create(&admin, &master("outside", "m", &json!({}))).await.expect("a good resource");
    let before = versions(&admin, "outside", "").await;
    pass(&context, "outside", "m").await;
    assert_eq!(versions(&admin, "outside", "").await, before, "without rights nothing is written");
}

/// The renewal of a Lease has a deadline of a second; a queue for everybody may be longer.
pub(crate) async fn calls_for_leases_have_a_priority_level_of_their_own(server: &Server) {
    let schemas: Api<FlowSchema> = Api::all(server.client(Who::Admin));
    let uid = schemas.get("mooncake-leases").await.expect("the FlowSchema").uid().expect("a uid");
    let as_master = server.client(Who::Master);
    let schema_of = async |path: &str| {
        let request = http::Request::get(path).body(Body::empty()).expect("a request");
        let response = as_master.send(request).await.expect("an answer");
        let header = response.headers().get("x-kubernetes-pf-flowschema-uid").expect("the header");
        header.to_str().expect("text").to_owned()
    };
    eventually("the API server uses the FlowSchema", Duration::from_secs(20), async || {
        let found = schema_of("/apis/coordination.k8s.io/v1/namespaces/flow/leases/m").await;
        if found == uid { Ok(()) } else { Err(found) }
    })
    .await;
    assert_ne!(schema_of("/api/v1/namespaces/flow/pods").await, uid, "only Leases");
}

pub(crate) fn the_address_of_the_runbooks_is_set_in_one_place(server: &Server) {
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/alerts");
    let copy = tempfile::tempdir().expect("a directory");
    for file in fs::read_dir(alerts).expect("the alerts").map(|file| file.expect("a file").path()) {
        if file.extension().is_some_and(|extension| extension == "yaml") {
            fs::copy(&file, copy.path().join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    let place = copy.path().join("runbooks.yaml");
    let text = fs::read_to_string(&place).expect("the place");
    fs::write(&place, text.replace("runbooks.example.com", "git.example.org/pool/docs")).expect("a change");
    let objects = server.kustomize(copy.path().to_str().expect("a path"));
    assert!(objects.iter().all(|object| object["kind"] != "ConfigMap"), "{objects:?}");
    let rules = objects.iter().find(|object| object["kind"] == "PrometheusRule").expect("the rules");
    let groups = rules["spec"]["groups"].as_array().expect("groups");
    let mut urls = 0;
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")) {
        let name = rule["alert"].as_str().expect("an alert");
        let expected = format!("https://git.example.org/pool/docs/{name}.md");
        assert_eq!(rule["annotations"]["runbook_url"], expected);
        urls += 1;
    }
    assert!(urls > 10, "{urls} alerts");
}
