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
//! a crashed active is still replaced. What must survive its restart, a move of the active role, is on status; what is
//! in its memory ([`memory`]) are waiting times, which then begin anew. Beside the passes [`health`] calls each active.

pub mod apply;
pub mod build;
pub mod clients;
pub mod config;
pub mod contest;
pub mod controller;
pub mod crash;
pub mod decide;
pub mod diff;
pub mod events;
pub mod health;
pub mod memory;
pub mod metrics;
pub mod nodes;
pub mod observe;
pub mod probe;
pub mod server;
pub mod status;
