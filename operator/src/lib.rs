//! The operator: it turns one `MooncakeMaster` into an active and its standbys, and keeps it so.
//!
//! One pass over a resource is `observe → decide → build → apply → status`:
//! - [`observe`] reads what there is, live, into plain values;
//! - [`decide`] is a pure function from these values to actions and conditions;
//! - [`build`] is a pure function from the spec to objects;
//! - [`apply`] carries the actions out;
//! - [`status`] reports, and writes only what has changed.
//!
//! The masters elect themselves through the Lease. The operator creates the Lease and steers; with the operator away
//! a crashed active is still replaced. Nothing that must survive its restart is in its memory: what is there
//! ([`memory`]) are waiting times, which then begin anew.

pub mod apply;
pub mod build;
pub mod config;
pub mod controller;
pub mod decide;
pub mod diff;
pub mod events;
pub mod memory;
pub mod metrics;
pub mod observe;
pub mod probe;
pub mod server;
pub mod status;
