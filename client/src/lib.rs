//! A gRPC client of the Mooncake Store master (`mooncake.master.v1`).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mooncake_client::{Client, ClientOptions, v1};
//! let client = Client::connect(ClientOptions::new("127.0.0.1:50051")).await?;
//! let id = v1::Uuid { first: 1, second: 1 };
//! let segment = v1::Segment { id: Some(id), name: "host-a:12345".into(), base: 1 << 32, size: 64 << 20, ..Default::default() };
//! client.mount_segment(segment).await?; // kept alive by heartbeats from here on
//! let replicas = client.put_start("key", 4096, None).await?;
//! // ... write the bytes to where `replicas` says ...
//! client.put_end("key", None, None).await?;
//! assert!(client.exist_key("key").await?);
//! # Ok(())
//! # }
//! ```
//!
//! What it takes care of:
//! - **Handshake** (C4): `ServiceReady` and the store's version on the main port, then the route of the heartbeats by
//!   [`HeartbeatMode`]. What would silently expire later fails here, with a named [`ConnectError`].
//! - **Heartbeats**: while a segment is mounted, one Ping a second on that route; NEED_REMOUNT makes it mount its
//!   segments again. In auto mode two failed Pings move it to the main port, and the heartbeat port is tried again
//!   every 10 s. [`Client::heartbeat`] tells how it stands.
//! - **Reconnect** (C5): a connection that turns out dead when it is used again is replaced once, on both ports,
//!   before an error is reported; a connection that could not be made is not tried again in the same call.
//! - **Failover**: UNAVAILABLE or NOT_LEADER makes the next use begin with a new handshake. Mutations carry the epoch
//!   of their handshake, so that a master of another epoch refuses them.
//!
//! A mutation whose outcome is unknown (its connection broke after it was sent) is never sent twice.
//! The heartbeat task runs on the runtime that called [`Client::connect`]: do not block that one for seconds.

mod calls;
mod connection;
mod error;
mod handshake;
mod heartbeat;
mod options;
mod pool;
mod session;

pub use calls::Client;
pub use connection::{Connector, Io, Tcp};
pub use error::{ConnectCode, ConnectError, Error};
pub use heartbeat::HeartbeatStatus;
pub use mooncake_proto::v1;
pub use mooncake_proto::v1::ErrorCode;
pub use options::{ClientOptions, HEARTBEAT_PORT_VARIABLE, HeartbeatMode, OptionsError};
pub use session::Route;

/// What `ServiceReady` must answer; upstream's `MOONCAKE_STORE_VERSION`, the same in all its releases so far.
pub const STORE_VERSION: &str = "2.0.0";
