//! The two headers around a body, and errors of the RPC layer itself.

use super::body::{Reader, write_head};
use super::types::{Signature, Type};
use bytes::{BufMut, BytesMut};
use std::sync::LazyLock;

/// First byte of every frame in both directions.
pub const MAGIC: u8 = 0x15;
/// Bytes of a request's header.
pub const REQUEST_HEADER: usize = 20;
/// Bytes of a response's header.
pub const RESPONSE_HEADER: usize = 16;

/// The most that a frame may declare, in bytes. A frame above it ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the body.
    pub body: u32,
    /// Of the attachment, which no call uses and which is read past.
    pub attachment: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { body: 64 << 20, attachment: 64 << 20 }
    }
}

/// Why a connection cannot go on. A peer that speaks another protocol gets no answer, like upstream does; only
/// [`FrameError::TooLarge`] is worth one before closing ([`FrameError::answer`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not this protocol.
    #[error("magic: expected {MAGIC:#04x}, found {0:#04x}")]
    Magic(u8),
    /// A version after ours.
    #[error("version: expected 0, found {0}")]
    Version(u8),
    /// Another serialization than `struct_pack`.
    #[error("serialize_type: expected 0 (struct_pack), found {0}")]
    Serialization(u8),
    /// Over the cap.
    #[error("{part}: expected at most {limit} bytes, found {declared} (request {seq})")]
    TooLarge {
        /// `length` or `attach_length`.
        part: &'static str,
        /// As declared, bytes.
        declared: u32,
        /// The cap, bytes.
        limit: u32,
        /// `seq_num` of the request.
        seq: u32,
    },
}

impl FrameError {
    /// Appends the answer that is due before the connection is closed, if any.
    pub fn answer(&self, out: &mut BytesMut) {
        if let FrameError::TooLarge { seq, .. } = self {
            write_error(out, *seq, RpcErrorCode::MessageTooLarge, &self.to_string());
        }
    }
}

/// The header of a request whose fixed fields are right and whose sizes are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client, echoed in the answer.
    pub seq: u32,
    /// Which function.
    pub function: u32,
    /// Bytes of the body, directly behind the header.
    pub body: u32,
    /// Bytes behind the body, to be read and ignored.
    pub attachment: u32,
}

impl RequestHeader {
    /// Parses what has come so far: `None` while more is needed. A wrong first byte is told at once.
    pub fn parse(input: &[u8], limits: &Limits) -> Result<Option<RequestHeader>, FrameError> {
        match *input {
            [magic, ..] if magic != MAGIC => return Err(FrameError::Magic(magic)),
            [_, version, ..] if version != 0 => return Err(FrameError::Version(version)),
            [_, _, serialization, ..] if serialization != 0 => {
                return Err(FrameError::Serialization(serialization));
            }
            _ => {}
        }
        // The fourth byte, the message type, means nothing to the server.
        let Some(header) = input.first_chunk::<REQUEST_HEADER>() else { return Ok(None) };
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let parsed = RequestHeader { seq: word(4), function: word(8), body: word(12), attachment: word(16) };
        for (part, declared, limit) in
            [("length", parsed.body, limits.body), ("attach_length", parsed.attachment, limits.attachment)]
        {
            if declared > limit {
                return Err(FrameError::TooLarge { part, declared, limit, seq: parsed.seq });
            }
        }
        Ok(Some(parsed))
    }

    /// Bytes of the whole frame.
    pub fn frame_len(&self) -> u64 {
        REQUEST_HEADER as u64 + u64::from(self.body) + u64::from(self.attachment)
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; REQUEST_HEADER] {
        let mut out = [0; REQUEST_HEADER];
        out[0] = MAGIC;
        out[4..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..12].copy_from_slice(&self.function.to_le_bytes());
        out[12..16].copy_from_slice(&self.body.to_le_bytes());
        out[16..20].copy_from_slice(&self.attachment.to_le_bytes());
        out
    }
}

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// 0, or the number of an [`RpcErrorCode`]: the body is then a string.
    pub error: u8,
    /// Of the request.
    pub seq: u32,
    /// Bytes of the body.
    pub body: u32,
    /// Bytes behind the body; a master sends none.
    pub attachment: u32,
}

impl ResponseHeader {
    /// Parses what has come so far: `None` while more is needed.
    pub fn parse(input: &[u8], limits: &Limits) -> Result<Option<ResponseHeader>, FrameError> {
        match *input {
            [magic, ..] if magic != MAGIC => return Err(FrameError::Magic(magic)),
            [_, version, ..] if version != 0 => return Err(FrameError::Version(version)),
            _ => {}
        }
        let Some(header) = input.first_chunk::<RESPONSE_HEADER>() else { return Ok(None) };
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let parsed = ResponseHeader { error: header[2], seq: word(4), body: word(8), attachment: word(12) };
        for (part, declared, limit) in
            [("length", parsed.body, limits.body), ("attach_length", parsed.attachment, limits.attachment)]
        {
            if declared > limit {
                return Err(FrameError::TooLarge { part, declared, limit, seq: parsed.seq });
            }
        }
        Ok(Some(parsed))
    }

    /// Bytes of the whole frame.
    pub fn frame_len(&self) -> u64 {
        RESPONSE_HEADER as u64 + u64::from(self.body) + u64::from(self.attachment)
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; RESPONSE_HEADER] {
        let mut out = [0; RESPONSE_HEADER];
        out[0] = MAGIC;
        out[2] = self.error;
        out[4..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..12].copy_from_slice(&self.body.to_le_bytes());
        out[12..16].copy_from_slice(&self.attachment.to_le_bytes());
        out
    }
}

/// Errors of the RPC layer, in the header of an answer. Errors of an operation are not here: they are the error arm
/// of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum RpcErrorCode {
    IoError = 1,
    NotConnected = 2,
    TimedOut = 3,
    InvalidArguments = 4,
    Thrown = 10,
    NotRegistered = 11,
    ProtocolError = 12,
    MessageTooLarge = 14,
    InvalidResult = 16,
}

static STRING: LazyLock<Signature> = LazyLock::new(|| Signature::of(Type::Str));

/// Appends the answer that carries an error of the RPC layer.
pub fn write_error(out: &mut BytesMut, seq: u32, code: RpcErrorCode, message: &str) {
    let message = &message.as_bytes()[..message.len().min(u8::MAX.into())];
    let body = 4 + 1 + message.len() as u32;
    out.reserve(RESPONSE_HEADER + body as usize);
    out.put_slice(&ResponseHeader { error: code as u8, seq, body, attachment: 0 }.to_bytes());
    write_head(out, &STRING, 1, false);
    out.put_u8(message.len() as u8);
    out.put_slice(message);
}

/// The message of an answer whose header carries an error.
pub fn read_error(body: &[u8]) -> super::body::Parsed<&[u8]> {
    let (mut reader, _): (Reader<'_>, bool) = super::body::open(body, [Some(&STRING), None])?;
    reader.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RequestHeader = RequestHeader { seq: 0xffff_ffff, function: 7, body: 5, attachment: 0 };

    #[test]
    fn headers_round_trip_and_are_told_early() {
        let limits = Limits::default();
        let bytes = HEADER.to_bytes();
        assert_eq!(RequestHeader::parse(&bytes, &limits), Ok(Some(HEADER)));
        for short in 0..REQUEST_HEADER {
            assert_eq!(RequestHeader::parse(&bytes[..short], &limits), Ok(None));
        }
        assert_eq!(RequestHeader::parse(b"GET / HTTP", &limits), Err(FrameError::Magic(b'G')));
        assert_eq!(RequestHeader::parse(&[MAGIC, 1], &limits), Err(FrameError::Version(1)));
        assert_eq!(RequestHeader::parse(&[MAGIC, 0, 1], &limits), Err(FrameError::Serialization(1)));
        let mut other_type = bytes;
        other_type[3] = 5;
        assert_eq!(RequestHeader::parse(&other_type, &limits), Ok(Some(HEADER)));
        let answer = ResponseHeader { error: 4, seq: 9, body: 1, attachment: 2 };
        assert_eq!(ResponseHeader::parse(&answer.to_bytes(), &limits), Ok(Some(answer)));
    }

    #[test]
    fn a_declared_size_over_the_cap_names_the_field() {
        let limits = Limits { body: 4, attachment: 0 };
        let error = RequestHeader::parse(&HEADER.to_bytes(), &limits).unwrap_err();
        assert_eq!(error.to_string(), "length: expected at most 4 bytes, found 5 (request 4294967295)");
        let attached = RequestHeader { body: 0, attachment: 1, ..HEADER };
        let error = RequestHeader::parse(&attached.to_bytes(), &limits).unwrap_err();
        assert!(error.to_string().starts_with("attach_length"));
        let mut out = BytesMut::new();
        error.answer(&mut out);
        let header = ResponseHeader::parse(&out, &Limits::default()).unwrap().unwrap();
        assert_eq!((header.error, header.seq), (14, 0xffff_ffff));
        assert_eq!(header.frame_len(), out.len() as u64);
        assert!(read_error(&out[RESPONSE_HEADER..]).unwrap().starts_with(b"attach_length"));
    }

    #[test]
    fn the_captured_error_in_short_form() {
        let mut out = BytesMut::new();
        write_error(&mut out, 9, RpcErrorCode::NotRegistered, "the rpc function not registered");
        assert_eq!(&out[..16], [0x15, 0, 11, 0, 9, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&out[16..21], [0x76, 0xfa, 0xcf, 0x9d, 31]);
    }
}
