//! A small API server on loopback: objects by path with uid and resourceVersion, list by name, watch from a version,
//! conditional replace and merge patch, and a switch that makes it accept and never answer.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Default)]
struct State {
    version: u64,
    uids: u64,
    objects: BTreeMap<String, Value>,
    history: Vec<(u64, &'static str, String, Value)>,
    requests: Vec<(Method, String, u16)>,
    stalled: bool,
}

/// The server; it stops when it is dropped.
pub struct ApiServer {
    /// `http://127.0.0.1:port`.
    pub url: String,
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    accept: JoinHandle<()>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl ApiServer {
    pub async fn start() -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let changed = Arc::new(watch::channel(0).0);
        let (shared, sender) = (state.clone(), changed.clone());
        let accept = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (shared, sender) = (shared.clone(), sender.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| serve(shared.clone(), sender.clone(), request));
                    // A client that goes away is no matter.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        ApiServer { url, state, changed, accept }
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(path).cloned()
    }

    /// Writes without conditions, as an administrator would.
    pub fn put(&self, path: &str, object: Value) -> Value {
        let object = self.state.lock().put(path, object);
        self.changed.send_modify(|n| *n += 1);
        object
    }

    /// A merge patch without conditions.
    pub fn patch(&self, path: &str, patch: &Value) {
        let mut state = self.state.lock();
        let mut object = state.objects.get(path).cloned().unwrap_or_default();
        merge(&mut object, patch);
        state.put(path, object);
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    pub fn delete(&self, path: &str) {
        self.state.lock().delete(path);
        self.changed.send_modify(|n| *n += 1);
    }

    /// While stalled, connections are accepted and requests are read, and nothing is answered.
    pub fn stall(&self, stalled: bool) {
        self.state.lock().stalled = stalled;
        self.changed.send_modify(|n| *n += 1);
    }

    /// Every state of every object so far, in order: path and object.
    pub fn history(&self) -> Vec<(String, Value)> {
        self.state.lock().history.iter().map(|(_, _, path, object)| (path.clone(), object.clone())).collect()
    }

    /// Requests so far: method, path with query, status.
    pub fn requests(&self) -> Vec<(Method, String, u16)> {
        self.state.lock().requests.clone()
    }
}

impl State {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let known = self.objects.get(path).map(|old| old["metadata"]["uid"].clone());
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        object["metadata"]["uid"] = known.unwrap_or_else(|| {
            self.uids += 1;
            format!("uid-{}", self.uids).into()
        });
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        self.history.push((self.version, kind, path.to_owned(), object.clone()));
        object
    }

    fn delete(&mut self, path: &str) {
        if let Some(mut object) = self.objects.remove(path) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.history.push((self.version, "DELETED", path.to_owned(), object));
        }
    }
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    let body = http_body_util::Full::new(Bytes::from(body.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

/// The conditions that a write carries in its metadata.
fn conflicts(old: &Value, new: &Value) -> bool {
    ["uid", "resourceVersion"].iter().any(|key| {
        let wanted = &new["metadata"][*key];
        !wanted.is_null() && *wanted != old["metadata"][*key]
    })
}

async fn serve(
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut stalled = changed.subscribe();
    while state.lock().stalled {
        stalled.changed().await.unwrap();
    }
    let path = parts.uri.path().to_owned();
    let query: BTreeMap<String, String> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.replace("%3D", "=")))
        .collect();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    if query.contains_key("watch") {
        return Ok(watch_call(state, &changed, &path, &query));
    }
    let (code, answer) = {
        let mut state = state.lock();
        let (code, answer) = state.handle(&parts.method, &path, &query, &body);
        state.requests.push((parts.method.clone(), parts.uri.to_string(), code));
        (code, answer)
    };
    changed.send_modify(|n| *n += 1);
    Ok(respond(code, &answer))
}

impl State {
    fn handle(
        &mut self,
        method: &Method,
        path: &str,
        query: &BTreeMap<String, String>,
        body: &Value,
    ) -> (u16, Value) {
        match *method {
            Method::GET => {
                if let Some(selector) = query.get("fieldSelector") {
                    let name = selector.trim_start_matches("metadata.name=");
                    let items: Vec<&Value> =
                        self.objects.get(&format!("{path}/{name}")).into_iter().collect();
                    let version = self.version.to_string();
                    return (200, json!({ "metadata": { "resourceVersion": version }, "items": items }));
                }
                self.objects
                    .get(path)
                    .map_or_else(|| failure(404, "NotFound"), |object| (200, object.clone()))
            }
            Method::POST => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
                if self.objects.contains_key(&path) {
                    return failure(409, "AlreadyExists");
                }
                (201, self.put(&path, body.clone()))
            }
            Method::PUT | Method::PATCH => {
                let Some(old) = self.objects.get(path).cloned() else {
                    return failure(404, "NotFound");
                };
                if conflicts(&old, body) {
                    return failure(409, "Conflict");
                }
                let mut object = old;
                if *method == Method::PUT {
                    object = body.clone();
                } else {
                    merge(&mut object, body);
                }
                (200, self.put(path, object))
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }
}

fn watch_call(
    state: Arc<Mutex<State>>,
    changed: &watch::Sender<u64>,
    path: &str,
    query: &BTreeMap<String, String>,
) -> Response<Body> {
    let name =
        query.get("fieldSelector").map_or("", |selector| selector.trim_start_matches("metadata.name="));
    let wanted = format!("{path}/{name}");
    let from: u64 = query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
    let changed = changed.subscribe();
    let events = stream::unfold((from, changed), move |(from, mut changed)| {
        let (state, wanted) = (state.clone(), wanted.clone());
        async move {
            loop {
                let next = {
                    let state = state.lock();
                    let next = state.history.iter().find(|(v, _, at, _)| *v > from && *at == wanted);
                    next.filter(|_| !state.stalled).cloned()
                };
                if let Some((version, kind, _, object)) = next {
                    let line = format!("{}\n", json!({ "type": kind, "object": object }));
                    return Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), (version, changed)));
                }
                changed.changed().await.ok()?;
            }
        }
    });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(events.boxed())))
}
