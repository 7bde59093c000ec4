//! Which service a gRPC call is for.

use super::steps::Calls;
use futures::future::{BoxFuture, Either};
use mooncake_proto::v1::master_service_server::MasterServiceServer;
use std::{
    convert::Infallible,
    task::{Context, Poll},
};
use tonic::{body::Body, server::NamedService, service::Routes};
use tower::Service;

type Answer = Result<http::Response<Body>, Infallible>;
type OfOthers = <Routes as Service<http::Request<Body>>>::Future;

/// The master's own service is called directly, all others by tonic's routes: nearly every call is for the first, and a
/// route costs it a search, a copy of the service and two bodies in boxes.
#[derive(Clone)]
pub(super) struct Router {
    master: MasterServiceServer<Calls>,
    others: Routes,
}

impl Router {
    pub(super) fn new(master: MasterServiceServer<Calls>, others: Routes) -> Router {
        Router { master, others }
    }
}

fn is_for_the_master(path: &str) -> bool {
    let service =
        path.strip_prefix('/').and_then(|path| path.strip_prefix(MasterServiceServer::<Calls>::NAME));
    service.is_some_and(|method| method.starts_with('/'))
}

impl Service<http::Request<Body>> for Router {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Answer>, OfOthers>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The other one always is.
        Service::<http::Request<Body>>::poll_ready(&mut self.others, cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if is_for_the_master(request.uri().path()) {
            Either::Left(self.master.call(request))
        } else {
            Either::Right(self.others.call(request))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_name_of_the_service_is_the_masters() {
        assert!(is_for_the_master("/mooncake.master.v1.MasterService/Ping"));
        for other in [
            "/mooncake.master.v1.MasterService",
            "/mooncake.master.v1.MasterServices/Ping",
            "/grpc.health.v1.Health/Check",
            "mooncake.master.v1.MasterService/Ping",
            "/",
            "",
        ] {
            assert!(!is_for_the_master(other), "{other}");
        }
    }
}
