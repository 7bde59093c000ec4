//! Single requests to the API server and what their outcomes mean.

use super::{DriverConfig, DriverError};
use crate::{elector::Answer, record::LeaseObject};
use futures::{FutureExt, future::BoxFuture};
use kube::{
    Client,
    api::{ListParams, PostParams},
    core::Request as Builder,
};
use serde_json::Value;
use std::time::Duration;

/// What a request came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) answer: Answer,
    /// resourceVersion of the collection, after a read: where a watch may start.
    pub(super) list_version: Option<String>,
    /// The connection is not to be used again.
    pub(super) fresh_connection: bool,
}

pub(super) struct Link {
    config: kube::Config,
    client: Client,
    path: String,
    name: String,
    deadline: Duration,
}

/// Path of the Leases of a namespace.
pub(super) fn leases_path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

impl Link {
    pub(super) fn new(config: &DriverConfig) -> Result<Link, DriverError> {
        let mut kube = config.kube.clone();
        let deadline = config.elector.timings.retry_period();
        kube.connect_timeout = Some(deadline);
        Ok(Link {
            client: Client::try_from(kube.clone())?,
            config: kube,
            path: leases_path(&config.elector.namespace),
            name: config.elector.lease_name.clone(),
            deadline,
        })
    }

    /// Makes a new client, and with it new connections.
    pub(super) fn reconnect(&mut self) {
        match Client::try_from(self.config.clone()) {
            Ok(client) => self.client = client,
            Err(error) => tracing::warn!(%error, "lease: cannot renew the connection to the API server"),
        }
    }

    pub(super) fn read(&self) -> BoxFuture<'static, Outcome> {
        // A list by name: it needs no other code path on the server, and unlike a get it says as of when there is none.
        let params = ListParams::default().fields(&format!("metadata.name={}", self.name));
        let request = Builder::new(&self.path).list(&params);
        let (client, deadline) = (self.client.clone(), self.deadline);
        async move {
            let request = match request {
                Ok(request) => request,
                Err(error) => return refused("read", &error),
            };
            match tokio::time::timeout(deadline, client.request::<Value>(request)).await {
                Err(_) => timed_out("read"),
                Ok(Err(error)) => failed("read", &error),
                Ok(Ok(list)) => found(list),
            }
        }
        .boxed()
    }

    pub(super) fn replace(&self, body: &Value) -> BoxFuture<'static, Outcome> {
        let data = body.to_string().into_bytes();
        self.write("replace", Builder::new(&self.path).replace(&self.name, &PostParams::default(), data))
    }

    pub(super) fn create(&self, body: &Value) -> BoxFuture<'static, Outcome> {
        let data = body.to_string().into_bytes();
        self.write("create", Builder::new(&self.path).create(&PostParams::default(), data))
    }

    fn write(
        &self,
        what: &'static str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> BoxFuture<'static, Outcome> {
        let (client, deadline) = (self.client.clone(), self.deadline);
        async move {
            let request = match request {
                Ok(request) => request,
                Err(error) => return refused(what, &error),
            };
            match tokio::time::timeout(deadline, client.request::<Value>(request)).await {
                Err(_) => timed_out(what),
                Ok(Err(error)) => failed(what, &error),
                Ok(Ok(raw)) => match LeaseObject::parse(raw) {
                    Ok(object) => Outcome::of(Answer::Written(object)),
                    Err(error) => {
                        tracing::warn!(%error, what, "lease: unreadable answer");
                        Outcome::of(Answer::Unknown)
                    }
                },
            }
        }
        .boxed()
    }
}

fn found(mut list: Value) -> Outcome {
    let version =
        list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = list.get_mut("items").and_then(Value::as_array_mut).and_then(Vec::pop);
    let answer = match first.map(LeaseObject::parse) {
        None => Answer::Absent { resource_version: version.clone() },
        Some(Ok(object)) => {
            for problem in &object.problems {
                tracing::warn!(%problem, "lease: a field is not readable");
            }
            Answer::Found(object)
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "lease: unreadable answer");
            return Outcome::of(Answer::Unknown);
        }
    };
    Outcome {
        answer,
        list_version: Some(version).filter(|version| !version.is_empty()),
        fresh_connection: false,
    }
}

fn refused(what: &str, error: &dyn std::fmt::Display) -> Outcome {
    tracing::warn!(%error, what, "lease: request refused");
    Outcome::of(Answer::Refused)
}

fn timed_out(what: &str) -> Outcome {
    tracing::warn!(what, "lease: no answer from the API server in time");
    Outcome { answer: Answer::Unknown, list_version: None, fresh_connection: true }
}

fn failed(what: &str, error: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = error else {
        tracing::warn!(%error, what, "lease: request failed");
        return Outcome { answer: Answer::Unknown, list_version: None, fresh_connection: true };
    };
    match status.code {
        409 => Outcome::of(Answer::Conflict),
        404 if what == "replace" => Outcome::of(Answer::Missing),
        // A 5xx may come from a store that applied the write all the same.
        500.. => {
            tracing::warn!(%error, what, "lease: the API server failed");
            Outcome::of(Answer::Unknown)
        }
        _ => refused(what, error),
    }
}
