//! A real master process on loopback, over both protocols. One program on purpose: the tests that wait for the master's
//! own time-outs run beside the others.

mod admin_pages;
#[path = "../../../lease/tests/support/apiserver.rs"]
#[allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "shared with other tests")]
mod apiserver;
mod grpc;
mod grpc_segments;
mod hostile;
mod lifecycle;
mod native;
mod options;
mod pressure;
mod process;
mod real_client;
mod side_by_side;
mod support;
