//! The epoch on every answer, and the permit in front of every call (design §6.5, §6.10).

use crate::{
    admin::Protocol,
    ha::{Leader, connections::Activity},
    permit::ServingPermit,
    rpc::service::Service,
};
use http::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tonic::{Code, Status, body::Body};
use tonic_types::{ErrorDetails, StatusExt};
use tower::Service as TowerService;

/// Metadata that carries the epoch, both ways.
pub(super) const EPOCH: HeaderName = HeaderName::from_static("mooncake-epoch");

/// Refuses a call without the permit or with another epoch than this master's, and stamps every answer.
#[derive(Clone)]
pub(super) struct EpochService<S> {
    inner: S,
    permit: Arc<ServingPermit>,
    leader: Arc<dyn Fn() -> Option<Leader> + Send + Sync>,
    activity: Arc<Activity>,
    service: Arc<Service>,
}

impl<S> EpochService<S> {
    /// For one connection.
    pub(super) fn new(inner: S, service: Arc<Service>, activity: Arc<Activity>) -> Self {
        let (permit, leader) = (service.permit().clone(), service.info().leader.clone());
        EpochService { inner, permit, leader, activity, service }
    }
}

impl<S> TowerService<http::Request<Incoming>> for EpochService<S>
where
    S: TowerService<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let epoch = self.permit.epoch();
        if self.permit.is_holding() {
            // What ends the hold ends the connection, too.
            let over = self.permit.hold_over();
            return Box::pin(async move {
                over.await;
                Ok(stamp(not_serving().into_http(), epoch))
            });
        }
        if let Err(status) = self.check(&request, epoch) {
            return Box::pin(std::future::ready(Ok(stamp(status.into_http(), epoch))));
        }
        let under_way = self.activity.detached_call();
        let answer = self.inner.call(request);
        let counted = self.service.telemetry().begin_detached(Protocol::Grpc);
        Box::pin(async move {
            let _under_way = (under_way, counted);
            answer.await.map(|response| stamp(response, epoch))
        })
    }
}

fn not_serving() -> Status {
    Status::unavailable("this master is not serving now; connect to the active again")
}

impl<S> EpochService<S> {
    fn check<B>(&self, request: &http::Request<B>, epoch: u64) -> Result<(), Status> {
        if !self.permit.held() {
            return Err(not_serving());
        }
        let Some(believed) = request.headers().get(&EPOCH) else { return Ok(()) };
        match believed.to_str().ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(believed) if believed == epoch => Ok(()),
            Some(believed) => Err(not_leader(believed, epoch, (self.leader)())),
            None => Err(Status::invalid_argument("mooncake-epoch: expected an unsigned decimal number")),
        }
    }
}

/// The details say who leads in which epoch, as far as this master knows.
fn not_leader(believed: u64, epoch: u64, leader: Option<Leader>) -> Status {
    let message =
        format!("NOT_LEADER: the call believes in epoch {believed}, this master serves epoch {epoch}");
    let hint = leader.map(|leader| {
        [("leader_address".to_owned(), leader.address), ("leader_epoch".to_owned(), leader.epoch.to_string())]
    });
    let metadata: HashMap<_, _> = hint.into_iter().flatten().collect();
    let details = ErrorDetails::with_error_info("NOT_LEADER", "mooncake.master.v1", metadata);
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

fn stamp(mut response: http::Response<Body>, epoch: u64) -> http::Response<Body> {
    response.headers_mut().insert(EPOCH, HeaderValue::from(epoch));
    response
}
