//! Leadership through a Kubernetes Lease (design: leadership and fencing).
//!
//! Two layers:
//! - [`Elector`], a pure state machine: inputs with a [`Moment`], outputs as [`Action`]s. It knows the rules (who may
//!   claim when, what a write is worth, when leadership is lost) and touches neither network nor clock.
//! - `driver` (feature `kube`), which runs it against a real API server on the caller's thread; `election` wraps that
//!   into a thread for a process that only wants to know whether it leads. [`solo`] leads for ever, without any Lease.
//!
//! The invariant of the crate: at no true instant do two processes hold a permit, as long as their clocks run at rates
//! that differ by less than the lease duration exceeds the renew deadline.
//!
//! Documented limit: whoever may write the Lease's `spec` by hand may break this, by shortening
//! `leaseDurationSeconds` under a holder that cannot reach the API server; a reachable holder repairs it at once.

pub mod claim;
mod elector;
mod observe;
pub mod record;
pub mod solo;
pub mod time;
pub mod timing;

#[cfg(feature = "kube")]
pub mod driver;
#[cfg(feature = "kube")]
pub mod election;

pub use elector::{
    Action, Answer, Command, Elector, ElectorConfig, Event, Identity, Input, Leader, LossReason, Request,
    RequestKind, WatchInput,
};
pub use record::{HIGHEST_EPOCH, LeaseObject, LeaseRecord, RecordError, Release};
pub use time::{BootClock, Clock, Instant, Moment, WallTime};
pub use timing::{TimingError, Timings};
