//! The leader label, of which the holder of the Lease is the one writer.
//!
//! The operator writes it only when the label and a live read of the Lease have disagreed for [`LABEL_GRACE`], and
//! takes a wrong label off before it puts a right one on. Each write carries the pod's uid and resourceVersion; a new
//! holder touches every other pod of the set, so a write that was decided before it fails.

use super::{Action, Hold, LABEL_GRACE, LeaseState, Observed, PodRef};

/// How label and Lease disagree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Disagreement {
    /// Uids of pods that carry the label and do not hold the Lease.
    pub wrong: Vec<String>,
    /// Uid of the pod that holds the Lease and does not carry the label.
    pub missing: Option<String>,
}

/// How label and Lease disagree; `None` if they do not, or if the Lease does not say.
///
/// A Lease without a holder says nothing: its last holder goes on serving while its permit lasts. A holder that has
/// not renewed keeps its label until somebody else claims; whether it still serves is for its readiness to say.
pub fn disagreement(seen: &Observed) -> Option<Disagreement> {
    let LeaseState::Present(lease) = &seen.lease else { return None };
    let holder = lease.holder.as_ref()?;
    let mut wrong: Vec<String> = seen
        .pods
        .iter()
        .filter(|pod| pod.labelled && pod.id.uid != holder.pod_uid)
        .map(|pod| pod.id.uid.clone())
        .collect();
    wrong.sort();
    let missing = seen
        .pods
        .iter()
        .find(|pod| pod.id.uid == holder.pod_uid && !pod.labelled && !pod.terminating)
        .filter(|_| lease.hold == Hold::Fresh)
        .map(|pod| pod.id.uid.clone());
    (!wrong.is_empty() || missing.is_some()).then_some(Disagreement { wrong, missing })
}

pub(super) fn correct(seen: &Observed, actions: &mut Vec<Action>) {
    if seen.disagreed_for < LABEL_GRACE {
        return;
    }
    let Some(disagreement) = disagreement(seen) else { return };
    let by_uid = |uid: &String| -> Option<PodRef> {
        seen.pods.iter().find(|pod| pod.id.uid == *uid).map(|pod| pod.id.clone())
    };
    if disagreement.wrong.is_empty() {
        actions.extend(disagreement.missing.as_ref().and_then(by_uid).map(Action::SetLabel));
    } else {
        // The right label is put on in a later pass, from a new observation in which the wrong ones are gone.
        actions.extend(disagreement.wrong.iter().filter_map(by_uid).map(Action::ClearLabel));
    }
}
