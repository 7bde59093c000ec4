//! The answer of a batch, written element by element as they come.

use super::{Payload, RESPONSE_HEADER, ResponseHeader, Writer, width_for, write_head};
use crate::rpc::native::{generation::Rpc, types::Type};
use bytes::{BufMut, BytesMut};

/// What an element is taken to need before there is one, bytes.
const EXPECTED: usize = 128;

/// A vector under way to the output. Sizes have one width in a whole message, that of its largest container, and it is
/// known only at the end: if it was too small the message is written once more.
pub struct Elements<'b> {
    start: usize,
    total: usize,
    /// Still to come.
    count: usize,
    seq: u32,
    element: Type,
    writer: Writer<'b>,
}

impl<'b> Elements<'b> {
    /// Begins the answer to a call whose result is a vector, of `count` elements, the largest container in it having
    /// `widest` elements or bytes.
    pub fn begin(out: &'b mut BytesMut, seq: u32, rpc: &Rpc, count: usize, widest: usize) -> Elements<'b> {
        debug_assert!(matches!(rpc.result(), Type::Seq(_)), "{:?}: not a vector", rpc.method());
        let element = match rpc.result() {
            Type::Seq(element) => *element,
            other => other,
        };
        let (start, width) = (out.len(), width_for(widest.max(count)));
        out.put_bytes(0, RESPONSE_HEADER);
        write_head(out, rpc.result_signature(), width, false);
        let mut writer = Writer { out, width, widest: 0, shape: rpc.shape() };
        writer.size(count);
        Elements { start, total: count, count, seq, element, writer }
    }

    /// Makes room for so many further elements, should they be about as large as those before.
    pub fn reserve(&mut self, more: usize) {
        let done = self.total - self.count;
        let each = (self.writer.out.len() - self.start).checked_div(done).unwrap_or(EXPECTED).max(1);
        self.writer.out.reserve(2 * more * each);
    }

    /// Appends an element.
    pub fn push<T: Payload>(&mut self, element: &T) {
        debug_assert!(T::fits(self.element), "not its element type: {}", std::any::type_name::<T>());
        self.count = self.count.saturating_sub(1);
        element.write(&mut self.writer);
    }

    /// Ends the answer, after all elements.
    ///
    /// # Errors
    /// The message is taken back. `Err(Some(widest))`: begin again with that; `Err(None)`: no frame can hold it.
    pub fn finish(self) -> Result<(), Option<usize>> {
        debug_assert_eq!(self.count, 0, "elements are missing");
        let Writer { out, width, widest, .. } = self.writer;
        let body = out.len() - self.start - RESPONSE_HEADER;
        let outcome = match u32::try_from(body) {
            _ if width_for(widest) != width => Err(Some(widest)),
            Ok(body) => {
                let header = ResponseHeader { error: 0, seq: self.seq, body, attachment: 0 }.to_bytes();
                out[self.start..self.start + RESPONSE_HEADER].copy_from_slice(&header);
                Ok(())
            }
            Err(_) => Err(None),
        };
        if outcome.is_err() {
            out.truncate(self.start);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::ErrorCode,
        rpc::native::{
            answer,
            generation::{Generation, Method},
        },
        types::{ReplicaDescriptor, ReplicaList, ReplicaStatus, Replicas, SegmentSpec, Uuid},
    };
    use smallvec::smallvec;
    use std::sync::Arc;

    fn list(endpoint: usize) -> ReplicaList {
        let bytes = |len| Arc::<[u8]>::from(vec![b'e'; len]);
        let segment = SegmentSpec {
            id: Uuid::default(),
            name: bytes(3),
            base: 0,
            size: 1 << 20,
            te_endpoint: bytes(endpoint),
            protocol: bytes(3),
            host_id: bytes(0),
        };
        let replica = ReplicaDescriptor {
            id: 7,
            status: ReplicaStatus::Complete,
            address: 4096,
            size: 100,
            segment: Arc::new(segment),
        };
        let replicas = Replicas { memory: smallvec![replica], disk: None };
        ReplicaList { replicas, lease_ttl_ms: 5000, object_checksum: None }
    }

    /// Whatever the sizes, the bytes are those of the whole vector written at once, in every generation.
    #[test]
    fn it_is_the_same_message_as_the_whole_vector() {
        for generation in Generation::all() {
            let Some(rpc) = generation.method(Method::BatchGetReplicaList) else { continue };
            for (count, endpoint) in [(0, 1), (1, 10), (3, 300), (300, 20), (2, 70_000)] {
                let mut lists: Vec<_> = (0..count).map(|_| Ok(list(endpoint))).collect();
                lists.push(Err(ErrorCode::ObjectNotFound));
                let mut expected = BytesMut::from(&b"before"[..]);
                answer::write(&mut expected, 9, rpc, &lists);

                let mut out = BytesMut::from(&b"before"[..]);
                let mut widest = 0;
                loop {
                    let mut elements = Elements::begin(&mut out, 9, rpc, lists.len(), widest);
                    for list in &lists {
                        elements.push(list);
                    }
                    match elements.finish() {
                        Ok(()) => break,
                        Err(Some(wider)) => {
                            assert_eq!(&out[..], b"before", "taken back");
                            widest = wider;
                        }
                        Err(None) => panic!("it fits"),
                    }
                }
                assert_eq!(out, expected, "{count} lists, endpoint {endpoint}");
            }
        }
    }
}
