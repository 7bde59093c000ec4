//! A real master process on loopback, over both protocols. One program on purpose: the tests that wait for the master's
//! own time-outs run beside the others.

mod grpc;
mod hostile;
mod lifecycle;
mod native;
mod process;
mod real_client;
mod support;
