//! What the active says of its clients: `GET /clients/summary` on its metrics port.

use crate::{
    decide::{Finding, Observed, Says},
    memory::{Key, Memory},
    probe::Probe,
};
use mooncake_crds::{ClientCounts, MooncakeMasterStatus, Reason};
use serde::Deserialize;
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::time::Instant;

/// How often an active is asked, unless something else is under way.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(10);
/// How long an answer stands in for the next one, if that does not come.
const KEPT: Duration = Duration::from_secs(30);
/// How long no heartbeat must have come to a port that does not serve it. Clients send one every second.
const ROUTED_AFTER: Duration = Duration::from_secs(60);
/// Shortest time between two writes of the status that change nothing but the counts of clients.
const COUNTS_EVERY: Duration = Duration::from_secs(10);
/// Longest answer, bytes.
const LONGEST: usize = 4096;

/// The answer of a master.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Summary {
    clients: Counts,
    mass_silence: bool,
    /// Since the process began to serve.
    heartbeat_routing_mismatches: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Counts {
    active: u64,
    suspected: u64,
    offline: u64,
}

/// What is known of the clients of an active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    /// How many are in which state.
    pub counts: ClientCounts,
    /// So many fell silent at once that the active holds them back from being dropped.
    pub mass_silence: bool,
    /// Heartbeats come to a port that does not serve them.
    pub misrouted: bool,
}

impl Probe {
    /// What the master at that address says of its clients.
    pub async fn clients(&self, ip: IpAddr, port: u16) -> Option<Summary> {
        let answer = self.page(ip, port, "/clients/summary", LONGEST).await?;
        match serde_json::from_str(&answer) {
            Ok(summary) => Some(summary),
            Err(error) => {
                tracing::debug!(%ip, port, %error, "/clients/summary of a master cannot be read");
                None
            }
        }
    }
}

/// Asks the active, if there is one that leads.
pub(crate) async fn observe(
    seen: &Observed,
    memory: &Memory,
    probe: &Probe,
    key: &Key,
    port: u16,
) -> Option<Clients> {
    let (active, holder) = (seen.active()?, seen.active_holder()?);
    // It serves at the address of its pod.
    let ip = holder.address.parse().map(|address: SocketAddr| address.ip());
    let answer = match ip {
        // One that was not reached a moment ago is not worth another wait.
        Ok(ip) if active.says == Says::Leader => probe.clients(ip, port).await,
        _ => None,
    };
    memory.clients(key, |remembered| remembered.saw(&holder.incarnation, answer, Instant::now()))
}

/// What is said about it.
pub(crate) fn findings(clients: Option<&Clients>) -> [Finding; 2] {
    let Some(clients) = clients else {
        return [Reason::ClientsUnknown, Reason::HeartbeatRoutingUnknown]
            .map(|reason| Finding::new(reason, "no active says how its clients are"));
    };
    let silence = if clients.mass_silence {
        Finding::new(
            Reason::MassSilence,
            "many clients fell silent at once and are held back from being dropped",
        )
    } else {
        Finding::new(Reason::ClientsHeard, "no mass silence")
    };
    let routing = if clients.misrouted {
        Finding::new(
            Reason::HeartbeatRoutingMismatch,
            "heartbeats come to the rpc port, which does not serve them: spec.heartbeat.keepOnMain is false",
        )
    } else {
        Finding::new(Reason::HeartbeatsRouted, "all heartbeats come to where they are served")
    };
    [silence, routing]
}

/// What must be known of the past to speak of the present.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    last: Option<Answer>,
    misrouted_at: Option<Instant>,
    counts_written: Option<Instant>,
}

/// The last answer of a process.
#[derive(Debug)]
struct Answer {
    incarnation: String,
    summary: Summary,
    at: Instant,
}

impl Remembered {
    /// Takes note of what that process has answered, if it has; what is known now.
    fn saw(&mut self, incarnation: &str, answer: Option<Summary>, now: Instant) -> Option<Clients> {
        let last = self.last.take().filter(|last| last.incarnation == incarnation);
        self.last = match answer {
            Some(summary) => {
                // When those were that a process had counted before it was first asked is not known: they are news.
                let before = last.map_or(0, |last| last.summary.heartbeat_routing_mismatches);
                if summary.heartbeat_routing_mismatches > before {
                    self.misrouted_at = Some(now);
                }
                Some(Answer { incarnation: incarnation.to_owned(), summary, at: now })
            }
            None => last.filter(|last| now.saturating_duration_since(last.at) < KEPT),
        };
        let summary = &self.last.as_ref()?.summary;
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Some(Clients {
            counts: ClientCounts {
                active: count(summary.clients.active),
                suspected: count(summary.clients.suspected),
                offline: count(summary.clients.offline),
            },
            mass_silence: summary.mass_silence,
            misrouted: self.misrouted_at.is_some_and(|at| now.saturating_duration_since(at) < ROUTED_AFTER),
        })
    }

    /// The status to write: with the old counts, if they are all that is new and others were written a moment ago.
    pub(crate) fn settle(
        &mut self,
        before: &MooncakeMasterStatus,
        report: MooncakeMasterStatus,
        now: Instant,
    ) -> MooncakeMasterStatus {
        if report.clients == before.clients {
            return report;
        }
        let held = MooncakeMasterStatus { clients: before.clients.clone(), ..report.clone() };
        let recent = |at: Instant| now.saturating_duration_since(at) < COUNTS_EVERY;
        if held == *before && self.counts_written.is_some_and(recent) {
            return held;
        }
        self.counts_written = Some(now);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, routing::get};
    use std::net::Ipv4Addr;

    fn summary(suspected: u64, mass_silence: bool, mismatches: u64) -> Summary {
        Summary {
            clients: Counts { active: 3, suspected, offline: 0 },
            mass_silence,
            heartbeat_routing_mismatches: mismatches,
        }
    }

    fn reasons(clients: Option<&Clients>) -> [Reason; 2] {
        findings(clients).map(|finding| finding.reason)
    }

    #[tokio::test]
    async fn a_masters_answer_is_read() {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let page = r#"{"clients":{"active":3,"suspected":1,"offline":0},"mass_silence":true,"heartbeat_routing_mismatches":7}"#;
        let app = Router::new()
            .route("/clients/summary", get(move || async move { page }))
            .route("/other", get(|| async { "{}" }));
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let probe = Probe::default();
        let ip = Ipv4Addr::LOCALHOST.into();
        assert_eq!(probe.clients(ip, port).await, Some(summary(1, true, 7)));
        assert_eq!(probe.page(ip, port, "/missing", LONGEST).await, None, "a master that has no such page");
        assert_eq!(probe.page(ip, port, "/clients/summary", 16).await, None, "longer than it may be");
        server.abort();
        _ = server.await;
        assert_eq!(probe.clients(ip, port).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn mismatches_count_while_they_grow() {
        let mut remembered = Remembered::default();
        let start = Instant::now();
        let mut misrouted = |incarnation: &str, mismatches: u64, second: u64| {
            let now = start + Duration::from_secs(second);
            let clients = remembered.saw(incarnation, Some(summary(0, false, mismatches)), now);
            reasons(clients.as_ref())[1] == Reason::HeartbeatRoutingMismatch
        };
        assert!(!misrouted("a", 0, 0));
        assert!(misrouted("a", 1, 10));
        assert!(misrouted("a", 1, 69));
        assert!(!misrouted("a", 1, 70), "history");
        assert!(misrouted("a", 2, 80));
        assert!(misrouted("b", 0, 90), "a failover changes nothing about the clients");
        assert!(!misrouted("b", 0, 140));
        assert!(misrouted("c", 5, 150), "a process that was not asked before");
        assert!(!misrouted("c", 5, 210));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_stands_in_for_a_while_and_for_its_own_process() {
        let mut remembered = Remembered::default();
        let start = Instant::now();
        let after = |second| start + Duration::from_secs(second);
        assert_eq!(remembered.saw("a", None, start), None);
        assert_eq!(reasons(None), [Reason::ClientsUnknown, Reason::HeartbeatRoutingUnknown]);
        let known = remembered.saw("a", Some(summary(2, true, 0)), after(1)).expect("known");
        assert_eq!(known.counts, ClientCounts { active: 3, suspected: 2, offline: 0 });
        assert_eq!(reasons(Some(&known)), [Reason::MassSilence, Reason::HeartbeatsRouted]);
        assert_eq!(remembered.saw("a", None, after(30)), Some(known.clone()));
        assert_eq!(remembered.saw("a", None, after(31)), None);
        assert!(remembered.saw("a", Some(summary(2, true, 0)), after(32)).is_some());
        assert_eq!(remembered.saw("b", None, after(33)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn counts_alone_are_written_now_and_then() {
        let mut remembered = Remembered::default();
        let start = Instant::now();
        let after = |second| start + Duration::from_secs(second);
        let status = |suspected: i64, epoch: i64| MooncakeMasterStatus {
            epoch: Some(epoch),
            clients: Some(ClientCounts { active: 3, suspected, offline: 0 }),
            ..MooncakeMasterStatus::default()
        };
        assert_eq!(remembered.settle(&status(0, 1), status(1, 1), start), status(1, 1));
        assert_eq!(remembered.settle(&status(1, 1), status(2, 1), after(9)), status(1, 1), "held");
        assert_eq!(remembered.settle(&status(1, 1), status(2, 1), after(10)), status(2, 1));
        assert_eq!(remembered.settle(&status(2, 1), status(3, 2), after(11)), status(3, 2), "not alone");
        assert_eq!(remembered.settle(&status(3, 2), status(3, 2), after(12)), status(3, 2));
    }
}
