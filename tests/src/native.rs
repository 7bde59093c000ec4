//! A blocking client of the native protocol, one call at a time, with values of the described types.

use bytes::BytesMut;
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{
        client,
        frame::{Limits, RESPONSE_HEADER, ResponseHeader, read_error},
        generation::{Generation, Method},
        value::Value,
    },
    types::Uuid,
};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A connection to a master.
#[derive(Debug)]
pub struct NativeClient {
    stream: TcpStream,
    seq: u32,
    generation: &'static Generation,
}

/// The result of a call whose error arm is an [`ErrorCode`].
pub type Outcome = Result<Value, ErrorCode>;

impl NativeClient {
    /// Connects as a client of the newest generation.
    pub fn connect(address: SocketAddr) -> io::Result<NativeClient> {
        NativeClient::connect_as(address, Generation::newest())
    }

    /// Connects as a client of that generation. The calls below are those of the newest one, but for Ping.
    pub fn connect_as(address: SocketAddr, generation: &'static Generation) -> io::Result<NativeClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(NativeClient { stream, seq: 0, generation })
    }

    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a request and waits for its answer. An error of the RPC layer is an I/O error with its message.
    pub fn request(&mut self, method: Method, args: Vec<Value>) -> io::Result<Value> {
        let seq = self.send(method, args)?;
        let (header, body) = self.receive()?;
        if header.seq != seq {
            return Err(io::Error::other(format!("answer to {} instead of {seq}", header.seq)));
        }
        let rpc = self.generation.method(method).ok_or_else(|| io::Error::other("not in this generation"))?;
        if header.error != 0 {
            let message = read_error(&body).map_err(io::Error::other)?;
            return Err(io::Error::other(format!(
                "rpc error {}: {}",
                header.error,
                String::from_utf8_lossy(message)
            )));
        }
        let decoded = Value::decode(rpc.result(), rpc.result_signature(), &body).map_err(io::Error::other)?;
        Ok(decoded.value)
    }

    /// Sends a request without waiting; its number.
    pub fn send(&mut self, method: Method, mut args: Vec<Value>) -> io::Result<u32> {
        let rpc = self.generation.method(method).ok_or_else(|| io::Error::other("not in this generation"))?;
        let seq = self.seq;
        self.seq += 1;
        let args = if args.len() == 1 { args.remove(0) } else { Value::Struct(args) };
        let mut out = BytesMut::new();
        client::call_value(&mut out, seq, rpc, &args, false);
        self.stream.write_all(&out)?;
        Ok(seq)
    }

    /// The next answer.
    pub fn receive(&mut self) -> io::Result<(ResponseHeader, Vec<u8>)> {
        let mut header = [0; RESPONSE_HEADER];
        self.stream.read_exact(&mut header)?;
        let header = ResponseHeader::parse(&header, &Limits::default()).map_err(io::Error::other)?;
        let header = header.ok_or_else(|| io::Error::other("a short header"))?;
        let mut body = vec![0; (header.body + header.attachment) as usize];
        self.stream.read_exact(&mut body)?;
        Ok((header, body))
    }

    /// A call whose result is a `tl::expected`.
    pub fn call(&mut self, method: Method, args: Vec<Value>) -> io::Result<Outcome> {
        outcome(self.request(method, args)?)
    }

    /// MountSegment of `size` bytes at `base`, under the endpoint's name.
    pub fn mount(
        &mut self,
        client: Uuid,
        segment: Uuid,
        endpoint: &str,
        base: u64,
        size: u64,
    ) -> io::Result<Outcome> {
        self.call(Method::MountSegment, vec![segment_value(segment, endpoint, base, size), uuid(client)])
    }

    /// ReMountSegment of one segment.
    pub fn remount(
        &mut self,
        client: Uuid,
        segment: Uuid,
        endpoint: &str,
        base: u64,
        size: u64,
    ) -> io::Result<Outcome> {
        let segments = Value::Seq(vec![segment_value(segment, endpoint, base, size)]);
        self.call(Method::ReMountSegment, vec![segments, uuid(client)])
    }

    /// Ping: the view version and whether the client is OK.
    pub fn ping(&mut self, client: Uuid) -> io::Result<Result<(i64, bool), ErrorCode>> {
        Ok(self.call(Method::Ping, vec![uuid(client)])?.map(|value| match value {
            Value::Struct(fields) => match fields.as_slice() {
                [Value::I64(view), Value::I32(status)] => (*view, *status == 1),
                other => panic!("no PingResponse: {other:?}"),
            },
            other => panic!("no PingResponse: {other:?}"),
        }))
    }

    /// PutStart of one replica.
    pub fn put_start(&mut self, client: Uuid, key: &str, size: u64) -> io::Result<Outcome> {
        let args = vec![uuid(client), Value::str(key), Value::U64(size), config(), Value::str("default")];
        self.call(Method::PutStart, args)
    }

    /// PutEnd of all replicas.
    pub fn put_end(&mut self, client: Uuid, key: &str) -> io::Result<Outcome> {
        let meta = Value::Struct(vec![Value::str(key), Value::Opt(None)]);
        self.call(Method::PutEnd, vec![uuid(client), meta, Value::I32(4), Value::str("default")])
    }

    /// PutStart and PutEnd.
    pub fn put(&mut self, client: Uuid, key: &str, size: u64) -> io::Result<Outcome> {
        match self.put_start(client, key, size)? {
            Ok(_) => self.put_end(client, key),
            refused => Ok(refused),
        }
    }

    /// ExistKey.
    pub fn exist(&mut self, key: &str) -> io::Result<Result<bool, ErrorCode>> {
        Ok(self.call(Method::ExistKey, key_args(key))?.map(|value| value == Value::Bool(true)))
    }

    /// GetReplicaList.
    pub fn get(&mut self, key: &str) -> io::Result<Outcome> {
        self.call(Method::GetReplicaList, key_args(key))
    }

    /// HealthCheck: ok, shards checked, shards blocked.
    pub fn health(&mut self) -> io::Result<(bool, u64, u64)> {
        match self.call(Method::HealthCheck, vec![])? {
            Ok(Value::Struct(fields)) => match fields.as_slice() {
                [Value::Bool(ok), Value::U64(checked), Value::U64(blocked)] => Ok((*ok, *checked, *blocked)),
                other => Err(io::Error::other(format!("no HealthCheckResponse: {other:?}"))),
            },
            other => Err(io::Error::other(format!("no HealthCheckResponse: {other:?}"))),
        }
    }
}

fn key_args(key: &str) -> Vec<Value> {
    vec![Value::str(key), Value::str("default")]
}

/// An expected as a result. A code that is not in the table is an I/O error.
pub fn outcome(value: Value) -> io::Result<Outcome> {
    match value {
        Value::Expected(Ok(value)) => Ok(Ok(*value)),
        Value::Expected(Err(number)) => ErrorCode::from_number(number)
            .map(Err)
            .ok_or_else(|| io::Error::other(format!("{number} is not in the table of error codes"))),
        other => Err(io::Error::other(format!("no expected: {other:?}"))),
    }
}

/// A UUID as a value.
pub fn uuid(id: Uuid) -> Value {
    Value::Struct(vec![Value::U64(id.first), Value::U64(id.second)])
}

/// A TCP segment as a value.
pub fn segment_value(id: Uuid, endpoint: &str, base: u64, size: u64) -> Value {
    Value::Struct(vec![
        uuid(id),
        Value::str(endpoint),
        Value::U64(base),
        Value::U64(size),
        Value::str(endpoint),
        Value::str("tcp"),
        Value::str(""),
    ])
}

/// The default `ReplicateConfig`, one memory replica.
pub fn config() -> Value {
    Value::Struct(vec![
        Value::U64(1),
        Value::U64(0),
        Value::U64(0),
        Value::U8(0),
        Value::Opt(None),
        Value::Bool(false),
        Value::Seq(vec![]),
        Value::str(""),
        Value::Seq(vec![]),
        Value::Bool(false),
        Value::U8(0),
        Value::str(""),
        Value::Opt(None),
    ])
}
