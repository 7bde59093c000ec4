//! For tests: the process ends at one of its writes to the API server, before or after it.
//!
//! Every request that changes something counts, Events included, in the order in which they are sent; the operator's own
//! election does not. With this a test tries every place at which an operator can die.

use futures::future::BoxFuture;
use kube::client::Body;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};
use tower::{Layer, Service};

/// Exit code of a process that ends here.
pub const EXIT_CODE: i32 = 86;

/// When the process ends, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashPoint {
    /// Instead of sending this write.
    pub before: Option<u64>,
    /// When this write has been answered, before anybody reads the answer.
    pub after: Option<u64>,
}

impl CrashPoint {
    /// It is set.
    pub fn is_set(self) -> bool {
        self.before.is_some() || self.after.is_some()
    }
}

/// Puts the crash point under a client of the API server.
#[derive(Clone, Debug)]
pub struct CrashLayer {
    point: CrashPoint,
    writes: Arc<AtomicU64>,
    exit: fn(),
}

impl CrashLayer {
    /// The process ends at that point.
    pub fn new(point: CrashPoint) -> CrashLayer {
        CrashLayer { point, writes: Arc::default(), exit: || std::process::exit(EXIT_CODE) }
    }
}

impl<S> Layer<S> for CrashLayer {
    type Service = Crashing<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Crashing { inner, layer: self.clone() }
    }
}

/// A client of the API server that ends the process at its crash point.
#[derive(Clone, Debug)]
pub struct Crashing<S> {
    inner: S,
    layer: CrashLayer,
}

impl<S> Service<http::Request<Body>> for Crashing<S>
where
    S: Service<http::Request<Body>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let reads = [http::Method::GET, http::Method::HEAD].contains(request.method());
        let count = if reads { 0 } else { self.layer.writes.fetch_add(1, Ordering::Relaxed) + 1 };
        let CrashLayer { point, exit, .. } = self.layer.clone();
        if count > 0 && point.before == Some(count) {
            tracing::error!(write = count, method = %request.method(), uri = %request.uri(), "ending before this write");
            exit();
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if count > 0 && point.after == Some(count) {
                tracing::error!(write = count, "ending after this write");
                exit();
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tower::{ServiceExt, service_fn};

    static LOG: Mutex<Vec<String>> = parking_lot::const_mutex(Vec::new());

    fn note(text: &str) {
        LOG.lock().push(text.to_owned());
    }

    #[tokio::test]
    async fn it_ends_at_its_write_and_reads_do_not_count() {
        let layer = CrashLayer {
            point: CrashPoint { before: Some(3), after: Some(2) },
            exit: || note("exit"),
            ..CrashLayer::new(CrashPoint::default())
        };
        let server = service_fn(|request: http::Request<Body>| async move {
            note(request.method().as_str());
            Ok::<_, std::convert::Infallible>(())
        });
        let mut client = layer.layer(server);
        for method in ["PATCH", "GET", "DELETE", "GET", "POST", "PATCH"] {
            let request =
                http::Request::builder().method(method).uri("/x").body(Body::empty()).expect("a request");
            client.ready().await.expect("ready").call(request).await.expect("an answer");
        }
        let log = LOG.lock().clone();
        assert_eq!(log, ["PATCH", "GET", "DELETE", "exit", "GET", "exit", "POST", "PATCH"]);
    }
}
