//! The native protocol (`coro_rpc` and `struct_pack` of Mooncake's own clients) as a pure codec: no sockets, no state.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | headers, limits, errors of the RPC layer |
//! | [`types`] | type descriptions, literals, hashes, function ids |
//! | [`generation`] | one type table per client generation; **how to add the next one** |
//! | [`body`], [`field`] | the bounded reader; plans that match Rust fields with a table |
//! | [`request`] | what the master is asked, borrowed from the frame |
//! | [`answer`] | what it says, written straight into a connection's output |
//! | [`value`] | a value of any described type, for tests, fuzzing and rare calls |
//! | [`client`] | the other side |
//!
//! A server's loop:
//! 1. [`frame::RequestHeader::parse`]; `None`: read more; an error: close. ([`frame::FrameError::answer`]
//!    writes what could be said before; this server says nothing, as upstream does not either.)
//! 2. With the whole frame there, [`generation::Generation::rpc`] of the connection's generation, and
//!    [`request::decode`]; an error: [`request::DecodeError::answer`], the connection goes on.
//! 3. [`answer::write`] with the same `Rpc`.
//!
//! Memory: decoding allocates nothing at all, whatever the frame declares: lists stay bytes of the frame.
//! [`request::Config::to_core`] keeps at most [`field::Wishes::LIMIT`] names, 16 bytes each.

// Names of the protocol's functions are words of these docs; backticks around each would only be noise.
#![allow(clippy::doc_markdown)]

pub mod answer;
pub mod body;
pub mod client;
pub mod field;
pub mod frame;
pub mod generation;
pub mod request;
pub mod types;
pub mod value;
