//! `/healthz`, `/readyz` and `/metrics` of the operator itself.

use crate::metrics::Metrics;
use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::net::TcpListener;

/// Whether the operator does its work: it leads and its watches are in sync, or it waits to lead.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// Sets it.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Serves until `stop` resolves.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    ready: Ready,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(metrics, ready)).with_graceful_shutdown(stop).await
}

fn router(metrics: Metrics, ready: Ready) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(|State(ready): State<Ready>| async move {
                if ready.get() {
                    (StatusCode::OK, "ok")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "starting")
                }
            })
            .with_state(ready),
        )
        .route(
            "/metrics",
            get(|State(metrics): State<Metrics>| async move {
                match metrics.render() {
                    Ok(text) => ([("content-type", "text/plain; version=0.0.4")], text).into_response(),
                    Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
                }
            })
            .with_state(metrics),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    #[tokio::test]
    async fn readiness_follows_the_flag() {
        let ready = Ready::default();
        let app = router(Metrics::new().unwrap(), ready.clone());
        let get = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap().status()
        };
        assert_eq!(get("/healthz").await, StatusCode::OK);
        assert_eq!(get("/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
        ready.set(true);
        assert_eq!(get("/readyz").await, StatusCode::OK);
        assert_eq!(get("/metrics").await, StatusCode::OK);
    }
}
