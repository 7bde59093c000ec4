//! A master's HealthCheck and nothing else, over gRPC.

use futures::stream;
use http_body_util::StreamBody;
use hyper::{
    HeaderMap,
    body::{Bytes, Frame},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tokio::{net::TcpListener, task::JoinSet};

/// `{ok: true, shards_checked: 1024}`, after the five bytes that come before each message.
const OK: &[u8] = &[0, 0, 0, 0, 5, 8, 1, 16, 128, 8];
/// `{shards_checked: 7, shards_blocked: 7}`.
const BLOCKED: &[u8] = &[0, 0, 0, 0, 4, 16, 7, 24, 7];

/// Answers every call, ok or with shard 7 blocked, and counts the latter. Its connections end with it.
pub(crate) async fn serve(listener: TcpListener, blocked: Arc<AtomicBool>, count: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (blocked, count) = (Arc::clone(&blocked), Arc::clone(&count));
        let answer = service_fn(move |_| {
            let is_blocked = blocked.load(Ordering::Relaxed);
            count.fetch_add(usize::from(is_blocked), Ordering::Relaxed);
            let message = if is_blocked { BLOCKED } else { OK };
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            let frames = [Frame::data(Bytes::from_static(message)), Frame::trailers(trailers)];
            let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
            let response = http::Response::builder().header("content-type", "application/grpc").body(body);
            std::future::ready(response)
        });
        connections.spawn(async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A caller that goes away is none of its business.
            _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
