//! The command line.

use clap::{Parser, ValueEnum};
use mooncake_crds::GoDuration;
use std::{net::SocketAddr, time::Duration};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum LogFormat {
    Text,
    Json,
}

/// Runs highly available Mooncake Store masters on Kubernetes.
///
/// It watches MooncakeMaster resources and makes of each one a StatefulSet, two Services, a Lease and the rights that
/// the masters need. The masters elect their active themselves; the operator moves the active role away from one that is
/// blocked or whose node is drained, rolls changes out, reports conditions, and corrects the label that routes clients.
/// While it is away, a crashed active is still replaced.
#[derive(Clone, Debug, Parser)]
#[command(name = "mooncake-operator", version, about, long_about, after_help = EXAMPLES)]
pub struct Config {
    /// Watch only this namespace. Unset: the whole cluster, which needs a ClusterRole instead of a Role.
    #[arg(long, env = "WATCH_NAMESPACE")]
    pub namespace: Option<String>,

    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, env = "HTTP_ADDRESS", default_value = "0.0.0.0:8080")]
    pub http_address: SocketAddr,

    /// How log lines look.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,

    /// What is logged: a level (error, warn, info, debug, trace), or levels per module such as
    /// `info,mooncake_operator=debug`.
    #[arg(long, env = "LOG", default_value = "info")]
    pub log: String,

    /// Work without an election. Only with a single operator in the cluster.
    #[arg(long, env = "NO_LEADER_ELECTION")]
    pub no_leader_election: bool,

    /// Name of the Lease through which several operators elect one.
    #[arg(long, env = "LEASE_NAME", default_value = "mooncake-operator")]
    pub lease_name: String,

    /// Namespace of that Lease: the operator's own.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub lease_namespace: String,

    /// Name of this process in the election and in Events; in a pod its name.
    #[arg(long, env = "POD_NAME", default_value = "mooncake-operator")]
    pub identity: String,

    /// How long another operator waits before it takes over from a silent one, and the first one before it starts.
    #[arg(long, env = "LEASE_DURATION", default_value = "6s", value_parser = duration)]
    pub lease_duration: Duration,

    /// How long the operator works after its last renewal. Below the lease duration.
    #[arg(long, env = "LEASE_RENEW_DEADLINE", default_value = "4s", value_parser = duration)]
    pub lease_renew_deadline: Duration,

    /// Time between renewals. At most half of the renew deadline.
    #[arg(long, env = "LEASE_RETRY_PERIOD", default_value = "1s", value_parser = duration)]
    pub lease_retry_period: Duration,

    /// For tests: end instead of sending the n-th write to the API server.
    #[arg(long, env = "EXIT_BEFORE_WRITE", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub exit_before_write: Option<u64>,

    /// For tests: end when the n-th write to the API server has been answered.
    #[arg(long, env = "EXIT_AFTER_WRITE", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub exit_after_write: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  In a cluster:           mooncake-operator
  One namespace only:     mooncake-operator --namespace inference
  From a workstation,
  with one's kubeconfig:  mooncake-operator --no-leader-election --log debug";

fn duration(text: &str) -> Result<Duration, mooncake_crds::DurationError> {
    GoDuration::from(text).parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed_and_explains_itself() {
        Config::command().debug_assert();
        let help = Config::command().render_long_help().to_string();
        for word in ["--namespace", "WATCH_NAMESPACE", "Examples:", "6s"] {
            assert!(help.contains(word), "{word} in {help}");
        }
        assert!(!help.contains("write"), "what is for tests is not offered: {help}");
    }

    #[test]
    fn durations_are_read_and_refused() {
        let config = Config::try_parse_from(["x", "--lease-duration", "1m"]).unwrap();
        assert_eq!(config.lease_duration, Duration::from_secs(60));
        let error = Config::try_parse_from(["x", "--lease-duration", "5"]).unwrap_err().to_string();
        assert!(error.contains("such as 5s"), "{error}");
    }
}
