//! Bytes that no client would send: nothing panics, and nothing is allocated for what was only declared.

use bytes::BytesMut;
use mooncake_master::rpc::native::{
    frame::{Limits, REQUEST_HEADER, RequestHeader},
    generation::{Generation, Rpc},
    request::{self, Request},
    value::{MAX_VALUES, Value},
};
use proptest::prelude::*;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::LazyLock,
};

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

/// Counts the bytes that this thread asks for.
struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract; the counter is a
// thread-local of a type without a destructor, so touching it neither allocates nor fails while a thread ends.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller's promises about `layout` are ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATED.with(Cell::get);
    let result = work();
    (ALLOCATED.with(Cell::get) - before, result)
}

/// Captured requests as whole frames.
static FRAMES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let requests = crate::captures::captured().into_iter().filter(|frame| frame.is_request);
    let mut frames: Vec<_> = requests.map(|frame| [frame.header, frame.body].concat()).collect();
    frames.sort();
    frames.dedup();
    frames
});

/// Reads every list of a request to its end.
fn drain(request: &Request<'_>) -> usize {
    match request {
        Request::BatchExistKey(r) | Request::BatchGetReplicaList(r) => r.keys.iter().map(<[u8]>::len).sum(),
        Request::BatchPutStart(r) | Request::BatchUpsertStart(r) => {
            let groups = r.config.group_ids.map_or(0, |groups| groups.iter().count());
            r.keys.iter().count()
                + r.slice_lengths.iter().count()
                + groups
                + r.config.preferred_segments.0.iter().count()
        }
        Request::BatchPutEnd(r) | Request::BatchUpsertEnd(r) => r.objects.iter().count(),
        Request::BatchRemove(r) => r.keys.iter().count(),
        Request::ReMountSegment(r) => r.segments.iter().count(),
        Request::NotifyOffloadSuccess(r) => r.tasks.iter().count() + r.stored.iter().count(),
        Request::BatchQueryIp(r) => r.clients.iter().count(),
        _ => 0,
    }
}

/// What a server does with input, in every generation. Panics if decoding allocates anything.
fn serve(input: &[u8]) {
    let limits = Limits::default();
    let (bytes, header) = allocated(|| RequestHeader::parse(input, &limits));
    assert_eq!(bytes, 0);
    let mut out = BytesMut::with_capacity(512);
    let header = match header {
        Ok(Some(header)) => header,
        Ok(None) => return,
        Err(error) => return error.answer(&mut out),
    };
    let body = &input[REQUEST_HEADER..];
    let body = &body[..body.len().min(header.body as usize)];
    for generation in Generation::all() {
        let Some(rpc) = generation.rpc(header.function) else { continue };
        decode_everywhere(rpc, header.seq, body, &mut out);
    }
}

fn decode_everywhere(rpc: &'static Rpc, seq: u32, body: &[u8], out: &mut BytesMut) {
    let (bytes, result) = allocated(|| request::decode(rpc, body).map(|request| drain(&request)));
    assert_eq!(bytes, 0, "{:?} of {} bytes", rpc.method(), body.len());
    if let Err(error) = result {
        out.clear();
        let (bytes, ()) = allocated(|| error.answer(out, seq));
        assert!(bytes < 4096, "{bytes}");
    }
    // The described codec is for tests and clients: bounded by the input and its budget of values.
    let (bytes, _) = allocated(|| Value::decode(rpc.result(), rpc.result_signature(), body));
    let bound = 4096 + 200 * body.len().min(MAX_VALUES) as u64;
    assert!(bytes <= bound, "{:?}: {bytes} for {} bytes of input", rpc.method(), body.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(input in proptest::collection::vec(any::<u8>(), 0..300)) {
        serve(&input);
    }

    #[test]
    fn random_bodies_behind_real_headers(
        at in any::<proptest::sample::Index>(),
        body in proptest::collection::vec(any::<u8>(), 0..300),
        right_hash in any::<bool>(),
    ) {
        let frame = &FRAMES[at.index(FRAMES.len())];
        let mut input = frame[..REQUEST_HEADER].to_vec();
        input.extend(&body);
        if right_hash && frame.len() >= REQUEST_HEADER + 4 && body.len() >= 4 {
            // Bit 0 as it comes, so that widths and literals vary too.
            let low = (frame[REQUEST_HEADER] & !1) | (body[0] & 1);
            input[REQUEST_HEADER..REQUEST_HEADER + 4].copy_from_slice(&frame[REQUEST_HEADER..REQUEST_HEADER + 4]);
            input[REQUEST_HEADER] = low;
        }
        input[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        serve(&input);
    }

    #[test]
    fn flipped_bits(
        at in any::<proptest::sample::Index>(),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 0u8..8), 1..6),
    ) {
        let mut input = FRAMES[at.index(FRAMES.len())].clone();
        for (position, bit) in flips {
            let position = position.index(input.len());
            input[position] ^= 1 << bit;
        }
        serve(&input);
    }

    #[test]
    fn truncated_and_with_other_sizes(
        at in any::<proptest::sample::Index>(),
        cut in any::<proptest::sample::Index>(),
        declared in any::<u32>(),
    ) {
        let frame = &FRAMES[at.index(FRAMES.len())];
        let cut = cut.index(frame.len() + 1);
        serve(&frame[..cut]);
        let mut lying = frame.clone();
        lying[12..16].copy_from_slice(&declared.to_le_bytes());
        serve(&lying);
    }
}

/// Every single-byte change and every cut of every captured request.
#[test]
fn each_byte_of_each_capture() {
    let mut inputs = 0;
    for frame in FRAMES.iter().filter(|frame| frame.len() < 400) {
        for at in 0..frame.len() {
            serve(&frame[..at]);
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[at] = byte;
                serve(&changed);
                inputs += 1;
            }
        }
    }
    println!("{inputs} inputs");
}

/// A body of 8 MiB full of the smallest elements that a type allows.
#[test]
fn the_smallest_elements_cost_nothing() {
    let count = 8u32 << 20;
    for rpc in Generation::newest().rpcs() {
        let [("keys", _), ("tenant_id", _)] = rpc.args() else { continue };
        let signature = rpc.args_signature().expect("arguments");
        // Four-byte sizes: a count, then as many empty keys as fit.
        let mut body = (signature.hash | 1).to_le_bytes().to_vec();
        body.push(2 << 3);
        body.extend((count / 4 - 1).to_le_bytes());
        body.resize(body.len() + count as usize, 0);
        let (bytes, keys) = allocated(|| match request::decode(rpc, &body) {
            Ok(Request::BatchExistKey(r) | Request::BatchGetReplicaList(r)) => r.keys.iter().count(),
            other => panic!("{other:?}"),
        });
        assert_eq!((bytes, keys), (0, count as usize / 4 - 1));
    }
}
