//! The gRPC surface of the Mooncake Store master: package `mooncake.master.v1`.
//!
//! Numbers of [`v1::ErrorCode`] are upstream's (facts §10); `HEARTBEAT_ROUTING_MISMATCH` is the one addition.

/// Generated messages, client and server of `mooncake.master.v1`.
#[allow(missing_docs, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("mooncake.master.v1");
}

/// The encoded `FileDescriptorSet` of this package, for gRPC server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
