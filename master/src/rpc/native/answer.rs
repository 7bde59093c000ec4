//! Answers, encoded straight into the output of a connection, in the short form.

mod elements;

pub use elements::Elements;

use super::{
    body::{Parsed, Reader, width_for, write_head},
    field::{Field, Step, wire_structs},
    frame::{RESPONSE_HEADER, ResponseHeader, RpcErrorCode, write_error},
    generation::{AnswerShape, Rpc},
    types::{Member, Signature, Type},
};
use crate::{
    error::ErrorCode,
    types::{
        ClientStatus, DiskDescriptor, ReplicaDescriptor, ReplicaList, ReplicaListRef, ReplicaRef, Replicas,
        ReplicasRef, Uuid,
    },
};
use bytes::{BufMut, BytesMut};
use smallvec::{Array, SmallVec};
use std::sync::Arc;

/// Appends the answer to a request: header, head and `value`.
///
/// `value` must be of the function's result type (checked in debug builds). All sizes of a message have one width,
/// that of its largest container; a message is written with one-byte sizes, or what [`Payload::widest_hint`] says,
/// and once more when that was too small.
pub fn write<T: Payload + ?Sized>(out: &mut BytesMut, seq: u32, rpc: &Rpc, value: &T) {
    debug_assert!(
        T::fits(rpc.result()),
        "{:?}: not its result type: {}",
        rpc.method(),
        std::any::type_name::<T>()
    );
    let header = |body| ResponseHeader { error: 0, seq, body, attachment: 0 }.to_bytes();
    let start = out.len();
    let whole = message(out, header(0), rpc.result_signature(), rpc.shape(), value);
    let body = out.len() - start - RESPONSE_HEADER;
    if let (true, Ok(body)) = (whole, u32::try_from(body)) {
        out[start..start + RESPONSE_HEADER].copy_from_slice(&header(body));
    } else {
        out.truncate(start);
        let message = format!("the answer has {body} bytes, more than a frame can hold");
        write_error(out, seq, RpcErrorCode::MessageTooLarge, &message);
    }
}

/// Appends `header` and a body; false if its containers need sizes that do not fit a frame.
pub(super) fn message<T: Payload + ?Sized, const N: usize>(
    out: &mut BytesMut,
    header: [u8; N],
    signature: &Signature,
    shape: AnswerShape,
    value: &T,
) -> bool {
    let start = out.len();
    let mut width = width_for(value.widest_hint());
    loop {
        out.reserve(N + 32);
        out.put_slice(&header);
        write_head(out, signature, width, false);
        let mut writer = Writer { out, width, widest: 0, shape };
        value.write(&mut writer);
        let needed = width_for(writer.widest);
        // A hint may be too large: the width must be the smallest, so that is written again as well.
        if needed == width {
            return width < 8;
        }
        out.truncate(start);
        width = needed;
    }
}

/// Where a payload is written.
#[derive(Debug)]
pub struct Writer<'b> {
    out: &'b mut BytesMut,
    width: u8,
    /// The largest size so far.
    widest: usize,
    shape: AnswerShape,
}

impl Writer<'_> {
    fn size(&mut self, size: usize) {
        self.widest = self.widest.max(size);
        // A size that is too large for the width is cut off here; then the whole message is written again.
        match self.width {
            1 => self.out.put_u8(size as u8),
            2 => self.out.put_u16_le(size as u16),
            4 => self.out.put_u32_le(size as u32),
            _ => self.out.put_u64_le(size as u64),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.out.put_slice(bytes);
    }
}

/// A value of the wire. Composes like the wire's own types: vectors are slices, `tl::expected` is `Result`.
pub trait Payload {
    /// Whether values described as `ty` are written by this.
    fn fits(ty: Type) -> bool;
    /// Appends the value.
    fn write(&self, writer: &mut Writer<'_>);
    /// A size that is in the value for certain; saves writing it twice.
    fn widest_hint(&self) -> usize {
        0
    }
}

impl<T: Payload + ?Sized> Payload for &T {
    fn fits(ty: Type) -> bool {
        T::fits(ty)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        (**self).write(writer);
    }
    fn widest_hint(&self) -> usize {
        (**self).widest_hint()
    }
}

macro_rules! leaves {
    ($($ty:ty = $described:ident: |$value:ident, $writer:ident| $write:expr;)*) => {$(
        impl Payload for $ty {
            fn fits(ty: Type) -> bool {
                ty == Type::$described
            }
            fn write(&self, $writer: &mut Writer<'_>) {
                let $value = self;
                $write
            }
        }
    )*};
}
leaves! {
    () = Void: |_value, _writer| ();
    bool = Bool: |value, writer| writer.out.put_u8((*value).into());
    u8 = U8: |value, writer| writer.out.put_u8(*value);
    i32 = I32: |value, writer| writer.out.put_i32_le(*value);
    u32 = U32: |value, writer| writer.out.put_u32_le(*value);
    i64 = I64: |value, writer| writer.out.put_i64_le(*value);
    u64 = U64: |value, writer| writer.out.put_u64_le(*value);
    str = Str: |value, writer| writer.bytes(value.as_bytes());
    Bytes<'_> = Str: |value, writer| writer.bytes(value.0);
    Arc<[u8]> = Str: |value, writer| writer.bytes(value);
    Box<[u8]> = Str: |value, writer| writer.bytes(value);
}

/// A string that is any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Payload for Uuid {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Struct(described) if described.plain && described.name == "UUID")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_u64_le(self.first);
        writer.out.put_u64_le(self.second);
    }
}

impl<T: Payload> Payload for Option<T> {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Opt(value) if T::fits(*value))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_u8(self.is_some().into());
        if let Some(value) = self {
            value.write(writer);
        }
    }
}

impl<T: Payload> Payload for Result<T, ErrorCode> {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Expected(value) if T::fits(*value))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_u8(self.is_ok().into());
        match self {
            Ok(value) => value.write(writer),
            Err(code) => writer.out.put_i32_le(code.number()),
        }
    }
    fn widest_hint(&self) -> usize {
        self.as_ref().map_or(0, T::widest_hint)
    }
}

impl<T: Payload> Payload for [T] {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Seq(element) if T::fits(*element))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.size(self.len());
        for element in self {
            element.write(writer);
        }
    }
    fn widest_hint(&self) -> usize {
        self.len()
    }
}

impl<T: Payload> Payload for Vec<T> {
    fn fits(ty: Type) -> bool {
        <[T]>::fits(ty)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.as_slice().write(writer);
    }
    fn widest_hint(&self) -> usize {
        self.len()
    }
}

impl<A: Array<Item: Payload>> Payload for SmallVec<A> {
    fn fits(ty: Type) -> bool {
        <[A::Item]>::fits(ty)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.as_slice().write(writer);
    }
    fn widest_hint(&self) -> usize {
        self.len()
    }
}

/// A map, from its pairs.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a, K, V>(pub &'a [(K, V)]);

impl<K: Payload, V: Payload> Payload for Pairs<'_, K, V> {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Map(key, value) if K::fits(*key) && V::fits(*value))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.size(self.0.len());
        for (key, value) in self.0 {
            key.write(writer);
            value.write(writer);
        }
    }
    fn widest_hint(&self) -> usize {
        self.0.len()
    }
}

/// A vector or map of any type without elements: no tasks, no offload work.
#[derive(Clone, Copy, Debug)]
pub struct Empty;

impl Payload for Empty {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Seq(_) | Type::Map(..))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.size(0);
    }
}

/// The error arm of any `tl::expected`.
#[derive(Clone, Copy, Debug)]
pub struct Refused(pub ErrorCode);

impl Payload for Refused {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Expected(_))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_u8(0);
        writer.out.put_i32_le(self.0.number());
    }
}

/// The same error for each of `count` elements of a batch.
#[derive(Clone, Copy, Debug)]
pub struct AllRefused {
    /// Why.
    pub code: ErrorCode,
    /// How many keys the batch had.
    pub count: usize,
}

impl Payload for AllRefused {
    fn fits(ty: Type) -> bool {
        matches!(ty, Type::Seq(Type::Expected(_)))
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.size(self.count);
        (0..self.count).for_each(|_| Refused(self.code).write(writer));
    }
    fn widest_hint(&self) -> usize {
        self.count
    }
}

/// Whether `ty` is the struct of that name.
fn named(ty: Type, name: &str) -> bool {
    matches!(ty, Type::Struct(described) if described.name == name)
}

impl Payload for ReplicaDescriptor {
    fn fits(ty: Type) -> bool {
        ReplicaRef::fits(ty)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.borrow().write(writer);
    }
}

/// As a memory replica, which is the first alternative in every generation.
impl Payload for ReplicaRef<'_> {
    fn fits(ty: Type) -> bool {
        named(ty, "Replica::Descriptor")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_u64_le(self.id);
        writer.out.put_u8(0);
        writer.out.put_u64_le(self.size);
        writer.out.put_u64_le(self.address);
        writer.bytes(&self.segment.protocol);
        writer.bytes(&self.segment.te_endpoint);
        writer.out.put_i32_le(self.status as i32);
    }
}

/// As a DISK replica. Generations without it are never asked for one: all have it.
impl Payload for DiskDescriptor {
    fn fits(ty: Type) -> bool {
        named(ty, "Replica::Descriptor")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_u64_le(self.id);
        writer.out.put_u8(writer.shape.disk_variant);
        writer.bytes(&self.file_path);
        writer.out.put_u64_le(self.size);
        writer.out.put_i32_le(self.status as i32);
    }
}

/// The same for what is owned and what is borrowed.
macro_rules! replica_lists {
    ($($replicas:ty, $list:ty;)*) => {$(
        impl Payload for $replicas {
            fn fits(ty: Type) -> bool {
                <[ReplicaDescriptor]>::fits(ty)
            }
            fn write(&self, writer: &mut Writer<'_>) {
                writer.size(self.count());
                for replica in &self.memory {
                    replica.write(writer);
                }
                if let Some(disk) = &self.disk {
                    disk.write(writer);
                }
            }
            fn widest_hint(&self) -> usize {
                self.count()
            }
        }

        impl Payload for $list {
            fn fits(ty: Type) -> bool {
                named(ty, "GetReplicaListResponse")
            }
            fn write(&self, writer: &mut Writer<'_>) {
                self.replicas.write(writer);
                writer.out.put_u64_le(self.lease_ttl_ms);
                if writer.shape.has_checksum {
                    self.object_checksum.write(writer);
                }
            }
        }
    )*};
}
replica_lists! {
    Replicas, ReplicaList;
    ReplicasRef<'_>, ReplicaListRef<'_>;
}

/// The answer to a Ping.
#[derive(Clone, Copy, Debug)]
pub struct Pong {
    /// The epoch; 0 without HA.
    pub view_version: i64,
    /// Whether the client has to remount.
    pub status: ClientStatus,
}

impl Payload for Pong {
    fn fits(ty: Type) -> bool {
        named(ty, "PingResponse")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.out.put_i64_le(self.view_version);
        writer.out.put_i32_le(self.status as i32);
    }
}

/// The answer to GetStorageConfig.
#[derive(Clone, Copy, Debug)]
pub struct StorageConfig<'a> {
    /// Where clients put files; empty for none.
    pub fsdir: &'a str,
    /// Whether they evict them.
    pub enable_disk_eviction: bool,
    /// Bytes.
    pub quota_bytes: u64,
}

impl Payload for StorageConfig<'_> {
    fn fits(ty: Type) -> bool {
        named(ty, "GetStorageConfigResponse")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.fsdir.write(writer);
        self.enable_disk_eviction.write(writer);
        self.quota_bytes.write(writer);
    }
}

wire_structs! {
    /// The answer to HealthCheck (A1, A2).
    #[derive(Copy, PartialEq, Eq)]
    Health {
        /// Every shard could be read.
        ok: bool = "ok",
        /// Shards that could, in order from the first.
        shards_checked: u64 = "shards_checked",
        /// Index of the first that could not; 0 if all could.
        shards_blocked: u64 = "shards_blocked",
    }
    /// The answer to HeartbeatServiceReady (C3).
    #[derive(Copy, PartialEq, Eq)]
    HeartbeatReady {
        /// 0 if there is no port of its own.
        heartbeat_rpc_port: u32 = "heartbeat_rpc_port",
    }
}

impl Payload for Health {
    fn fits(ty: Type) -> bool {
        named(ty, "HealthCheckResponse")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.ok.write(writer);
        self.shards_checked.write(writer);
        self.shards_blocked.write(writer);
    }
}

impl Payload for HeartbeatReady {
    fn fits(ty: Type) -> bool {
        named(ty, "HeartbeatServiceReadyResponse")
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.heartbeat_rpc_port.write(writer);
    }
}
