//! The operator's own `HealthCheck` of each active, the second path of D2: a task for each resource, beside its passes.
//!
//! Each call opens its own connection, so that accept and dispatch are covered as they are for a new client. What the
//! calls come to is in memory; only a change wakes a pass.

use crate::{
    decide::Health,
    memory::{Key, Memory},
    metrics::Metrics,
};
use mooncake_proto::v1::{HealthCheckRequest, master_service_client::MasterServiceClient};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tonic::transport::Endpoint;

/// How often recoveries are told of, at most.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Longest text that is kept of a failure, characters.
const LONGEST_TEXT: usize = 200;

/// Whom to call, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub pod_uid: String,
    /// Id of the process.
    pub incarnation: String,
    /// `host:port` at which it serves clients.
    pub address: String,
    /// Pause between two calls.
    pub period: Duration,
    /// Time for one call, the connection included.
    pub timeout: Duration,
    /// Failures in a row that make the path count as failed.
    pub threshold: u32,
}

/// Calls that failed and then went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Name of the pod.
    pub pod: String,
    /// How many failed in a row.
    pub failures: u32,
    /// What the last of them came to.
    pub what: String,
}

/// What the calls of one process have come to.
#[derive(Debug)]
pub struct Track {
    target: Target,
    answered: bool,
    failures: u32,
    what: String,
    failed_since: Option<Instant>,
    /// The newest recovery that nobody was told of.
    recovered: Option<Seen>,
    /// It is due.
    seen: Option<Seen>,
    told: Option<Instant>,
}

impl Track {
    /// Nothing has been called yet.
    pub fn new(target: Target) -> Track {
        Track {
            target,
            answered: false,
            failures: 0,
            what: String::new(),
            failed_since: None,
            recovered: None,
            seen: None,
            told: None,
        }
    }

    /// It is of the calls of that target.
    pub fn is_of(&self, target: &Target) -> bool {
        self.target == *target
    }

    /// It is of that process.
    pub fn is_about(&self, pod_uid: &str, incarnation: &str) -> bool {
        self.target.pod_uid == pod_uid && self.target.incarnation == incarnation
    }

    /// Takes note of a call; whether a pass should know.
    pub fn called(&mut self, result: Result<(), String>, now: Instant) -> bool {
        match result {
            Ok(()) => {
                let changed = !self.answered || self.failures > 0;
                if self.failures > 0 {
                    let (pod, failures, what) = (self.target.pod.clone(), self.failures, self.what.clone());
                    self.recovered = Some(Seen { pod, failures, what });
                }
                (self.answered, self.failures, self.failed_since) = (true, 0, None);
                let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL_EVERY);
                let to_tell = if due { self.recovered.take() } else { None };
                if to_tell.is_some() {
                    (self.seen, self.told) = (to_tell, Some(now));
                    return true;
                }
                changed
            }
            Err(what) => {
                self.failures = self.failures.saturating_add(1);
                self.what = what.chars().take(LONGEST_TEXT).collect();
                if self.failures >= self.target.threshold && self.failed_since.is_none() {
                    self.failed_since = Some(now);
                }
                self.failures == 1 || self.failures == self.target.threshold
            }
        }
    }

    /// What it comes to.
    pub fn health(&self, now: Instant) -> Health {
        match (self.failed_since, self.failures) {
            (Some(since), _) => {
                Health::Failed { lasts: now.saturating_duration_since(since), what: self.what.clone() }
            }
            (None, 0) if self.answered => Health::Ok,
            (None, 0) => Health::Unknown,
            (None, _) => Health::Failing(self.what.clone()),
        }
    }

    /// What is to be told, once.
    pub fn take_seen(&mut self) -> Option<Seen> {
        self.seen.take()
    }
}

/// One call on a connection of its own; what it came to if that is not ok.
pub async fn call(target: &Target) -> Result<(), String> {
    let text = format!("http://{}", target.address);
    let endpoint = Endpoint::from_shared(text).map_err(|error| format!("{}: {error}", target.address))?;
    let asked = async {
        let channel = endpoint.connect().await.map_err(|error| format!("no connection: {}", root(&error)))?;
        let answer = MasterServiceClient::new(channel).health_check(HealthCheckRequest {}).await;
        let answer =
            answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()))?.into_inner();
        if answer.ok { Ok(()) } else { Err(format!("shard {} is blocked", answer.shards_blocked)) }
    };
    tokio::time::timeout(target.timeout, asked)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {:?}", target.timeout)))
}

/// The innermost cause: "connection refused" rather than "transport error".
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The tasks that call.
#[derive(Debug)]
pub struct Watchdog {
    memory: Arc<Memory>,
    metrics: Metrics,
    tasks: Mutex<HashMap<Key, (Target, JoinHandle<()>)>>,
    wake: mpsc::UnboundedSender<Key>,
}

impl Watchdog {
    /// No tasks yet. `wake` is told which resource to look at.
    pub fn new(memory: Arc<Memory>, metrics: Metrics, wake: mpsc::UnboundedSender<Key>) -> Watchdog {
        Watchdog { memory, metrics, tasks: Mutex::default(), wake }
    }

    /// From now on that target is called for the resource, or nobody.
    pub fn follow(&self, key: &Key, target: Option<Target>) {
        let mut tasks = self.tasks.lock();
        if tasks.get(key).map(|(present, _)| present) == target.as_ref() {
            return;
        }
        if let Some((_, task)) = tasks.remove(key) {
            task.abort();
        }
        let Some(target) = target else { return };
        let (memory, wake) = (Arc::clone(&self.memory), self.wake.clone());
        let failed = self.metrics.failed_calls(&key.0, &key.1);
        let task = tokio::spawn({
            let (key, target) = (key.clone(), target.clone());
            async move {
                loop {
                    let result = call(&target).await;
                    if let Err(what) = &result {
                        failed.inc();
                        let (namespace, name) = &key;
                        tracing::debug!(namespace, name, pod = target.pod, what, "HealthCheck failed");
                    }
                    if memory.called(&key, &target, result, Instant::now()) && wake.send(key.clone()).is_err()
                    {
                        return;
                    }
                    tokio::time::sleep(target.period).await;
                }
            }
        });
        tasks.insert(key.clone(), (target, task));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        for (_, task) in self.tasks.lock().values() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            pod: "m-0".to_owned(),
            pod_uid: "u".to_owned(),
            incarnation: "i".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            period: Duration::from_secs(2),
            timeout: Duration::from_secs(3),
            threshold: 3,
        }
    }

    /// D2: three in a row; what went well in between begins it anew.
    #[tokio::test(start_paused = true)]
    async fn three_failures_in_a_row_make_a_failed_path() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let failed = || Err("shard 7 is blocked".to_owned());
        let mut track = Track::new(target());
        assert_eq!(track.health(start), Health::Unknown);
        assert!(track.called(Ok(()), start), "the first answer is news");
        assert!(!track.called(Ok(()), start));
        assert!(track.called(failed(), at(2)));
        assert!(!track.called(failed(), at(4)));
        assert_eq!(track.health(at(4)), Health::Failing("shard 7 is blocked".to_owned()));
        assert!(track.called(Ok(()), at(6)));
        assert_eq!(track.health(at(6)), Health::Ok);
        for second in [8, 10, 12, 14] {
            track.called(failed(), at(second));
        }
        let lasts = Duration::from_secs(8);
        assert_eq!(track.health(at(20)), Health::Failed { lasts, what: "shard 7 is blocked".to_owned() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovery_is_told_once_and_not_every_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut track = Track::new(target());
        track.called(Err("x".to_owned()), at(0));
        assert_eq!(track.take_seen(), None, "nothing has recovered yet");
        track.called(Ok(()), at(2));
        let seen = Seen { pod: "m-0".to_owned(), failures: 1, what: "x".to_owned() };
        assert_eq!((track.take_seen(), track.take_seen()), (Some(seen), None));
        for second in 3..=60 {
            track.called(if second % 2 == 0 { Ok(()) } else { Err("y".to_owned()) }, at(second));
        }
        assert_eq!(track.take_seen(), None, "one in a minute");
        assert!(track.called(Ok(()), at(62)), "what was kept back is due, and a pass tells it");
        assert_eq!(track.take_seen().map(|seen| seen.what), Some("y".to_owned()));
        assert!(!track.called(Ok(()), at(124)), "nothing new");
        assert_eq!(track.take_seen(), None);
    }

    #[tokio::test]
    async fn a_port_that_refuses_and_one_that_says_nothing_have_failed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let silent = Target { address, timeout: Duration::from_millis(200), ..target() };
        assert_eq!(call(&silent).await, Err("no answer within 200ms".to_owned()));
        drop(listener);
        let error = call(&silent).await.unwrap_err();
        assert!(error.contains("refused"), "{error}");
    }
}
