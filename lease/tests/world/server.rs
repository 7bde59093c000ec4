//! A Lease store with the API server's conditions on writes.

use mooncake_lease::{Answer, LeaseObject, RequestKind};
use serde_json::Value;

/// One entry of the watch history.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Put(Value),
    Deleted { uid: String, version: u64 },
}

#[derive(Default)]
pub(super) struct Server {
    version: u64,
    uids: u64,
    pub(super) lease: Option<Value>,
    pub(super) history: Vec<Change>,
}

pub(super) fn parse(raw: &Value) -> LeaseObject {
    LeaseObject::parse(raw.clone()).unwrap()
}

impl Server {
    pub(super) fn apply(&mut self, kind: &RequestKind) -> Answer {
        match kind {
            RequestKind::Read => match &self.lease {
                Some(raw) => Answer::Found(parse(raw)),
                None => Answer::Absent { resource_version: self.version.to_string() },
            },
            RequestKind::Create(_) if self.lease.is_some() => Answer::Conflict,
            RequestKind::Create(body) => {
                self.uids += 1;
                let mut raw = body.clone();
                raw["metadata"]["uid"] = format!("uid-{}", self.uids).into();
                Answer::Written(parse(&self.put(raw)))
            }
            RequestKind::Replace(body) => {
                let Some(raw) = &self.lease else { return Answer::Missing };
                let same = |key: &str| raw["metadata"][key] == body["metadata"][key];
                if !(same("uid") && same("resourceVersion")) {
                    return Answer::Conflict;
                }
                Answer::Written(parse(&self.put(body.clone())))
            }
        }
    }

    fn put(&mut self, mut raw: Value) -> Value {
        self.version += 1;
        raw["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(raw.clone());
        self.history.push(Change::Put(raw.clone()));
        raw
    }

    /// A stranger's unconditional write.
    pub(super) fn scribble(&mut self, edit: impl FnOnce(&mut Value)) {
        if let Some(mut raw) = self.lease.clone() {
            edit(&mut raw);
            self.put(raw);
        }
    }

    /// Whether the record ever bore another designation, or none, from that change on.
    pub(super) fn bore_another(&self, since: usize, successor: &str) -> bool {
        self.history.iter().skip(since).any(|change| match change {
            Change::Put(raw) => parse(raw).record.designated != successor,
            Change::Deleted { .. } => true,
        })
    }

    pub(super) fn delete(&mut self) {
        if let Some(raw) = self.lease.take() {
            self.version += 1;
            let uid = raw["metadata"]["uid"].as_str().unwrap().to_owned();
            self.history.push(Change::Deleted { uid, version: self.version });
        }
    }
}
