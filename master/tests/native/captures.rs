//! Captured traffic of the 0.3.13 client and upstream's master.

use mooncake_master::rpc::native::generation::{Generation, Rpc};
use std::collections::HashMap;

/// A captured frame that belongs to a known function.
pub(crate) struct Frame {
    /// File and line.
    pub(crate) at: String,
    pub(crate) rpc: &'static Rpc,
    pub(crate) is_request: bool,
    pub(crate) header: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// The RPC-level error of an answer.
    pub(crate) error: u8,
    pub(crate) seq: u32,
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// Every frame of every capture, answers with the function of their request.
pub(crate) fn captured() -> Vec<Frame> {
    let files = [
        ("frames.jsonl", include_str!("../fixtures/wire/frames.jsonl")),
        ("frames-zc.jsonl", include_str!("../fixtures/wire/frames-zc.jsonl")),
        ("frames-ssd.jsonl", include_str!("../fixtures/wire/frames-ssd.jsonl")),
    ];
    let mut frames = Vec::new();
    for (file, text) in files {
        let mut waiting: HashMap<(u64, u64), &'static Rpc> = HashMap::new();
        for (line, text) in text.lines().enumerate() {
            let json: serde_json::Value = serde_json::from_str(text).expect("json");
            let Some(header) = json["header"].as_str() else { continue };
            let number = |name: &str| json[name].as_u64().expect("number");
            let call = (number("conn"), number("seq"));
            let is_request = json["dir"] == "req";
            let rpc = if is_request {
                let rpc = Generation::newest().rpc(number("fid") as u32).expect("a known function");
                waiting.insert(call, rpc);
                rpc
            } else {
                waiting.remove(&call).expect("the request of an answer")
            };
            frames.push(Frame {
                at: format!("{file}:{}", line + 1),
                rpc,
                is_request,
                header: hex(header),
                body: hex(json["body"].as_str().expect("body")),
                error: if is_request { 0 } else { number("err") as u8 },
                seq: number("seq") as u32,
            });
        }
    }
    frames
}
