//! The `MooncakeMaster` API: types, validation rules, condition and reason names, and what is generated from them.
//!
//! Everything that a cluster refuses about a resource is in [`rules`] (CEL, for the API server) and once more in
//! [`validation`] (for an operator that meets a resource which an older definition let in); a test holds both
//! against one table of bad resources.

// The doc comments of the API types are what `kubectl explain` prints, where backticks are noise.
#![allow(clippy::doc_markdown)]
// A table of printer columns repeats its keys.
#![allow(clippy::duplicated_attributes)]

mod conditions;
pub mod docs;
mod duration;
pub mod names;
pub mod rules;
mod schema;
mod spec;
mod status;
pub mod validation;

pub use conditions::{ConditionStatus, ConditionType, Reason};
pub use duration::{DurationError, GoDuration};
pub use schema::crd;
pub use spec::*;
pub use status::*;
