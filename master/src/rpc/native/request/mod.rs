//! What the master is asked, decoded from a frame without a copy.

mod arguments;

pub use arguments::*;

use super::{
    body::{Parsed, Problem, Reader, open},
    field::{Field, Step},
    frame::{RpcErrorCode, write_error},
    generation::{Method, Rpc},
    types::Member,
};
use bytes::BytesMut;

/// Why a request cannot be served; the connection goes on.
///
/// Flags other than 0 and 1 and numbers that name no value of their enum (a `replica_type` of 77, a
/// `soft_pin_action` of 9) belong here and not to INVALID_PARAMS: no client of a known generation can send them, so
/// the bytes are not what their type hash says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No function of that id in this generation.
    #[error("the rpc function not registered")]
    UnknownFunction,
    /// The arguments are not those of the function.
    #[error("invalid rpc arg: {method:?}: {problem}")]
    Arguments {
        /// Which function.
        method: Method,
        /// Where and what.
        problem: Problem,
    },
}

impl DecodeError {
    /// The code in the header of the answer.
    pub fn code(&self) -> RpcErrorCode {
        match self {
            DecodeError::UnknownFunction => RpcErrorCode::NotRegistered,
            DecodeError::Arguments { .. } => RpcErrorCode::InvalidArguments,
        }
    }

    /// Appends the answer.
    pub fn answer(&self, out: &mut BytesMut, seq: u32) {
        write_error(out, seq, self.code(), &self.to_string());
    }
}

macro_rules! requests {
    ($($method:ident => $args:ident $(<$lt:lifetime>)?;)*) => {
        /// A request, borrowed from its frame.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub enum Request<'a> {
            $($method($args $(<$lt>)?),)*
            /// A function of upstream's that this master does not serve; its arguments are in order.
            Unserved(Method),
        }

        impl Request<'_> {
            /// Which function.
            pub fn method(&self) -> Method {
                match self {
                    $(Request::$method(_) => Method::$method,)*
                    Request::Unserved(method) => *method,
                }
            }
        }

        /// How to read these arguments of `method`; `None` if it is not served.
        pub(super) fn plan(method: Method, members: &'static [Member]) -> Option<Step> {
            Some(Step::arguments(match method {
                $(Method::$method => $args::plan(members),)*
                _ => return None,
            }))
        }

        fn read<'a>(method: Method, reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Request<'a>> {
            Ok(match method {
                $(Method::$method => Request::$method($args::read(reader, step)?),)*
                _ => Request::Unserved(method),
            })
        }
    };
}

requests! {
    ServiceReady => Nothing;
    GetFsdir => Nothing;
    GetStorageConfig => Nothing;
    HealthCheck => Nothing;
    HeartbeatServiceReady => Nothing;
    GetHeartbeatRpcPort => Nothing;
    Ping => OneClient;
    ExistKey => OneKey<'a>;
    BatchExistKey => ManyKeys<'a>;
    GetReplicaList => OneKey<'a>;
    BatchGetReplicaList => ManyKeys<'a>;
    GetReplicaListByRegex => Pattern<'a>;
    PutStart => Start<'a>;
    PutEnd => End<'a>;
    PutRevoke => OwnReplicas<'a>;
    BatchPutStart => BatchStart<'a>;
    BatchPutEnd => BatchEnd<'a>;
    BatchPutRevoke => ManyOwnReplicas<'a>;
    UpsertStart => Start<'a>;
    UpsertEnd => End<'a>;
    UpsertRevoke => OwnReplicas<'a>;
    BatchUpsertStart => BatchStart<'a>;
    BatchUpsertEnd => BatchEnd<'a>;
    BatchUpsertRevoke => ManyOwnReplicas<'a>;
    Remove => Remove<'a>;
    BatchRemove => BatchRemove<'a>;
    RemoveByRegex => RemoveByRegex<'a>;
    RemoveAll => RemoveAll<'a>;
    BatchReplicaClear => ReplicaClear<'a>;
    MountSegment => Mount<'a>;
    ReMountSegment => ReMount<'a>;
    UnmountSegment => Unmount;
    GracefulUnmountSegment => GracefulUnmount;
    QuerySegmentStatus => SegmentName<'a>;
    QuerySegmentStatusById => SegmentById;
    BatchQueryIp => ManyClients<'a>;
    FetchTasks => FetchTasks;
    QueryTask => TaskById;
    CreateCopyTask => CreateCopy<'a>;
    CreateMoveTask => CreateMove<'a>;
    CopyStart => CopyStart<'a>;
    CopyEnd => ClientKey<'a>;
    CopyRevoke => ClientKey<'a>;
    MoveStart => MoveStart<'a>;
    MoveEnd => ClientKey<'a>;
    MoveRevoke => ClientKey<'a>;
    MarkTaskToComplete => MarkTask<'a>;
    MountLocalDiskSegment => Offloading;
    UnmountLocalDiskSegment => OneClient;
    OffloadObjectHeartbeat => Offloading;
    PollRemoveAll => OneClient;
    PromotionObjectHeartbeat => OneClient;
    ReportSsdCapacity => SsdCapacity;
    NotifyOffloadSuccess => OffloadSuccess<'a>;
    EvictDiskReplica => OwnReplicas<'a>;
    BatchEvictDiskReplica => ManyOwnReplicas<'a>;
}

/// Decodes and checks the whole body; nothing is allocated, lists are read again while iterating.
///
/// Like upstream: bytes behind the arguments are accepted, the body of a call without arguments is ignored, the type
/// literal may be there or not.
pub fn decode<'a>(rpc: &'static Rpc, body: &'a [u8]) -> Result<Request<'a>, DecodeError> {
    let method = rpc.method();
    arguments(rpc, body).map_err(|problem| DecodeError::Arguments { method, problem })
}

fn arguments<'a>(rpc: &'static Rpc, body: &'a [u8]) -> Parsed<Request<'a>> {
    let mut reader = if rpc.args().is_empty() { Reader::new(&[], 1) } else { open(body, rpc.accepted())?.0 };
    if let Some(plan) = rpc.plan() {
        return read(rpc.method(), &mut reader, plan);
    }
    for (name, ty) in rpc.args() {
        reader.skip(*ty).map_err(|problem| problem.in_field(name))?;
    }
    Ok(Request::Unserved(rpc.method()))
}
