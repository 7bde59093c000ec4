//! The gRPC front end: `mooncake.master.v1`, the standard health service and reflection.

mod answer_body;
mod budget_body;
mod calls;
mod convert;
mod epoch;
mod health;
mod reads;
mod router;
mod steps;

use super::{budget::Budget, event_loop::Spawner, server::Plane, service::Service};
use crate::ha::connections::Activity;
use budget_body::BudgetService;
use epoch::EpochService;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mooncake_proto::v1::master_service_server::MasterServiceServer;
use router::Router;
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::service::Routes;

pub use health::Readiness;

/// Streams of one connection that may be open at once.
const MAX_STREAMS: u32 = 256;
/// Receive window of one stream and of one connection, bytes: what a peer may send ahead of being read.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Unsent bytes that one stream may hold.
const SEND_BUFFER: usize = 256 << 10;

/// The services of one port, ready to be put on any number of connections.
#[derive(Clone)]
pub(super) struct Stack {
    service: BudgetService<Router>,
    calls: Arc<Service>,
    stall_timeout: Duration,
}

impl Stack {
    /// `stall_timeout`: a request that stands still for this long fails, and a peer that reads nothing of an answer for
    /// this long loses its connection.
    pub(super) fn new(
        service: Arc<Service>,
        plane: Plane,
        max_frame: usize,
        budget: Arc<Budget>,
        stall_timeout: Duration,
    ) -> Stack {
        let calls = service.clone();
        let readiness = service.info().readiness.clone();
        let master = MasterServiceServer::new(steps::Calls::new(service, plane))
            .max_decoding_message_size(max_frame)
            .max_encoding_message_size(usize::MAX);
        let mut routes = Routes::default();
        if plane == Plane::Main {
            routes = routes.add_service(tonic_health::pb::health_server::HealthServer::new(
                health::Health::new(readiness),
            ));
        }
        if let Some(reflection) = reflection() {
            routes = routes.add_service(reflection);
        }
        let service = BudgetService::new(Router::new(master, routes.prepare()), budget, stall_timeout);
        Stack { service, calls, stall_timeout }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve<IO>(
        &self,
        io: IO,
        activity: Arc<Activity>,
        spawner: Spawner,
    ) -> Result<(), hyper::Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let mut builder = hyper::server::conn::http2::Builder::new(spawner);
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(16 << 10)
            // A peer that has gone without a word is noticed by this, since an idle connection has no other deadline.
            .keep_alive_interval(Duration::from_secs(60))
            .keep_alive_timeout(Duration::from_secs(20));
        let (service, unsent) = self.service.for_connection();
        let service = EpochService::new(service, self.calls.clone(), activity);
        let connection = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service));
        let stalled = async {
            unsent.stalled(self.stall_timeout).await;
            // While calls are held nothing is written, which is not the peer's doing; their connection ends with that.
            self.calls.permit().hold_over().await;
        };
        tokio::select! {
            result = connection => result,
            () = stalled => {
                tracing::debug!("a peer does not read an answer; closing its connection");
                Ok(())
            }
        }
    }
}

fn reflection() -> Option<
    tonic_reflection::server::v1::ServerReflectionServer<impl tonic_reflection::server::v1::ServerReflection>,
> {
    let built = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(mooncake_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    // Both sets are compiled in; a failure here is a defect that the reflection test shows, not a reason not to serve.
    built.inspect_err(|error| tracing::error!(%error, "gRPC reflection is not available")).ok()
}
