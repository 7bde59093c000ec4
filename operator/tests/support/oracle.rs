//! At most one labelled pod in every watch event.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::watcher::{self, watcher},
};
use mooncake_crds::names;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use tokio::task::JoinHandle;

/// Watches the pods of a namespace until it is dropped.
pub(crate) struct Oracle {
    task: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    labelled: BTreeMap<String, String>,
    violations: Vec<String>,
    deleted: Vec<String>,
    events: usize,
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Oracle {
    /// Starts watching.
    pub(crate) fn start(client: &Client, namespace: &str) -> Oracle {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                        shared.lock().note(&pod, false);
                    }
                    Ok(watcher::Event::Delete(pod)) => shared.lock().note(&pod, true),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
                }
            }
        });
        Oracle { task, seen }
    }

    /// Fails if two pods were ever labelled at once; the names of deleted pods, in order.
    pub(crate) fn verdict(&self) -> Vec<String> {
        let seen = self.seen.lock();
        assert!(seen.events > 0, "the oracle has seen nothing");
        assert!(seen.violations.is_empty(), "{:#?}", seen.violations);
        seen.deleted.clone()
    }
}

impl Seen {
    fn note(&mut self, pod: &Pod, gone: bool) {
        self.events += 1;
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        if !gone && pod.labels().get(names::LABEL_ROLE).is_some_and(|role| role == names::ROLE_LEADER) {
            self.labelled.insert(uid, name.clone());
        } else {
            self.labelled.remove(&uid);
        }
        if gone {
            self.deleted.push(name);
        }
        if self.labelled.len() > 1 {
            self.violations.push(format!("labelled at once: {:?}", self.labelled.values()));
        }
    }
}
