//! The standard gRPC health service: SERVING exactly when `/readyz` is 200 (A5).

use futures::Stream;
use std::{pin::Pin, sync::Arc, time::Duration};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
};

/// How often a watcher's status is looked at.
const WATCH_PERIOD: Duration = Duration::from_millis(250);

/// The cached answer of `/readyz`.
pub type Readiness = Arc<dyn Fn() -> bool + Send + Sync>;

pub(super) struct Health {
    ready: Readiness,
}

impl Health {
    pub(super) fn new(ready: Readiness) -> Self {
        Health { ready }
    }
}

fn status_of(ready: &Readiness) -> HealthCheckResponse {
    let status = if ready() { ServingStatus::Serving } else { ServingStatus::NotServing };
    HealthCheckResponse { status: status as i32 }
}

fn known(service: &str) -> Result<(), Status> {
    match service {
        "" | "mooncake.master.v1.MasterService" => Ok(()),
        other => Err(Status::not_found(format!("service: {other:?} is not served here"))),
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        known(&request.get_ref().service)?;
        Ok(Response::new(status_of(&self.ready)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        known(&request.get_ref().service)?;
        let ready = self.ready.clone();
        let changes = futures::stream::unfold(None, move |last: Option<HealthCheckResponse>| {
            let ready = ready.clone();
            async move {
                let mut now = status_of(&ready);
                while last.as_ref() == Some(&now) {
                    tokio::time::sleep(WATCH_PERIOD).await;
                    now = status_of(&ready);
                }
                Some((Ok(now), Some(now)))
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
