//! The Mooncake Store master as a library; `main.rs` is a thin program around it.
//!
//! The dependency arrow points inwards: `rpc` and `admin` call `core`; `core` calls neither, and knows no
//! wire format and no Kubernetes.

pub mod admin;
pub mod clock;
pub mod config;
pub mod core;
pub mod error;
pub mod fault;
pub mod ha;
pub mod lock;
pub mod logging;
pub mod permit;
pub mod process;
pub mod rpc;
pub mod serving;
pub mod types;
