//! One resource from its creation through rolls, a bad image, a crash and wrong labels, with the watches running.

use super::{get, reason};
use crate::support::{
    eventually, master, masters,
    oracle::Oracle,
    server::{Server, Who, create},
    world::World,
};
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mooncake_crds::{MooncakeMaster, names};
use mooncake_operator::{controller, server::Ready};
use serde_json::{Value, json};
use std::{net::Ipv4Addr, time::Duration};
use tokio_util::sync::CancellationToken;

const NS: &str = "life";
const LIMIT: Duration = Duration::from_secs(20);

struct Life {
    admin: Client,
    world: World,
}

impl Life {
    async fn change(&self, spec: Value) {
        let patch = json!({ "spec": spec });
        masters(&self.admin, NS)
            .patch("m", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("a patch");
    }

    /// Waits until the present generation is reported on with these reasons.
    async fn reports(&self, available: &str, progressing: &str, degraded: &str) -> MooncakeMaster {
        let wanted = [("Available", available), ("Progressing", progressing), ("Degraded", degraded)];
        eventually(&format!("{wanted:?}"), LIMIT, async || {
            let seen = get(&self.admin, NS, "m").await;
            let status = seen.status.clone().unwrap_or_default();
            let current = status.observed_generation == seen.metadata.generation;
            let as_wanted = wanted.iter().all(|(condition, wanted)| reason(&seen, condition) == *wanted);
            if current && as_wanted { Ok(seen) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    async fn settled(&self) -> MooncakeMaster {
        self.reports("True ActiveServing", "False UpToDate", "False AsExpected").await
    }

    async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), NS);
        api.list(&ListParams::default()).await.expect("pods").items
    }

    async fn label(&self, pod: &str, value: Value) {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), NS);
        let patch = json!({ "metadata": { "labels": { names::LABEL_ROLE: value } } });
        api.patch(pod, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a patch");
    }

    async fn labelled(&self) -> Vec<String> {
        let pods = self.pods().await;
        pods.iter()
            .filter(|pod| pod.labels().contains_key(names::LABEL_ROLE))
            .map(ResourceExt::name_any)
            .collect()
    }
}

fn active(seen: &MooncakeMaster) -> String {
    seen.status.clone().unwrap_or_default().active.map(|active| active.pod).unwrap_or_default()
}

fn standby(seen: &MooncakeMaster) -> String {
    if active(seen) == "m-0" { "m-1".to_owned() } else { "m-0".to_owned() }
}

fn epoch(seen: &MooncakeMaster) -> i64 {
    seen.status.clone().unwrap_or_default().epoch.unwrap_or_default()
}

pub(crate) async fn a_pair_lives_through_changes_and_faults(server: &Server) {
    server.namespace(NS).await;
    let admin = server.client(Who::Admin);
    let context = super::context(server);
    let (stop, ready) = (CancellationToken::new(), Ready::default());
    let operator = tokio::spawn(controller::run(context.clone(), Some(NS), ready, stop.clone()));

    let port = {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let world = World::start(&admin, NS, "m", port, 0);
    let life = Life { admin: admin.clone(), world };
    let oracle = Oracle::start(&admin, NS);
    let spec = json!({ "ports": { "metrics": port },
        "failover": { "leaseDuration": "1s", "renewDeadline": "500ms", "retryPeriod": "200ms" } });
    create(&admin, &master(NS, "m", &spec)).await.expect("a good resource");

    let first = life.settled().await;
    assert_eq!(epoch(&first), 1);
    let roles: Vec<String> =
        first.status.as_ref().expect("status").members.iter().map(|m| m.role.clone()).collect();
    assert!(roles.contains(&"Active".to_owned()) && roles.contains(&"Standby".to_owned()), "{roles:?}");

    nothing_is_written_while_the_lease_is_renewed(&life, &context).await;
    let rolled = a_roll_takes_the_active_last(&life, &oracle, &first).await;
    a_bad_image_stops_at_the_standby_and_a_revert_heals(&life, &rolled).await;
    a_crashed_active_is_replaced(&life, &rolled).await;
    a_deleted_active_is_replaced(&life).await;
    oracle.verdict();
    drop(oracle);
    wrong_labels_are_corrected(&life).await;
    let events: Api<Event> = Api::namespaced(admin.clone(), NS);
    let said: Vec<String> = events
        .list(&ListParams::default())
        .await
        .expect("Events")
        .iter()
        .filter_map(|e| e.reason.clone())
        .collect();
    for expected in ["ActiveChanged", "RollingOut", "PodReplaced", "StandbyFailed", "LeaderLabelCorrected"] {
        assert!(said.iter().any(|reason| reason == expected), "{expected} is not among {said:?}");
    }

    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), operator)
        .await
        .expect("it ends when told to")
        .expect("no panic");
}

async fn nothing_is_written_while_the_lease_is_renewed(life: &Life, context: &controller::Context) {
    let api: Api<kube::core::DynamicObject> =
        Api::namespaced_with(life.admin.clone(), NS, &mooncake_operator::observe::lease_resource());
    let writes = async || {
        let text = context.metrics.render().expect("metrics");
        text.lines()
            .filter(|line| line.starts_with("mooncake_operator_writes_total"))
            .map(str::to_owned)
            .collect()
    };
    let renewed = async || {
        let version = api.get("m").await.expect("a Lease").resource_version();
        eventually("a renewal", LIMIT, async || {
            let now = api.get("m").await.expect("a Lease").resource_version();
            if now == version { Err(format!("{now:?}")) } else { Ok(()) }
        })
        .await;
    };
    // A write is seen before it is counted.
    renewed().await;
    let before: Vec<String> = writes().await;
    for _ in 0..5 {
        renewed().await;
    }
    assert_eq!(writes().await, before, "zero writes while nothing changes");
}

async fn a_roll_takes_the_active_last(
    life: &Life,
    oracle: &Oracle,
    before: &MooncakeMaster,
) -> MooncakeMaster {
    let deleted_before = oracle.verdict().len();
    life.change(json!({ "image": "mooncake-master:2" })).await;
    let after = life.settled().await;
    assert_eq!(
        oracle.verdict()[deleted_before..],
        [standby(before), active(before)],
        "the active last, each once"
    );
    assert!(life.pods().await.iter().all(|pod| {
        pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).as_deref()
            == Some("mooncake-master:2")
    }));
    assert!(epoch(&after) > epoch(before));
    assert_ne!(active(&after), active(before));
    after
}

async fn a_bad_image_stops_at_the_standby_and_a_revert_heals(life: &Life, before: &MooncakeMaster) {
    life.change(json!({ "image": "bad:1" })).await;
    let stopped = life.reports("True ActiveServing", "False Stopped", "True StandbyFailed").await;
    let message = stopped.status.as_ref().expect("status").conditions[2].message.clone();
    assert!(message.contains(&format!("{}: ImagePullBackOff", standby(before))), "{message}");
    assert_eq!(
        (active(&stopped), epoch(&stopped)),
        (active(before), epoch(before)),
        "the active is not touched"
    );
    life.change(json!({ "image": "mooncake-master:2" })).await;
    let healed = life.settled().await;
    assert_eq!(
        (active(&healed), epoch(&healed)),
        (active(before), epoch(before)),
        "the active is not touched"
    );
}

async fn a_crashed_active_is_replaced(life: &Life, before: &MooncakeMaster) {
    let dead =
        life.pods().await.into_iter().find(|pod| pod.name_any() == active(before)).expect("the active");
    life.world.kill(&dead.uid().expect("a uid"));
    let after = eventually("the standby takes over", LIMIT, async || {
        let seen = get(&life.admin, NS, "m").await;
        if epoch(&seen) > epoch(before) && active(&seen) == standby(before) {
            Ok(seen)
        } else {
            Err(active(&seen))
        }
    })
    .await;
    assert_eq!(active(&after), standby(before));
    life.world.restart(&dead.uid().expect("a uid"));
    life.settled().await;
}

async fn a_deleted_active_is_replaced(life: &Life) {
    let before = life.settled().await;
    let api: Api<Pod> = Api::namespaced(life.admin.clone(), NS);
    api.delete(&active(&before), &DeleteParams::default()).await.expect("a delete");
    eventually("the standby takes over", LIMIT, async || {
        let seen = get(&life.admin, NS, "m").await;
        if active(&seen) == standby(&before) { Ok(()) } else { Err(active(&seen)) }
    })
    .await;
    life.settled().await;
}

async fn wrong_labels_are_corrected(life: &Life) {
    let seen = life.settled().await;
    life.label(&active(&seen), Value::Null).await;
    life.reports("False ActiveNotLabelled", "False UpToDate", "False AsExpected").await;
    life.settled().await;
    assert_eq!(life.labelled().await, [active(&seen)]);
    life.label(&standby(&seen), json!(names::ROLE_LEADER)).await;
    eventually("one label", LIMIT, async || {
        let labelled = life.labelled().await;
        if labelled == [active(&seen)] { Ok(()) } else { Err(format!("{labelled:?}")) }
    })
    .await;
}
