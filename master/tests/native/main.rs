//! The native codec, without sockets.

mod captures;
mod hostile;
mod wire;
