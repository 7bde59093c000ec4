//! The native protocol over a blocking socket: one write and one read per call, and nothing else, since the machine
//! is usually shared with the server.

use super::{CALL_TIMEOUT, Put, Segment, Tally};
use bytes::BytesMut;
use mooncake_master::{
    rpc::native::{
        answer::{Bytes, Payload, Writer},
        client::{self, Arguments, Placement, Pong, Reading, Replica, ReplicaList},
        field::{Field, List},
        frame::{Limits, RESPONSE_HEADER, ResponseHeader},
        generation::{Generation, Method, Rpc},
        types::Type,
        value::Value,
    },
    types::{ReplicateConfig, Uuid},
};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::LazyLock,
};

const TENANT: &str = "default";
/// `ReplicaType::All`.
const EVERY_KIND: i32 = 4;

/// A call and how its answer is read; made once per process.
struct Known<T> {
    rpc: &'static Rpc,
    reading: Reading<T>,
}

fn known<'a, T: Field<'a>>(method: Method) -> Known<T> {
    let rpc = Generation::newest().method(method);
    let found = rpc.and_then(|rpc| Some(Known { rpc, reading: Reading::of(rpc)? }));
    // The tables are compiled in and every call below is used by this module's test.
    found.unwrap_or_else(|| panic!("{method:?} is not as this program knows it"))
}

macro_rules! calls {
    ($($name:ident: $method:ident => $ty:ty;)*) => {
        $(static $name: LazyLock<Known<$ty>> = LazyLock::new(|| known(Method::$method));)*
    };
}

calls! {
    PING: Ping => Result<Pong, i32>;
    EXIST: ExistKey => Result<bool, i32>;
    BATCH_EXIST: BatchExistKey => List<'static, Result<bool, i32>>;
    GET: GetReplicaList => Result<ReplicaList<'static>, i32>;
    BATCH_GET: BatchGetReplicaList => List<'static, Result<ReplicaList<'static>, i32>>;
    PUT_START: PutStart => Result<List<'static, Replica<'static>>, i32>;
    PUT_END: PutEnd => Result<(), i32>;
    BATCH_PUT_START: BatchPutStart => List<'static, Result<List<'static, Replica<'static>>, i32>>;
    BATCH_PUT_END: BatchPutEnd => List<'static, Result<(), i32>>;
}

/// `ObjectMeta` without a checksum.
struct Meta<'a>(&'a [u8]);

impl Payload for Meta<'_> {
    fn fits(ty: Type) -> bool {
        let Type::Struct(described) = ty else { return false };
        matches!(described.members, [(_, Type::Str), (_, Type::Opt(Type::U64))])
    }
    fn write(&self, writer: &mut Writer<'_>) {
        Bytes(self.0).write(writer);
        None::<u64>.write(writer);
    }
}

fn slices(keys: &[Vec<u8>]) -> Vec<Bytes<'_>> {
    keys.iter().map(|key| Bytes(key)).collect()
}

fn config(preferred: &str) -> ReplicateConfig<'_> {
    ReplicateConfig { preferred_segment: preferred.as_bytes(), ..ReplicateConfig::default() }
}

fn is_there(list: Result<ReplicaList<'_>, i32>) -> Result<bool, i32> {
    list.map(|list| !list.replicas.is_empty())
}

/// A connection of a client of the newest generation.
pub(crate) struct Native {
    stream: TcpStream,
    seq: u32,
    out: BytesMut,
    input: Vec<u8>,
}

impl Native {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Native> {
        let stream = TcpStream::connect_timeout(&address, CALL_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CALL_TIMEOUT))?;
        Ok(Native { stream, seq: 0, out: BytesMut::new(), input: vec![0; 64 << 10] })
    }

    /// Sends a request and waits for its answer: the error of its header, and its body.
    fn exchange(&mut self, rpc: &Rpc, args: &impl Arguments) -> io::Result<(u8, &[u8])> {
        self.out.clear();
        client::call(&mut self.out, self.seq, rpc, args);
        self.finish()
    }

    fn finish(&mut self) -> io::Result<(u8, &[u8])> {
        self.stream.write_all(&self.out)?;
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        let mut have = 0;
        loop {
            let read = self.stream.read(&mut self.input[have..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            have += read;
            let header =
                ResponseHeader::parse(&self.input[..have], &Limits::default()).map_err(io::Error::other)?;
            let Some(header) = header else { continue };
            let whole = header.frame_len() as usize;
            if whole > self.input.len() {
                self.input.resize(whole, 0);
            }
            if have < whole {
                continue;
            }
            if have > whole || header.seq != seq {
                return Err(io::Error::other(format!("an answer to call {} instead of {seq}", header.seq)));
            }
            return Ok((header.error, &self.input[RESPONSE_HEADER..RESPONSE_HEADER + header.body as usize]));
        }
    }

    /// A rare call, with values.
    fn rare(&mut self, method: Method, args: &Value) -> io::Result<Value> {
        let rpc = Generation::newest().method(method).ok_or(io::ErrorKind::Unsupported)?;
        self.out.clear();
        client::call_value(&mut self.out, self.seq, rpc, args, false);
        let (error, body) = self.finish()?;
        if error != 0 {
            return Err(io::Error::other(format!("{}: rpc error {error}", method.name())));
        }
        Ok(Value::decode(rpc.result(), rpc.result_signature(), body).map_err(io::Error::other)?.value)
    }

    pub(crate) fn ping(&mut self, client: Uuid) -> io::Result<Result<bool, i32>> {
        let (error, body) = self.exchange(PING.rpc, &(client,))?;
        let pong = PING.reading.read(error, body).map_err(io::Error::other)?;
        Ok(pong.map(|pong| pong.status == 1))
    }

    pub(crate) fn mount(&mut self, segment: &Segment) -> io::Result<Result<(), i32>> {
        let args = Value::Struct(vec![segment_value(segment), uuid_value(segment.client)]);
        unit(self.rare(Method::MountSegment, &args)?)
    }

    pub(crate) fn remount(&mut self, segment: &Segment) -> io::Result<Result<(), i32>> {
        let segments = Value::Seq(vec![segment_value(segment)]);
        let args = Value::Struct(vec![segments, uuid_value(segment.client)]);
        unit(self.rare(Method::ReMountSegment, &args)?)
    }

    pub(crate) fn exist(&mut self, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let (error, body) = self.exchange(EXIST.rpc, &(Bytes(key), TENANT))?;
        tally.count(EXIST.reading.read(error, body).map_err(io::Error::other)?);
        Ok(())
    }

    pub(crate) fn batch_exist(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> io::Result<()> {
        let (error, body) = self.exchange(BATCH_EXIST.rpc, &(slices(keys), TENANT))?;
        let results = BATCH_EXIST.reading.read(error, body).map_err(io::Error::other)?;
        results.iter().for_each(|result| tally.count(result));
        Ok(())
    }

    pub(crate) fn get(&mut self, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let (error, body) = self.exchange(GET.rpc, &(Bytes(key), TENANT))?;
        tally.count(is_there(GET.reading.read(error, body).map_err(io::Error::other)?));
        Ok(())
    }

    pub(crate) fn batch_get(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> io::Result<()> {
        let (error, body) = self.exchange(BATCH_GET.rpc, &(slices(keys), TENANT))?;
        let results = BATCH_GET.reading.read(error, body).map_err(io::Error::other)?;
        results.iter().for_each(|result| tally.count(is_there(result)));
        Ok(())
    }

    pub(crate) fn put_start(&mut self, put: Put<'_>, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let config = config(put.preferred);
        let placement = Placement { config: &config, group_ids: None };
        let args = (put.client, Bytes(key), put.size, placement, TENANT);
        let (error, body) = self.exchange(PUT_START.rpc, &args)?;
        let result = PUT_START.reading.read(error, body).map_err(io::Error::other)?;
        tally.count(result.map(|replicas| !replicas.is_empty()));
        Ok(())
    }

    pub(crate) fn put_end(&mut self, put: Put<'_>, key: &[u8], tally: &mut Tally) -> io::Result<()> {
        let (error, body) = self.exchange(PUT_END.rpc, &(put.client, Meta(key), EVERY_KIND, TENANT))?;
        tally.count(PUT_END.reading.read(error, body).map_err(io::Error::other)?.map(|()| true));
        Ok(())
    }

    pub(crate) fn batch_put_start(
        &mut self,
        put: Put<'_>,
        keys: &[Vec<u8>],
        tally: &mut Tally,
    ) -> io::Result<()> {
        let config = config(put.preferred);
        let placement = Placement { config: &config, group_ids: None };
        let args = (put.client, slices(keys), vec![put.size; keys.len()], placement, TENANT);
        let (error, body) = self.exchange(BATCH_PUT_START.rpc, &args)?;
        let results = BATCH_PUT_START.reading.read(error, body).map_err(io::Error::other)?;
        results.iter().for_each(|result| tally.count(result.map(|replicas| !replicas.is_empty())));
        Ok(())
    }

    pub(crate) fn batch_put_end(
        &mut self,
        put: Put<'_>,
        keys: &[Vec<u8>],
        tally: &mut Tally,
    ) -> io::Result<()> {
        let metas: Vec<Meta<'_>> = keys.iter().map(|key| Meta(key)).collect();
        let (error, body) = self.exchange(BATCH_PUT_END.rpc, &(put.client, metas, EVERY_KIND, TENANT))?;
        let results = BATCH_PUT_END.reading.read(error, body).map_err(io::Error::other)?;
        results.iter().for_each(|result| tally.count(result.map(|()| true)));
        Ok(())
    }

    pub(crate) fn remove_all(&mut self) -> io::Result<i64> {
        let args = Value::Struct(vec![Value::Bool(true), Value::str(TENANT)]);
        match self.rare(Method::RemoveAll, &args)? {
            Value::I64(removed) => Ok(removed),
            other => Err(io::Error::other(format!("RemoveAll: {other:?}"))),
        }
    }

    pub(crate) fn health(&mut self) -> io::Result<Option<bool>> {
        match self.rare(Method::HealthCheck, &Value::Void) {
            Ok(Value::Expected(Ok(report))) => match *report {
                Value::Struct(fields) => Ok(Some(fields.first() == Some(&Value::Bool(true)))),
                other => Err(io::Error::other(format!("HealthCheck: {other:?}"))),
            },
            // Refused by the RPC layer: it is not registered there.
            Err(error) if error.kind() == io::ErrorKind::Other => Ok(None),
            Ok(other) => Err(io::Error::other(format!("HealthCheck: {other:?}"))),
            Err(error) => Err(error),
        }
    }

    /// 0 also from a master that does not know the question.
    pub(crate) fn heartbeat_port(&mut self) -> io::Result<u16> {
        match self.rare(Method::GetHeartbeatRpcPort, &Value::Void) {
            Ok(Value::Expected(Ok(port))) => match *port {
                Value::U32(port) => u16::try_from(port).map_err(io::Error::other),
                other => Err(io::Error::other(format!("GetHeartbeatRpcPort: {other:?}"))),
            },
            Ok(other) => Err(io::Error::other(format!("GetHeartbeatRpcPort: {other:?}"))),
            Err(error) if error.kind() == io::ErrorKind::Other => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn uuid_value(id: Uuid) -> Value {
    Value::Struct(vec![Value::U64(id.first), Value::U64(id.second)])
}

fn segment_value(segment: &Segment) -> Value {
    Value::Struct(vec![
        uuid_value(segment.id),
        Value::str(&segment.name),
        Value::U64(segment.base),
        Value::U64(segment.size),
        Value::str(&segment.name),
        Value::str("tcp"),
        Value::str(""),
    ])
}

fn unit(value: Value) -> io::Result<Result<(), i32>> {
    match value {
        Value::Expected(Ok(_)) => Ok(Ok(())),
        Value::Expected(Err(code)) => Ok(Err(code)),
        other => Err(io::Error::other(format!("not a result: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_in_the_tables() {
        let rpcs = [
            PING.rpc,
            EXIST.rpc,
            BATCH_EXIST.rpc,
            GET.rpc,
            BATCH_GET.rpc,
            PUT_START.rpc,
            PUT_END.rpc,
            BATCH_PUT_START.rpc,
            BATCH_PUT_END.rpc,
        ];
        assert_eq!(rpcs.len(), 9);
        assert!(<(Uuid, Meta<'_>, i32, &str)>::fit(PUT_END.rpc.args()));
        assert!(<(Uuid, Vec<Meta<'_>>, i32, &str)>::fit(BATCH_PUT_END.rpc.args()));
        assert!(<(Uuid, Bytes<'_>, u64, Placement<'_>, &str)>::fit(PUT_START.rpc.args()));
        assert!(<(Uuid, Vec<Bytes<'_>>, Vec<u64>, Placement<'_>, &str)>::fit(BATCH_PUT_START.rpc.args()));
        assert!(<(Vec<Bytes<'_>>, &str)>::fit(BATCH_GET.rpc.args()));
    }
}
