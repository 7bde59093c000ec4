//! Somebody who changes an object back whenever the operator has corrected it.

use super::{context, get, reason};
use crate::support::{
    eventually, master, masters,
    server::{Server, Who, create},
};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Service, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use mooncake_operator::controller::{Context, pass};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

const NS: &str = "contest";
const LIMIT: Duration = Duration::from_secs(20);

/// Takes the ports of the Service away, as `kubectl edit` would.
async fn meddle(services: &Api<Service>) {
    let theirs = json!({ "spec": { "ports": [{ "name": "rpc", "port": 50051, "targetPort": 1 }] } });
    let params = PatchParams { field_manager: Some("meddler".to_owned()), ..PatchParams::default() };
    services.patch("m", &params, &Patch::Strategic(&theirs)).await.expect("a patch");
}

async fn is_ours(services: &Api<Service>) -> bool {
    let spec = services.get("m").await.expect("a Service").spec.expect("a spec");
    let ports = spec.ports.expect("ports");
    let rpc = ports.iter().find(|port| port.name.as_deref() == Some("rpc")).expect("rpc");
    serde_json::to_value(&rpc.target_port).expect("JSON") == json!("rpc")
}

/// Applies of objects, and the objects that are fought for.
fn counted(context: &Context) -> (u64, String) {
    let text = context.metrics.render().expect("metrics");
    let value = |series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series} is not in {text}")).trim().to_owned()
    };
    let applies = value("mooncake_operator_writes_total{write=\"apply\"}").parse().expect("a number");
    let contested =
        value(&format!("mooncake_operator_master_contested_objects{{name=\"m\",namespace=\"{NS}\"}}"));
    (applies, contested)
}

pub(crate) async fn a_field_that_is_changed_back_is_corrected_ever_later(server: &Server) {
    server.namespace(NS).await;
    let (admin, context) = (server.client(Who::Admin), context(server));
    create(&admin, &master(NS, "m", &json!({}))).await.expect("a good resource");
    pass(&context, NS, "m").await;
    let services: Api<Service> = Api::namespaced(admin.clone(), NS);
    // The StatefulSet controller's part.
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), NS);
    let settle = json!({ "status": { "observedGeneration": 1, "replicas": 0 } });
    sets.patch_status("m", &PatchParams::default(), &Patch::Merge(&settle)).await.expect("a status");
    pass(&context, NS, "m").await;
    let (before, contested) = counted(&context);
    assert_eq!(contested, "0");

    // Who does it now and then is corrected at once, and nothing is said.
    let mut corrected = Instant::now();
    for _ in 0..3 {
        corrected = Instant::now();
        meddle(&services).await;
        pass(&context, NS, "m").await;
        assert!(is_ours(&services).await);
        assert_eq!(reason(&get(&admin, NS, "m").await, "Degraded"), "False AsExpected");
    }
    // Each further correction waits longer, however often it is looked at.
    let mut held_back = 0;
    for between in [2, 4].map(Duration::from_secs) {
        meddle(&services).await;
        eventually("it is corrected all the same", LIMIT, async || {
            let began = Instant::now();
            let again = pass(&context, NS, "m").await.again.expect("another pass");
            let seen = get(&admin, NS, "m").await;
            assert_eq!(reason(&seen, "Degraded"), "True ObjectContested");
            if is_ours(&services).await {
                let waited = corrected.elapsed();
                assert!(waited >= between, "after {waited:?}");
                corrected = began;
                return Ok(());
            }
            held_back += 1;
            assert!(again <= between.mul_f64(1.1), "in time for the correction: {again:?}");
            assert_eq!(reason(&seen, "Progressing"), "False Stopped");
            Err("held back".to_owned())
        })
        .await;
    }
    assert!(held_back > 0);
    assert_eq!(counted(&context), (before + 5, "1".to_owned()), "and still said");
    let message = get(&admin, NS, "m").await.status.expect("a status").conditions[2].message.clone();
    assert!(message.contains("Service m (spec.ports by meddler)"), "{message}");

    // Later still; but another wish is another matter, and is carried out at once.
    meddle(&services).await;
    pass(&context, NS, "m").await;
    assert!(!is_ours(&services).await);
    let patch = json!({ "spec": { "heartbeat": { "port": 50052 } } });
    masters(&admin, NS).patch("m", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a patch");
    pass(&context, NS, "m").await;
    assert!(is_ours(&services).await);
    pass(&context, NS, "m").await;
    assert_eq!(counted(&context).1, "0");
    assert_eq!(reason(&get(&admin, NS, "m").await, "Degraded"), "False AsExpected");

    let events: Api<Event> = Api::namespaced(admin.clone(), NS);
    let said = events.list(&ListParams::default()).await.expect("Events");
    let of_this = |event: &&Event| event.reason.as_deref() == Some("ObjectContested");
    let notes: Vec<_> =
        said.iter().filter(of_this).map(|event| (&event.note, event.series.is_some())).collect();
    assert_eq!(notes, [(&Some(message), false)], "said once");
}
