use super::*;
use std::collections::BTreeSet;

fn master(spec: &Value) -> MooncakeMaster {
    serde_json::from_value(json!({
        "apiVersion": "store.mooncake.io/v1alpha1",
        "kind": "MooncakeMaster",
        "metadata": { "name": "kv", "namespace": "inference", "uid": "0f9a" },
        "spec": spec,
    }))
    .expect("a resource")
}

fn smallest() -> MooncakeMaster {
    master(&json!({ "image": "mooncake-master:1" }))
}

fn content(master: &MooncakeMaster, kind: Kind) -> Value {
    let mut objects = build(master, true).objects.into_iter();
    objects.find(|object| object.kind == kind).expect("each kind is built").content
}

/// The smallest resource, whole. A change here is a roll of every installation when the operator is upgraded: think.
#[test]
fn what_follows_from_the_smallest_resource() {
    insta::assert_yaml_snapshot!(
        build(&smallest(), true).objects.iter().map(|o| &o.content).collect::<Vec<_>>()
    );
}

#[test]
fn what_follows_from_everything_set() {
    let master = master(&json!({
        "image": "registry.example.com/mooncake-master:2",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{ "name": "registry" }],
        "replicas": 3,
        "ports": { "rpc": 7000, "metrics": 7001 },
        "resources": { "limits": { "memory": "4Gi" } },
        "nodeSelector": { "pool": "kv" },
        "tolerations": [{ "key": "kv", "operator": "Exists" }],
        "affinity": { "nodeAffinity": {} },
        "failover": { "leaseDuration": "4500ms", "renewDeadline": "2s", "retryPeriod": "500ms" },
        "client": { "activeTtl": "1m", "suspicionTtl": "30s", "massSilencePercent": 7 },
        "store": {
            "defaultKvLeaseTtl": "2s", "putStartDiscardTimeout": "2s", "putStartReleaseTimeout": "1m"
        },
        "rpcHealthProbe": { "enabled": false, "intervalSeconds": 7, "timeoutSeconds": 2 },
        "probes": {
            "readiness": { "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 3 },
            "liveness": { "periodSeconds": 20, "timeoutSeconds": 6, "failureThreshold": 7 }
        },
        "heartbeat": { "port": 7002, "threads": 2, "keepOnMain": false },
        "config": { "cluster_id": "a$b" },
        "podLabels": { "team": "kv" },
        "podAnnotations": { "example.com/x": "y" },
    }));
    insta::assert_yaml_snapshot!([Kind::Service, Kind::StatefulSet].map(|kind| content(&master, kind)));
}

/// An operator of another version must not roll what it finds: same resource, same hash.
#[test]
fn the_template_hash_is_stable() {
    assert_eq!(build(&smallest(), true).template_hash, "964e63b276");
    assert_eq!(build(&smallest(), true), build(&smallest(), true));
}

#[test]
fn unset_times_of_clients_pass_no_flag() {
    let flags = flags(&smallest());
    assert!(!flags.iter().any(|flag| flag.contains("client_")), "B11: {flags:?}");
    let only_active = master(&json!({ "image": "i", "client": { "activeTtl": "15s" } }));
    let flags = super::flags(&only_active);
    assert!(flags.contains(&"--client_active_ttl_sec=15".to_owned()));
    assert!(!flags.iter().any(|flag| flag.contains("suspicion")), "B11: {flags:?}");
}

/// What a user may not set in `spec.config` is just what the operator sets, and what stands for it.
#[test]
fn every_flag_that_is_passed_is_reserved() {
    let everything = master(&json!({
        "image": "i",
        "heartbeat": { "port": 50052 },
        "client": { "activeTtl": "1s", "suspicionTtl": "1s", "massSilencePercent": 50 },
        "store": { "defaultKvLeaseTtl": "1s", "putStartDiscardTimeout": "1s", "putStartReleaseTimeout": "2s" },
    }));
    let reserved: BTreeSet<&str> = mooncake_crds::rules::OWNED_FLAGS.iter().map(|(flag, _)| *flag).collect();
    for flag in flags(&everything) {
        let name = flag.trim_start_matches("--").split('=').next().expect("a name").to_owned();
        assert!(reserved.contains(name.as_str()), "{name} could be set twice");
    }
}

#[test]
fn replicas_roll_nothing_and_each_flag_does() {
    let hash = |spec: Value| build(&master(&spec), true).template_hash;
    let smallest = hash(json!({ "image": "i" }));
    assert_eq!(smallest, hash(json!({ "image": "i", "replicas": 5 })));
    assert_eq!(smallest, hash(json!({ "image": "i", "paused": true })));
    assert_ne!(smallest, hash(json!({ "image": "j" })));
    assert_ne!(smallest, hash(json!({ "image": "i", "config": { "eviction_ratio": "0.1" } })));
    assert_ne!(smallest, hash(json!({ "image": "i", "failover": { "leaseDuration": "6s" } })));
    let heartbeat = |fields: Value| hash(json!({ "image": "i", "heartbeat": fields }));
    assert_eq!(smallest, heartbeat(json!({ "threads": 2, "keepOnMain": false })), "no effect without a port");
    let all = [
        smallest.clone(),
        heartbeat(json!({ "port": 50052 })),
        heartbeat(json!({ "port": 50053 })),
        heartbeat(json!({ "port": 50052, "threads": 2 })),
        heartbeat(json!({ "port": 50052, "keepOnMain": false })),
    ];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    let moves = json!({ "blockedAfter": "5s", "cooldown": "1h", "healthCheck": { "failureThreshold": 9 } });
    assert_eq!(smallest, hash(json!({ "image": "i", "failover": moves })), "the operator's own business");
}

/// A client finds the port by what the master says of it, so the Services carry that very number.
#[test]
fn both_services_and_the_container_carry_the_heartbeat_port() {
    let master = master(&json!({ "image": "i", "heartbeat": { "port": 50052 } }));
    for kind in [Kind::Service, Kind::PodsService] {
        let wanted =
            json!({ "name": "heartbeat", "port": 50052, "targetPort": "heartbeat", "protocol": "TCP" });
        let service = content(&master, kind);
        let ports = service["spec"]["ports"].as_array().expect("ports");
        assert!(ports.contains(&wanted), "{kind:?}: {ports:?}");
        let without = content(&smallest(), kind)["spec"]["ports"].to_string();
        assert!(!without.contains("heartbeat"), "{kind:?}: {without}");
    }
    let container = content(&master, Kind::StatefulSet)["spec"]["template"]["spec"]["containers"][0].clone();
    let ports = container["ports"].as_array().expect("ports");
    let wanted = json!({ "name": "heartbeat", "containerPort": 50052, "protocol": "TCP" });
    assert!(ports.contains(&wanted), "{ports:?}");
    for flag in
        ["--heartbeat_rpc_port=50052", "--heartbeat_rpc_thread_num=1", "--heartbeat_keep_on_main=true"]
    {
        assert!(container["args"].as_array().expect("arguments").contains(&json!(flag)), "{flag}");
    }
}

/// Case 41 of the field: a budget over a set of one, or one that nobody moves the role for, makes a drain hang.
#[test]
fn a_budget_is_made_only_where_the_role_moves_ahead_of_a_drain() {
    for (replicas, moves, wanted) in [(1, true, false), (2, true, true), (3, true, true), (2, false, false)] {
        let desired = build(&master(&json!({ "image": "i", "replicas": replicas })), moves);
        let made = desired.objects.iter().any(|object| object.kind == Kind::PodDisruptionBudget);
        assert_eq!((made, desired.unwanted.is_empty()), (wanted, wanted), "{replicas} {moves}");
    }
    let spec = content(&smallest(), Kind::PodDisruptionBudget)["spec"].clone();
    assert_eq!(
        (&spec["minAvailable"], &spec["unhealthyPodEvictionPolicy"]),
        (&json!(1), &json!("AlwaysAllow"))
    );
    assert_eq!(spec["selector"]["matchLabels"], json!(selector(&smallest())), "by instance, not by role");
}

#[test]
fn a_new_lease_has_no_holder_and_goes_on_with_the_epoch() {
    assert_eq!(lease(&smallest(), 0, 5, true)["metadata"]["annotations"]["mooncake.io/released"], "nobody");
    let lease = lease(&smallest(), 7, 5, false);
    assert_eq!(lease["metadata"]["annotations"], Value::Null);
    assert_eq!(lease["spec"], json!({ "leaseTransitions": 7, "leaseDurationSeconds": 5 }));
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "0f9a");
}

#[test]
fn an_adoption_is_for_one_state_of_one_lease() {
    let adoption = lease_adoption(&smallest(), "u", "7");
    assert_eq!(
        (&adoption["metadata"]["uid"], &adoption["metadata"]["resourceVersion"]),
        (&json!("u"), &json!("7"))
    );
    assert!(adoption.get("spec").is_none(), "its spec is the masters'");
}
