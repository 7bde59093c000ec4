//! A real Kubernetes on this machine, the faults that can be put into it, and the oracles that watch while they are.
//!
//! [`cluster::Cluster`] is up for a whole test run and always taken down; each scenario gets an [`instance::Instance`],
//! a namespace with one `MooncakeMaster`. While a scenario runs, [`watch::Watch`] checks that no watch event ever shows
//! two pods with the leader label, and [`prober::Prober`] sends mutations to every pod and remembers who answered in
//! which epoch, for [`epochs::check`]. [`store_client::StoreClient`] is the unmodified client.

pub mod admin;
pub mod clock;
pub mod cluster;
pub mod epochs;
pub mod faults;
pub mod gap;
pub mod instance;
pub mod netns;
pub mod operator;
pub mod prober;
pub mod readme;
pub mod report;
pub mod scenario;
pub mod store_client;
pub mod watch;
