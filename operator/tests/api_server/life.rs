//! One resource from its creation through rolls, a bad image, a crash and wrong labels, with the watches running.

use super::{get, reason};
use crate::support::{
    eventually, master, masters,
    oracle::Oracle,
    server::{Server, Who, create, free_ports},
    world::{Ports, World, node_name},
};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mooncake_crds::{MooncakeMaster, names};
use mooncake_operator::{controller, server::Ready};
use serde_json::{Value, json};
use std::time::Duration;
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

    let [rpc, metrics] = free_ports::<2>();
    let world = World::start(&admin, NS, "m", Ports { rpc, metrics }, 0);
    let life = Life { admin: admin.clone(), world };
    let oracle = Oracle::start(&admin, NS);
    let spec = json!({ "ports": { "rpc": rpc, "metrics": metrics },
        "failover": { "leaseDuration": "1s", "renewDeadline": "500ms", "retryPeriod": "200ms",
            "blockedAfter": "2s", "notReadyAfter": "5s", "cooldown": "10s",
            "healthCheck": { "period": "500ms", "timeout": "500ms", "failureThreshold": 3 } } });
    create(&admin, &master(NS, "m", &spec)).await.expect("a good resource");

    let first = life.settled().await;
    assert_eq!(epoch(&first), 1);
    let roles: Vec<String> =
        first.status.as_ref().expect("status").members.iter().map(|m| m.role.clone()).collect();
    assert!(roles.contains(&"Active".to_owned()) && roles.contains(&"Standby".to_owned()), "{roles:?}");

    nothing_is_written_while_the_lease_is_renewed(&life, &context).await;
    clients_of_the_active_are_on_status(&life).await;
    let rolled = a_roll_takes_the_active_last(&life, &oracle, &first).await;
    a_bad_image_stops_at_the_standby_and_a_revert_heals(&life, &rolled).await;
    a_crashed_active_is_replaced(&life, &rolled).await;
    a_deleted_active_is_replaced(&life).await;
    a_failed_call_moves_nothing_and_is_told(&life).await;
    a_blocked_active_is_fenced(&life, &oracle).await;
    an_active_that_is_not_ready_hands_over(&life, &oracle).await;
    a_cordoned_node_makes_its_active_hand_over(&life, &oracle).await;
    a_single_master_has_no_budget(&life).await;
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
    for expected in [
        "ActiveChanged",
        "RollingOut",
        "PodReplaced",
        "StandbyFailed",
        "LeaderLabelCorrected",
        "HealthCheckRecovered",
        "RoleMoving",
        "RoleMoved",
        "MassSilence",
        "HeartbeatRoutingMismatch",
    ] {
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

async fn clients_of_the_active_are_on_status(life: &Life) {
    let pods: Api<Pod> = Api::namespaced(life.admin.clone(), NS);
    let mut round = 0;
    let mut says = async |clients: Option<Value>, counts: Option<[i64; 3]>, silent: &str, routed: &str| {
        life.world.say_of_clients(clients);
        // Whatever happens to a pod, the operator looks at once.
        round += 1;
        let patch = json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } });
        pods.patch("m-0", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a patch");
        eventually(&format!("{silent}, {routed}"), LIMIT, async || {
            let seen = get(&life.admin, NS, "m").await;
            let clients = seen.status.clone().unwrap_or_default().clients;
            let found = clients.map(|clients| [clients.active, clients.suspected, clients.offline]);
            let as_wanted = found == counts
                && reason(&seen, "ClientsSilent") == silent
                && reason(&seen, "HeartbeatRouted") == routed;
            if as_wanted { Ok(()) } else { Err(format!("{:?}", seen.status)) }
        })
        .await;
    };
    let summary = |suspected: u64, mass_silence: bool, mismatches: u64| {
        Some(json!({ "clients": { "active": 3, "suspected": suspected, "offline": 0 },
            "mass_silence": mass_silence, "heartbeat_routing_mismatches": mismatches }))
    };
    says(None, None, "Unknown ClientsUnknown", "Unknown HeartbeatRoutingUnknown").await;
    says(summary(0, false, 0), Some([3, 0, 0]), "False ClientsHeard", "True HeartbeatsRouted").await;
    says(summary(2, true, 0), Some([3, 2, 0]), "True MassSilence", "True HeartbeatsRouted").await;
    says(summary(2, false, 4), Some([3, 2, 0]), "False ClientsHeard", "False HeartbeatRoutingMismatch").await;
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

fn uid_of(pods: &[Pod], name: &str) -> String {
    let pod = pods.iter().find(|pod| pod.name_any() == name).expect("the pod");
    pod.uid().expect("a uid")
}

impl Life {
    /// Waits until the role has moved from the active of `before` to its standby, by a move of that kind.
    async fn moved(&self, before: &MooncakeMaster, kind: &str) -> MooncakeMaster {
        let after = eventually(&format!("a move: {kind}"), LIMIT * 2, async || {
            let seen = get(&self.admin, NS, "m").await;
            let status = seen.status.clone().unwrap_or_default();
            let last = status.last_move.as_ref().map(|last| (last.kind.as_str(), last.outcome.as_str()));
            if last == Some((kind, "Moved")) && status.move_.is_none() && epoch(&seen) > epoch(before) {
                Ok(seen)
            } else {
                Err(format!("{:?} {:?} {:?}", status.move_, status.last_move, status.conditions))
            }
        })
        .await;
        assert_eq!(active(&after), standby(before));
        let message = after.status.clone().expect("status").last_move.expect("a move").message;
        assert!(message.contains("The index was not carried over"), "{message}");
        after
    }
}

async fn a_failed_call_moves_nothing_and_is_told(life: &Life) {
    let before = life.settled().await;
    let uid = uid_of(&life.pods().await, &active(&before));
    let answers = life.world.blocked_answers();
    life.world.block(&uid, true);
    let events: Api<Event> = Api::namespaced(life.admin.clone(), NS);
    eventually("a call fails", LIMIT, async || {
        if life.world.blocked_answers() > answers { Ok(()) } else { Err("none") }.map_err(str::to_owned)
    })
    .await;
    life.world.block(&uid, false);
    let after = life.settled().await;
    assert_eq!((active(&after), epoch(&after)), (active(&before), epoch(&before)));
    eventually("it is told", LIMIT, async || {
        let said = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let told = said.iter().find(|event| event.reason.as_deref() == Some("HealthCheckRecovered"));
        let note = told.and_then(|event| event.note.clone()).unwrap_or_default();
        if note.contains("shard 7 is blocked") { Ok(()) } else { Err(note) }
    })
    .await;
}

async fn a_blocked_active_is_fenced(life: &Life, oracle: &Oracle) {
    let before = life.settled().await;
    let deleted = oracle.verdict().len();
    life.world.block(&uid_of(&life.pods().await, &active(&before)), true);
    let after = life.moved(&before, "Blocked").await;
    assert_eq!(oracle.verdict()[deleted..], [active(&before)], "the blocked one, once");
    assert!(after.status.expect("status").last_failover.is_some());
    life.settled().await;
}

async fn an_active_that_is_not_ready_hands_over(life: &Life, oracle: &Oracle) {
    let before = life.settled().await;
    let deleted = oracle.verdict().len();
    let uid = uid_of(&life.pods().await, &active(&before));
    life.world.unready(&uid, true);
    life.moved(&before, "NotReady").await;
    life.world.unready(&uid, false);
    assert_eq!(oracle.verdict()[deleted..], [] as [String; 0], "nothing by force");
    life.settled().await;
}

async fn a_cordoned_node_makes_its_active_hand_over(life: &Life, oracle: &Oracle) {
    let before = life.settled().await;
    let deleted = oracle.verdict().len();
    let nodes: Api<Node> = Api::all(life.admin.clone());
    let ordinal = names::ordinal("m", &active(&before)).expect("an ordinal");
    let cordon = async |is: bool| {
        let patch = json!({ "spec": { "unschedulable": is } });
        nodes
            .patch(&node_name(NS, ordinal), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("a node")
    };
    cordon(true).await;
    life.moved(&before, "NodeDrain").await;
    assert_eq!(oracle.verdict()[deleted..], [] as [String; 0], "nothing by force");
    cordon(false).await;
    life.settled().await;
}

/// Case 41 of the field: with a budget the drain of the only master would hang.
async fn a_single_master_has_no_budget(life: &Life) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(life.admin.clone(), NS);
    for (replicas, wanted) in [(1, false), (2, true)] {
        life.change(json!({ "replicas": replicas })).await;
        life.settled().await;
        eventually("the budget follows", LIMIT, async || {
            let found = budgets.get_opt("m").await.map_err(|error| error.to_string())?;
            if found.is_some() == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
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
