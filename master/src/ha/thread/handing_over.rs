//! What the lease thread does in a planned hand-over (design §6.7). It asks no data thread for anything: what a stuck one
//! holds up is given a bound, and what it might still write goes to a connection that is aborted.

use super::{State, log};
#[cfg(feature = "kubernetes")]
use crate::ha::{handover::Successor, labels::LabelWriter};
use crate::{clock::Instant, ha::handover::Handover};
use mooncake_lease::{Command, LossReason};
#[cfg(feature = "kubernetes")]
use std::time::Duration;

/// How often the pod of the new holder is looked at.
#[cfg(feature = "kubernetes")]
const LOOK_AT_POD: Duration = Duration::from_millis(250);

impl State {
    /// Holds all calls: the holder is asked to hand over.
    pub(super) fn begin_handover(&self, successor: String) {
        if self.ending.get().is_some() {
            return;
        }
        self.parts.permit.begin_hold();
        let handover = Handover::begin(self.now(), successor.clone(), self.options.deadlines);
        *self.handover.borrow_mut() = Some(handover);
        log(move || tracing::info!(successor, "handing over: calls are held"));
    }

    /// Once running calls have ended, or had their time: takes the permit away, makes sure that nothing that was allowed
    /// before is still written, and only then releases the lease for the successor.
    pub(super) fn go_on_with_handover(&self, now: Instant) {
        let mut handover = self.handover.borrow_mut();
        let Some(handover) = &mut *handover else { return };
        if !handover.drained(now, self.parts.connections.any_call()) {
            return;
        }
        self.parts.permit.suspend();
        let aborted = self.parts.connections.abort_writing();
        let successor = handover.successor().to_owned();
        // The driver's receiver is gone only when the election is over, and with it the hand-over.
        let _ = self.commands.send(Command::Resign { successor: Some(successor.clone()) });
        log(move || tracing::info!(successor, aborted, "handing over: nothing is answered any more"));
    }

    /// Whether the permit went because of a hand-over: connections then stay open.
    pub(super) fn has_handed_over(&self) -> bool {
        self.handover.borrow().as_ref().is_some_and(Handover::released)
    }

    /// A permit after the release: the successor did not claim, and the lease was taken back. Those who waited connect
    /// again.
    pub(super) fn permit_is_back(&self) {
        if !self.has_handed_over() {
            return;
        }
        let successor = self.handover.borrow().as_ref().map(|handover| handover.successor().to_owned());
        self.fence();
        log(move || tracing::warn!(successor, "the successor did not claim: the role is taken back"));
    }

    /// Whether leadership was lost to somebody who claimed what was handed over: the one case in which this process does
    /// not start anew at once.
    pub(super) fn is_succeeded(&self, reason: &LossReason) -> bool {
        let LossReason::Superseded { pod_name, .. } = reason else { return false };
        let (now, mut handover) = (self.now(), self.handover.borrow_mut());
        let Some(handover) = handover.as_mut().filter(|handover| handover.released()) else { return false };
        handover.succeeded(now, pod_name.clone());
        self.lease.set(None);
        true
    }

    /// After a hand-over: keeps the connections until the new holder's pod is ready, for a bounded time, and starts anew;
    /// at once when the new holder is one no more, since this process may be the only one that could claim. Returns at
    /// once if there was no hand-over. `lease`: namespace and name.
    #[cfg(feature = "kubernetes")]
    pub(super) async fn see_off(&self, pods: Option<&mut LabelWriter>, lease: &(String, String)) {
        let Some(pod) = self.handover.borrow().as_ref().and_then(Handover::new_holder).map(str::to_owned)
        else {
            return;
        };
        let look = async {
            let Some(pods) = pods else { return std::future::pending::<()>().await };
            loop {
                let seen = pods.successor(&pod, lease).await;
                if let Err(error) = &seen
                    && error.doubts_connection()
                {
                    pods.reconnect();
                }
                if let Some(handover) = &mut *self.handover.borrow_mut() {
                    handover.saw(self.now(), seen.unwrap_or(Successor::NotReady));
                }
                tokio::time::sleep(LOOK_AT_POD).await;
            }
        };
        let over = async {
            while self.handover.borrow().as_ref().is_some_and(|handover| !handover.is_over(self.now())) {
                tokio::time::sleep(LOOK_AT_POD / 5).await;
            }
        };
        tokio::select! {
            () = over => {}
            () = look => {}
        }
        if self.ending.get().is_none() {
            log(|| tracing::info!("handed over: closing every connection and starting anew"));
            self.exec(None);
        }
    }
}
