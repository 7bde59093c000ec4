//! Replacing pods of an older template: standbys one at a time, the active last.

use super::{Observed, Pod, PodRef, Why};

/// Where a roll stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roll {
    /// The next pod to delete.
    pub(super) delete: Option<(PodRef, Why)>,
    /// What goes on or is waited for; `None` if every pod is of the present template.
    pub(super) progress: Option<String>,
    /// Only the active is left to replace, and the role does not go to a master of this template again.
    pub(super) failed: bool,
}

impl Roll {
    /// The active is all that is left to replace.
    pub(super) fn replaces_active(&self) -> bool {
        matches!(self.delete, Some((_, Why::RollActive)))
    }
}

pub(super) fn plan(seen: &Observed) -> Roll {
    let outdated: Vec<&Pod> =
        seen.pods.iter().filter(|pod| pod.ordinal < seen.replicas && seen.outdated(pod)).collect();
    if outdated.is_empty() {
        return Roll::default();
    }
    let progress = |text: String| Roll { progress: Some(text), ..Roll::default() };
    if !seen.workload_settled {
        return progress("the StatefulSet controller has not seen the new template yet".to_owned());
    }
    let delete = |pod: &Pod, why: Why| Roll {
        delete: Some((pod.id.clone(), why)),
        progress: Some(format!(
            "replacing {}; {} of {} pods are outdated",
            pod.id.name,
            outdated.len(),
            seen.replicas
        )),
        failed: false,
    };
    let active = seen.active();
    let is_active = |pod: &Pod| active.is_some_and(|active| active.id.uid == pod.id.uid);

    // What does not run and is outdated serves nobody: it goes at once, whatever else is wrong. This is how a
    // reverted change heals a stuck pod.
    if let Some(broken) = outdated.iter().find(|pod| !is_active(pod) && !pod.terminating && pod.is_broken()) {
        return delete(broken, Why::Heal);
    }
    if let Some(terminating) = seen.pods.iter().find(|pod| pod.terminating) {
        return progress(format!("waiting for {} to be gone", terminating.id.name));
    }
    for ordinal in 0..seen.replicas {
        if !seen.pods.iter().any(|pod| pod.ordinal == ordinal) {
            return progress(format!("waiting for the pod with ordinal {ordinal} to be created"));
        }
    }
    let Some(active) = active else {
        return progress("waiting for an active before the next pod is replaced".to_owned());
    };
    // Its Lease lives on for a while after its process. Whatever is taken away now should leave one that serves.
    if !active.leads() {
        return progress("waiting for the active to serve".to_owned());
    }
    if let Some(starting) = seen.others().find(|pod| !seen.outdated(pod) && !pod.stands_by()) {
        return progress(format!("waiting for {} to stand by", starting.id.name));
    }
    // Those that do not stand by anyway go first, then the highest ordinal.
    let next =
        outdated.iter().filter(|pod| !is_active(pod)).max_by_key(|pod| (!pod.stands_by(), pod.ordinal));
    match next {
        Some(standby) => delete(standby, Why::RollStandby),
        None if seen.failed_template.as_ref() == Some(&seen.template_hash) => Roll {
            failed: true,
            ..progress(format!(
                "{} keeps the role: a master of the present template got it and did not serve",
                active.id.name
            ))
        },
        None => delete(active, Why::RollActive),
    }
}
