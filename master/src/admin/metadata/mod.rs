//! The HTTP metadata server (facts §6.9): a small key-value store in which transfer engines find each other, for clients
//! that are configured with `http://.../metadata`. It has a thread of its own; what peers put there is bounded. The clean-up
//! of what lost clients have left reaches one that runs elsewhere, too.

mod entries;
mod keys;
mod remote;

pub use entries::MetadataEntries;
pub use remote::RemoteMetadata;

use entries::{Full, MAX_VALUE};

use super::http::{self, Limits};
use crate::config::MetadataConfig;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The running server; it ends when this is dropped.
#[derive(Debug)]
pub struct MetadataServer {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl MetadataServer {
    /// Binds and starts. An error names the options whose address could not be bound.
    pub fn start(config: &MetadataConfig, entries: Arc<MetadataEntries>) -> io::Result<MetadataServer> {
        let wanted = SocketAddr::new(config.host, config.port);
        let options = "http_metadata_server_host, http_metadata_server_port";
        let listener = TcpListener::bind(wanted).map_err(|e| {
            io::Error::new(e.kind(), format!("HTTP metadata server: {wanted} ({options}): {e}"))
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (started, start_result) = mpsc::channel();
        let thread = std::thread::Builder::new().name("http-metadata".to_owned()).spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener);
                let failure = listener.map(|listener| {
                    // Every client of a pool asks here, often many from one host.
                    let limits = Limits { total: 4096, per_address: 2048, ..Limits::default() };
                    tokio::spawn(http::serve(listener, router(entries), limits));
                });
                let failed = failure.is_err();
                // The receiver waits for exactly this message.
                let _ = started.send(failure);
                if !failed {
                    stopped.cancelled().await;
                }
            });
        })?;
        start_result
            .recv()
            .map_err(|_| io::Error::other("the HTTP metadata server ended at its start"))??;
        Ok(MetadataServer { address, stop, thread: Some(thread) })
    }

    /// Where it is bound.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(entries: Arc<MetadataEntries>) -> Router {
    Router::new()
        .route("/health", get(async || "OK"))
        .route("/metadata", get(read).put(write).delete(remove))
        .layer(DefaultBodyLimit::max(MAX_VALUE))
        .with_state(entries)
}

type Shared = State<Arc<MetadataEntries>>;

/// No key was named.
#[derive(Debug)]
struct NoKey;

impl IntoResponse for NoKey {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, "Missing key parameter").into_response()
    }
}

/// The key, decoded, so that it is the same one however a client escapes it.
fn key(query: Option<&str>) -> Result<Vec<u8>, NoKey> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let key = pairs.into_iter().find(|(name, value)| *name == "key" && !value.is_empty());
    key.map(|(_, value)| super::query::percent_decoded(value)).ok_or(NoKey)
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "metadata not found").into_response()
}

async fn read(State(entries): Shared, RawQuery(query): RawQuery) -> Result<Response, NoKey> {
    let value = entries.get(&key(query.as_deref())?);
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok(value.map_or_else(not_found, |value| (json, value).into_response()))
}

async fn write(State(entries): Shared, RawQuery(query): RawQuery, value: Bytes) -> Result<Response, NoKey> {
    let key = key(query.as_deref())?;
    Ok(match entries.put(&key, &value) {
        Ok(()) => "metadata updated".into_response(),
        Err(full @ Full::KeyTooLong) => (StatusCode::BAD_REQUEST, full.to_string()).into_response(),
        Err(full @ Full::NoRoom) => (StatusCode::INSUFFICIENT_STORAGE, full.to_string()).into_response(),
    })
}

async fn remove(State(entries): Shared, RawQuery(query): RawQuery) -> Result<Response, NoKey> {
    let was_there = entries.remove(&key(query.as_deref())?);
    Ok(if was_there { "metadata deleted".into_response() } else { not_found() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        time::Duration,
    };

    fn start(host: &str) -> MetadataServer {
        let config = MetadataConfig {
            host: host.parse().expect("an address"),
            port: 0,
            clean_up: true,
            cluster: String::new(),
        };
        MetadataServer::start(&config, MetadataEntries::new("", Arc::new(BootClock))).expect("started")
    }

    fn ask(server: &MetadataServer, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(server.local_address()).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("sent");
        // A body that is refused may be refused before all of it was read.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
    }

    /// The answers of the C++ master's server, word by word.
    #[test]
    fn entries_are_put_read_and_deleted() {
        let server = start("127.0.0.1");
        let said = |status: u16, text: &str| (status, text.to_owned());
        let key = "/metadata?key=mooncake%2Fram%2Fh%3A1";
        assert_eq!(ask(&server, "GET", "/health", b""), said(200, "OK"));
        assert_eq!(ask(&server, "GET", key, b""), said(404, "metadata not found"));
        for path in ["/metadata", "/metadata?key="] {
            for method in ["GET", "PUT", "DELETE"] {
                assert_eq!(
                    ask(&server, method, path, b""),
                    said(400, "Missing key parameter"),
                    "{method} {path}"
                );
            }
        }
        assert_eq!(ask(&server, "PUT", key, b"{\"x\":1}"), said(200, "metadata updated"));
        assert_eq!(ask(&server, "PUT", key, b"{\"x\":2}"), said(200, "metadata updated"));
        assert_eq!(ask(&server, "GET", key, b""), said(200, "{\"x\":2}"));
        assert_eq!(
            ask(&server, "GET", "/metadata?key=mooncake/ram/h:1", b""),
            said(200, "{\"x\":2}"),
            "decoded"
        );
        assert_eq!(ask(&server, "DELETE", key, b""), said(200, "metadata deleted"));
        assert_eq!(ask(&server, "DELETE", key, b""), said(404, "metadata not found"));
        assert_eq!(ask(&server, "PUT", key, &vec![0; MAX_VALUE + 1]).0, 413);
        assert_eq!(ask(&server, "PUT", &format!("/metadata?key={}", "k".repeat(5000)), b"x").0, 400);
    }

    #[test]
    fn it_binds_the_address_it_is_told_and_names_one_that_is_taken() {
        let server = start("::1");
        assert_eq!(server.local_address().ip(), std::net::IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(ask(&server, "GET", "/health", b"").0, 200);
        let taken = server.local_address();
        let config =
            MetadataConfig { host: taken.ip(), port: taken.port(), clean_up: false, cluster: String::new() };
        let error = MetadataServer::start(&config, MetadataEntries::new("", Arc::new(BootClock)));
        let text = error.expect_err("taken").to_string();
        assert!(text.contains("http_metadata_server_port") && text.contains(&taken.to_string()), "{text}");
    }
}
