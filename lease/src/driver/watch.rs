//! The watch on one Lease: an unbroken sequence of events from a known version on, or the word that it broke.

use super::{DriverConfig, link::leases_path};
use crate::{elector::WatchInput, record::LeaseObject};
use futures::StreamExt;
use kube::{
    Client,
    api::{WatchEvent, WatchParams},
    core::Request as Builder,
};
use serde_json::Value;
use std::time::Duration;
use tokio::{sync::mpsc, task::JoinHandle};

/// How long the server keeps one watch call open.
const CALL_SECONDS: u32 = 25;
/// Silence after which the call is taken for dead.
const SILENCE: Duration = Duration::from_secs(35);

/// A watch that goes on in the background until it is dropped or sent [`WatchInput::Broken`].
pub(super) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watch {
    /// Starts at `version`. `pause`: between two calls after a failure, and for an answer to a call.
    pub(super) fn start(
        config: &DriverConfig,
        version: String,
        pause: Duration,
        events: mpsc::UnboundedSender<WatchInput>,
    ) -> Watch {
        let mut kube = config.kube.clone();
        kube.connect_timeout = Some(pause);
        let path = leases_path(&config.elector.namespace);
        let fields = format!("metadata.name={}", config.elector.lease_name);
        Watch(tokio::spawn(async move {
            let mut version = version;
            while let Broken::No = call(&kube, &path, &fields, &mut version, pause, &events).await {
                tokio::time::sleep(pause / 4).await;
            }
            // The receiver is gone only when the driver is.
            let _ = events.send(WatchInput::Broken);
        }))
    }
}

enum Broken {
    No,
    Yes,
}

async fn call(
    config: &kube::Config,
    path: &str,
    fields: &str,
    version: &mut String,
    pause: Duration,
    events: &mpsc::UnboundedSender<WatchInput>,
) -> Broken {
    let params = WatchParams::default().fields(fields).timeout(CALL_SECONDS);
    let (Ok(client), Ok(request)) =
        (Client::try_from(config.clone()), Builder::new(path).watch(&params, version))
    else {
        return Broken::Yes;
    };
    let stream = match tokio::time::timeout(pause, client.request_events::<Value>(request)).await {
        Err(_) => return Broken::No,
        Ok(Err(error)) => return gone(&error),
        Ok(Ok(stream)) => stream,
    };
    let mut stream = std::pin::pin!(stream);
    while let Ok(Some(event)) = tokio::time::timeout(SILENCE, stream.next()).await {
        let (raw, deleted) = match event {
            Ok(WatchEvent::Added(raw) | WatchEvent::Modified(raw)) => (raw, false),
            Ok(WatchEvent::Deleted(raw)) => (raw, true),
            Ok(WatchEvent::Bookmark(mark)) => {
                *version = mark.metadata.resource_version;
                continue;
            }
            Ok(WatchEvent::Error(status)) => return gone(&kube::Error::Api(status)),
            Err(error) => return gone(&error),
        };
        let Ok(object) = LeaseObject::parse(raw) else {
            return Broken::Yes;
        };
        version.clone_from(&object.resource_version);
        let input = if deleted {
            WatchInput::Deleted { uid: object.uid, resource_version: object.resource_version }
        } else {
            WatchInput::Object(Box::new(object))
        };
        if events.send(input).is_err() {
            return Broken::Yes;
        }
    }
    Broken::No
}

/// Whether the server no longer knows the version; after every other error the watch goes on from where it was.
fn gone(error: &kube::Error) -> Broken {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 410) => Broken::Yes,
        _ => Broken::No,
    }
}
