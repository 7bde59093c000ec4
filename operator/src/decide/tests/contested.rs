//! An object that somebody else keeps changing back.

use super::*;

/// The Service differs, and so on.
fn contested(presence: Presence, wait: u64) -> Observed {
    with(|seen| {
        let service = seen.objects.iter_mut().find(|object| object.kind == Kind::Service).expect("a Service");
        service.presence = presence;
        let what = "spec.ports by kubectl-edit".to_owned();
        service.contest = Some(Contest { what, wait: Duration::from_secs(wait) });
    })
}

fn drifted() -> Presence {
    Presence::Drifted("spec.ports".to_owned())
}

#[test]
fn it_is_corrected_when_its_time_has_come_and_not_before() {
    let apply = vec![Action::Apply(Kind::Service)];
    for (presence, wait, expected) in [
        (drifted(), 0, apply.clone()),
        (drifted(), 8, vec![]),
        (Presence::Missing, 0, apply),
        (Presence::Missing, 8, vec![]),
        (Presence::Current, 8, vec![]),
    ] {
        assert_eq!(decide(&contested(presence.clone(), wait)).actions, expected, "{presence:?} {wait}");
    }
}

#[test]
fn it_is_said_with_the_writer_and_looked_at_in_time() {
    let held_back = decide(&contested(drifted(), 8));
    let degraded = &held_back.conditions[2];
    assert_eq!(
        (degraded.reason, degraded.message.as_str()),
        (
            Reason::ObjectContested,
            "changed back whenever it is corrected: Service m (spec.ports by kubectl-edit)"
        )
    );
    assert_eq!(held_back.conditions[1].reason, Reason::Stopped);
    assert_eq!(held_back.again, Duration::from_secs(8), "not every second");
    assert_eq!(decide(&contested(drifted(), 60)).again, LATER);
    assert_eq!(decide(&contested(drifted(), 0)).again, SOON);

    let seen = contested(Presence::Current, 8);
    assert_eq!(reasons(&seen), [Reason::ActiveServing, Reason::UpToDate, Reason::ObjectContested]);
    assert_eq!(decide(&seen).again, LATER);
}

/// What is fought for may be what a pod comes back from.
#[test]
fn a_roll_waits_for_it() {
    let mut seen = contested(drifted(), 8);
    outdated(&mut seen, &[1]);
    assert_eq!(deleted(&seen), []);
    let mut seen = contested(Presence::Current, 8);
    outdated(&mut seen, &[1]);
    assert_eq!(deleted(&seen), [("m-1".to_owned(), Why::RollStandby)]);
}

/// Neither who serves nor the label waits for it.
#[test]
fn it_keeps_nobody_from_serving() {
    let mut seen = contested(drifted(), 8);
    seen.pods[0].labelled = false;
    seen.disagreed_for = LABEL_GRACE;
    assert!(matches!(decide(&seen).actions[..], [Action::SetLabel(_)]), "{:?}", decide(&seen).actions);
}
