//! What a client is told.

use crate::connection::{Connector, Tcp};
use mooncake_proto::v1;
use std::{env, str::FromStr, sync::Arc, time::Duration};

/// The environment's word on the heartbeat port: unset auto, 0 legacy, 1 to 65535 strict.
pub const HEARTBEAT_PORT_VARIABLE: &str = "MOONCAKE_HEARTBEAT_RPC_PORT";

/// Where heartbeats go (C4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeartbeatMode {
    /// The port that the master advertises, once it answers there; else the main port.
    #[default]
    Auto,
    /// The main port only.
    Legacy,
    /// This port only; 1 to 65535. It may differ from the advertised one where ports are mapped.
    Strict(u16),
}

impl FromStr for HeartbeatMode {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<HeartbeatMode, OptionsError> {
        match text.trim() {
            "" | "auto" => Ok(HeartbeatMode::Auto),
            "0" | "legacy" => Ok(HeartbeatMode::Legacy),
            port => port
                .parse()
                .map(HeartbeatMode::Strict)
                .map_err(|_| OptionsError::HeartbeatPort(text.to_owned())),
        }
    }
}

/// An option that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Neither a mode nor a port.
    #[error(
        "{HEARTBEAT_PORT_VARIABLE}: {0:?}, expected auto, legacy, or a port from 0 to 65535 (0 means legacy)"
    )]
    HeartbeatPort(String),
    /// No master to connect to.
    #[error("masters: empty, expected at least one host:port")]
    NoMaster,
    /// Not an address.
    #[error("masters: {0:?}, expected host:port with a port from 1 to 65535")]
    Master(String),
    /// A time that must not be zero.
    #[error("{0}: 0, expected a positive time")]
    Zero(&'static str),
}

/// How to connect; the defaults suit a master behind a Kubernetes Service.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `host:port` of the masters, tried in this order. Behind a Service one name is enough.
    pub masters: Vec<String>,
    /// Where heartbeats go; `None` asks [`HEARTBEAT_PORT_VARIABLE`].
    pub heartbeat: Option<HeartbeatMode>,
    /// This client's identity, random by default. Two living clients must not share one.
    pub client_id: v1::Uuid,
    /// Tenant of every key, empty for the default tenant.
    pub tenant_id: String,
    /// The longest that one TCP connection, and each call of the handshake, may take. 3 s.
    pub connect_timeout: Duration,
    /// The longest that one call may take. 30 s, as upstream's clients wait.
    pub call_timeout: Duration,
    /// Time between heartbeats. 1 s.
    pub heartbeat_interval: Duration,
    /// The longest that a Ping on the heartbeat port may take. 1 s.
    pub ping_timeout: Duration,
    /// Failed Pings in a row after which an auto client goes to the main port. 2.
    pub fallback_after: u32,
    /// How often an auto client on the main port tries the heartbeat port again. 10 s.
    pub port_retry: Duration,
    /// How connections are made.
    pub connector: Arc<dyn Connector>,
}

impl ClientOptions {
    /// The defaults, for one master.
    pub fn new(master: impl Into<String>) -> ClientOptions {
        ClientOptions {
            masters: vec![master.into()],
            heartbeat: None,
            client_id: v1::Uuid { first: rand::random(), second: rand::random() },
            tenant_id: String::new(),
            connect_timeout: Duration::from_secs(3),
            call_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(1),
            fallback_after: 2,
            port_retry: Duration::from_secs(10),
            connector: Arc::new(Tcp),
        }
    }

    /// Checks them; the mode that holds.
    pub(crate) fn check(&self) -> Result<HeartbeatMode, OptionsError> {
        if self.masters.is_empty() {
            return Err(OptionsError::NoMaster);
        }
        for master in &self.masters {
            let port = master.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if !port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
                return Err(OptionsError::Master(master.clone()));
            }
        }
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("call_timeout", self.call_timeout),
            ("heartbeat_interval", self.heartbeat_interval),
            ("ping_timeout", self.ping_timeout),
            ("port_retry", self.port_retry),
        ] {
            if time.is_zero() {
                return Err(OptionsError::Zero(name));
            }
        }
        match self.heartbeat {
            Some(HeartbeatMode::Strict(0)) => Ok(HeartbeatMode::Legacy),
            Some(mode) => Ok(mode),
            None => from_variable(env::var(HEARTBEAT_PORT_VARIABLE)),
        }
    }
}

fn from_variable(value: Result<String, env::VarError>) -> Result<HeartbeatMode, OptionsError> {
    match value {
        Ok(text) => text.parse(),
        Err(env::VarError::NotPresent) => Ok(HeartbeatMode::Auto),
        Err(env::VarError::NotUnicode(text)) => {
            Err(OptionsError::HeartbeatPort(text.to_string_lossy().into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_mode() {
        let of = |text: &str| from_variable(Ok(text.to_owned()));
        assert_eq!(from_variable(Err(env::VarError::NotPresent)), Ok(HeartbeatMode::Auto));
        assert_eq!(of(""), Ok(HeartbeatMode::Auto));
        assert_eq!(of("0"), Ok(HeartbeatMode::Legacy));
        assert_eq!(of(" 50052 "), Ok(HeartbeatMode::Strict(50052)));
        let error = of("65536").unwrap_err().to_string();
        assert!(error.starts_with("MOONCAKE_HEARTBEAT_RPC_PORT: \"65536\", expected"), "{error}");
        assert!(of("-1").is_err());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let mut options = ClientOptions::new("localhost");
        assert_eq!(options.check(), Err(OptionsError::Master("localhost".into())));
        options.masters = vec!["[::1]:50051".into()];
        options.heartbeat = Some(HeartbeatMode::Strict(7));
        assert_eq!(options.check(), Ok(HeartbeatMode::Strict(7)));
        options.ping_timeout = Duration::ZERO;
        assert_eq!(options.check(), Err(OptionsError::Zero("ping_timeout")));
        options.masters.clear();
        assert_eq!(options.check(), Err(OptionsError::NoMaster));
    }
}
