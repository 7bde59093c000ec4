//! The client's side: for the self-probe, tests and the load generator.
//!
//! Rare calls go through [`super::value::Value`] and [`call_value`]; the usual ones are [`call`] with a tuple of
//! arguments, answered through a [`Reading`].

use super::{
    answer::{Bytes, Payload, Writer, message},
    body::{Cause, Parsed, Problem, Reader, open},
    field::{Field, List, Step, wire_structs},
    frame::{REQUEST_HEADER, RequestHeader, read_error},
    generation::{AnswerShape, Rpc},
    types::{Member, Signature, Type},
    value::Value,
};
use crate::types::{ReplicateConfig, SoftPinAction};
use bytes::{BufMut, BytesMut};
use std::{marker::PhantomData, sync::LazyLock};

/// Arguments of a call, in the table's order.
pub trait Arguments {
    /// Whether a function with these arguments takes them.
    fn fit(members: &[Member]) -> bool;
    /// Appends them.
    fn write(&self, writer: &mut Writer<'_>);
    /// See [`Payload::widest_hint`].
    fn widest_hint(&self) -> usize;
}

macro_rules! arguments {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Payload),*> Arguments for ($($name,)*) {
            #[allow(unused_mut, unused_variables)]
            fn fit(members: &[Member]) -> bool {
                let mut members = members.iter();
                true $(&& members.next().is_some_and(|(_, ty)| $name::fits(*ty)))* && members.next().is_none()
            }
            #[allow(non_snake_case, unused_variables)]
            fn write(&self, writer: &mut Writer<'_>) {
                let ($($name,)*) = self;
                $($name.write(writer);)*
            }
            #[allow(non_snake_case)]
            fn widest_hint(&self) -> usize {
                let ($($name,)*) = self;
                0usize$(.max($name.widest_hint()))*
            }
        }
    )*};
}
arguments! { () (A) (A B) (A B C) (A B C D) (A B C D E) }

/// Makes arguments a payload, so that they are written like any other.
struct AsPayload<'a, T>(&'a T);

impl<T: Arguments> Payload for AsPayload<'_, T> {
    fn fits(_: Type) -> bool {
        true
    }
    fn write(&self, writer: &mut Writer<'_>) {
        self.0.write(writer);
    }
    fn widest_hint(&self) -> usize {
        self.0.widest_hint()
    }
}

/// Appends a request. `args` must be those of the function (checked in debug builds).
pub fn call<T: Arguments>(out: &mut BytesMut, seq: u32, rpc: &Rpc, args: &T) {
    debug_assert!(T::fit(rpc.args()), "{:?}: not its arguments", rpc.method());
    let header = |body| RequestHeader { seq, function: rpc.function_id(), body, attachment: 0 }.to_bytes();
    let start = out.len();
    match rpc.args_signature() {
        None => out.put_slice(&header(0)),
        Some(signature) => {
            message(out, header(0), signature, AnswerShape::default(), &AsPayload(args));
            let body = (out.len() - start - REQUEST_HEADER) as u32;
            out[start..start + REQUEST_HEADER].copy_from_slice(&header(body));
        }
    }
}

/// Appends a request with arguments of any described type: a tuple as a struct, a single one bare.
pub fn call_value(out: &mut BytesMut, seq: u32, rpc: &Rpc, args: &Value, literal: bool) {
    let body = rpc.args_signature().map(|signature| args.encode(signature, literal)).unwrap_or_default();
    let header = RequestHeader { seq, function: rpc.function_id(), body: body.len() as u32, attachment: 0 };
    out.put_slice(&header.to_bytes());
    out.put_slice(&body);
}

/// Why an answer is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The RPC layer of the master refused.
    #[error("rpc error {code}: {message}")]
    Rpc {
        /// From the header.
        code: u8,
        /// From the body.
        message: String,
    },
    /// The body is not of the result type.
    #[error("answer: {0}")]
    Answer(#[from] Problem),
}

/// How to read the answers of one function as `T`.
#[derive(Clone, Copy, Debug)]
pub struct Reading<T> {
    signature: &'static Signature,
    step: &'static Step,
    of: PhantomData<fn() -> T>,
}

impl<T> Reading<T> {
    /// For one function; `None` if its result is no `T`. Make it once and keep it: it lives as long as the process.
    pub fn of<'a>(rpc: &'static Rpc) -> Option<Reading<T>>
    where
        T: Field<'a>,
    {
        let step = Box::leak(Box::new(T::step(rpc.result())?));
        Some(Reading { signature: rpc.result_signature(), step, of: PhantomData })
    }

    /// Reads a body; `error` is that of its header. Decoding allocates nothing but an error's message.
    pub fn read<'a>(&self, error: u8, body: &'a [u8]) -> Result<T, CallError>
    where
        T: Field<'a>,
    {
        if error != 0 {
            let message = String::from_utf8_lossy(read_error(body)?).into_owned();
            return Err(CallError::Rpc { code: error, message });
        }
        let (mut reader, _) = open(body, [Some(self.signature), None])?;
        Ok(T::read(&mut reader, self.step)?)
    }
}

wire_structs! {
    /// A range in a client's memory.
    Buffer<'a> {
        /// Bytes.
        size: u64 = "size_",
        /// First byte.
        address: u64 = "buffer_address_",
        /// How it is reached.
        protocol: &'a [u8] = "protocol_",
        /// Where.
        endpoint: &'a [u8] = "transport_endpoint_",
    }
    /// A replica in memory.
    Memory<'a> {
        /// Where.
        buffer: Buffer<'a> = "buffer_descriptor",
    }
    /// A replica.
    Replica<'a> {
        /// Unique at its master.
        id: u64 = "id",
        /// Where.
        place: Place<'a> = "descriptor_variant",
        /// 2 in work, 3 complete.
        status: i32 = "status",
    }
    /// The answer to GetReplicaList.
    ReplicaList<'a> {
        /// At least one.
        replicas: List<'a, Replica<'a>> = "replicas",
        /// Of the read lease, milliseconds.
        lease_ttl_ms: u64 = "lease_ttl_ms",
        /// What the writer said.
        object_checksum: Option<u64> = "object_checksum",
    }
    /// The answer to a Ping.
    Pong {
        /// The epoch.
        view_version: i64 = "view_version_id",
        /// 1 ok, 2 remount.
        status: i32 = "client_status",
    }
}

/// Where a replica lies.
#[derive(Clone, Debug)]
pub enum Place<'a> {
    /// In a client's memory.
    Memory(Buffer<'a>),
    /// Elsewhere: the index of the alternative.
    Other(u8),
}

impl Default for Place<'_> {
    fn default() -> Self {
        Place::Other(0)
    }
}

impl<'a> Field<'a> for Place<'a> {
    fn step(ty: Type) -> Option<Step> {
        let Type::Variant(alternatives) = ty else { return None };
        Some(Step::one(ty, Memory::step(*alternatives.first()?)?))
    }

    fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Place<'a>> {
        if reader.rest().first() == Some(&0) {
            reader.take(1)?;
            return Ok(Place::Memory(Memory::read(reader, &step.children[0])?.buffer));
        }
        let index = *reader.rest().first().ok_or(Cause::Truncated { missing: 1 })?;
        step.skip(reader)?;
        Ok(Place::Other(index))
    }
}

/// Placement as clients of 0.3.13 send it.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// What is wanted; its `group_id` is not used.
    pub config: &'a ReplicateConfig<'a>,
    /// One for each key.
    pub group_ids: Option<&'a [Bytes<'a>]>,
}

static PLACEMENT_LITERAL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let newest = super::generation::Generation::newest();
    let config = newest.method(super::generation::Method::PutStart).map(|rpc| rpc.args()[3].1.literal());
    config.unwrap_or_default()
});

impl Payload for Placement<'_> {
    fn fits(ty: Type) -> bool {
        ty.literal() == *PLACEMENT_LITERAL
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let config = self.config;
        let wishes: Vec<Bytes<'_>> = config.preferred_segments.iter().map(|name| Bytes(name)).collect();
        config.replica_num.write(writer);
        config.nof_replica_num.write(writer);
        config.dfs_replica_num.write(writer);
        let action = match config.soft_pin_action {
            SoftPinAction::Preserve => 0u8,
            SoftPinAction::Enable => 1,
            SoftPinAction::Disable => 2,
        };
        action.write(writer);
        config.soft_pin_ttl_ms.write(writer);
        config.with_hard_pin.write(writer);
        wishes.write(writer);
        Bytes(config.preferred_segment).write(writer);
        super::answer::Empty.write(writer);
        config.prefer_alloc_in_same_node.write(writer);
        config.data_type.write(writer);
        Bytes(config.host_id).write(writer);
        self.group_ids.write(writer);
    }
}
