//! The times that docs/readiness.md promises follow from the defaults in the code.

use mooncake_crds::MooncakeMasterSpec;
use mooncake_master::config::{Command, Surroundings, load};

fn master_defaults() -> mooncake_master::config::ProbeConfig {
    let surroundings = Surroundings {
        env: &|_| None,
        read_file: &|_| Err(String::new()),
        interface_address: &|_| Err(String::new()),
        cores: 2,
    };
    match load(&[], &surroundings) {
        Ok(Command::Run(loaded)) => loaded.config.probe,
        other => panic!("the defaults are valid: {other:?}"),
    }
}

#[test]
fn the_documented_detection_time_is_the_sum_of_the_defaults() {
    let probe = master_defaults();
    let spec: MooncakeMasterSpec = serde_json::from_value(serde_json::json!({"image": "master"}))
        .expect("an image is all that is needed");
    let (of_spec, kubelet) = (&spec.rpc_health_probe, &spec.probes.readiness);
    let (interval, timeout) = (probe.interval.as_secs(), probe.timeout.as_secs());
    assert_eq!((of_spec.interval_seconds as u64, of_spec.timeout_seconds as u64), (interval, timeout));

    let (period, failures, patience) =
        (kubelet.period_seconds, kubelet.failure_threshold, kubelet.timeout_seconds);
    let turns = interval + timeout;
    let not_ready = turns + (period * failures + patience) as u64;
    let failover = &spec.failover;
    let seconds = |text: &mooncake_crds::GoDuration| text.parse().expect("a default").as_secs();
    let check = &failover.health_check;
    let (pause, calls) = (seconds(&check.period), check.failure_threshold as u64);
    let (call, between) = (calls * seconds(&check.timeout), (calls - 1) * pause);
    let operator = pause + call + between;
    let (blocked_after, claim) = (seconds(&failover.blocked_after), seconds(&failover.retry_period));
    let later = operator.max(not_ready);
    let both = later + blocked_after;
    // A pass each second, and as much for its work; the kubelet's SIGTERM, and 300 ms.
    let (pass, release) = (2, 1);
    let claimed = both + pass + release + claim;
    let ready = claimed + timeout + (period + patience) as u64;
    let document = include_str!("../../docs/readiness.md");
    let lines: Vec<String> =
        document.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        format!("/readyz turns 503 <= interval + timeout = {interval} + {timeout} = {turns} s"),
        format!(
            "pod is NotReady <= that + period x failureThreshold + timeout = {turns} + {period} x {failures} + {patience} = {not_ready} s"
        ),
        format!(
            "operator has seen it <= pause + {calls} x call + {} x pause = {pause} + {call} + {between} = {operator} s",
            calls - 1
        ),
        format!(
            "both for blockedAfter <= the later of the two + blockedAfter = {later} + {blocked_after} = {both} s"
        ),
        format!(
            "a standby has claimed <= that + pass + release + claim = {both} + {pass} + {release} + {claim} = {claimed} s"
        ),
        format!(
            "it is Ready <= that + first probe + period + timeout = {claimed} + {timeout} + {period} + {patience} = {ready} s"
        ),
    ] {
        assert!(lines.contains(&line), "docs/readiness.md does not say: {line}");
    }
    // What a test with a short patience is to expect.
    let short = format!("With `blockedAfter: 5s` the last line is {} s.", ready - blocked_after + 5);
    assert!(lines.join(" ").contains(&short), "docs/readiness.md does not say: {short}");
    // HealthCheck answers before the probe's patience ends, so a blocked shard is named and not only timed out.
    assert!(probe.health_check_budget() < probe.timeout);
}
