//! The two protocols on one port: native (coro_rpc + struct_pack) and gRPC, told apart by their first byte.
//!
//! An accept thread hands connections to data threads; each data thread owns its connections and never blocks on a
//! shard: a call that finds its shard held is parked, and the thread serves its other connections meanwhile.

mod acceptor;
mod budget;
mod connection;
mod data_thread;
mod event_loop;
mod generations;
pub mod grpc;
pub mod native;
mod native_calls;
mod native_connection;
mod same_node;
mod server;
mod service;
mod telemetry;

pub use acceptor::{AcceptLimits, AcceptStats};
pub use budget::{Budget, Reservation};
pub use data_thread::ThreadState;
pub use generations::Generations;
pub use server::{Ear, Plane, Server, ServerOptions, bind};
pub use service::{HealthReport, Service, ServiceInfo};
