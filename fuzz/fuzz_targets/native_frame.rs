//! Header, every typed decoder and the described codec, in every generation.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mooncake_fuzz::rpc::native::{
    frame::{Limits, REQUEST_HEADER, RESPONSE_HEADER, RequestHeader, ResponseHeader},
    generation::{Generation, Rpc},
    request,
    value::Value,
};

fuzz_target!(|input: &[u8]| {
    let limits = Limits { body: 1 << 20, attachment: 1 << 10 };
    let mut out = BytesMut::new();
    match RequestHeader::parse(input, &limits) {
        Ok(Some(header)) => {
            let body = &input[REQUEST_HEADER..];
            let body = &body[..body.len().min(header.body as usize)];
            for rpc in Generation::all().iter().filter_map(|generation| generation.rpc(header.function)) {
                arguments(rpc, body, &mut out);
                result(rpc, body);
            }
        }
        Ok(None) => {}
        Err(error) => error.answer(&mut out),
    }
    check_answer(&out);
});

/// Decodes arguments and reads every list to its end, by printing.
fn arguments(rpc: &'static Rpc, body: &[u8], out: &mut BytesMut) {
    match request::decode(rpc, body) {
        Ok(request) => assert!(!format!("{request:?}").is_empty()),
        Err(error) => {
            out.clear();
            error.answer(out, 1);
        }
    }
}

/// What the described codec reads is what it writes.
fn result(rpc: &Rpc, body: &[u8]) {
    let signature = rpc.result_signature();
    // The input has the hash of the arguments: exchange it, so that results are reached as well.
    let mut body = body.to_vec();
    if let Some(head) = body.first_chunk_mut::<4>() {
        *head = (signature.hash | u32::from(head[0] & 1)).to_le_bytes();
    }
    if let Ok(decoded) = Value::decode(rpc.result(), signature, &body) {
        let again = decoded.value.encode(signature, decoded.literal);
        let second = Value::decode(rpc.result(), signature, &again);
        assert_eq!(second.map(|decoded| decoded.value), Ok(decoded.value));
    }
}

fn check_answer(out: &[u8]) {
    if !out.is_empty() {
        let header = ResponseHeader::parse(out, &Limits::default());
        assert!(header.is_ok_and(|header| header.is_some_and(|h| h.frame_len() == out.len() as u64)));
        assert!(out.len() > RESPONSE_HEADER);
    }
}
