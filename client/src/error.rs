//! What can go wrong, by name and number.

use crate::options::OptionsError;
use mooncake_proto::v1::ErrorCode;
use std::fmt;

macro_rules! connect_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// The kind of a [`ConnectError`].
        ///
        /// These are results of *this library's* connect, not codes of the wire: there -901 is RPC_TIMEOUT.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum ConnectCode { $($(#[$doc])* $variant = $number,)* }

        impl ConnectCode {
            /// Every code.
            pub const ALL: &'static [ConnectCode] = &[$(ConnectCode::$variant),*];

            /// The name, e.g. `HEARTBEAT_RPC_UNREACHABLE`.
            pub const fn name(self) -> &'static str {
                match self { $(ConnectCode::$variant => $name),* }
            }

            /// The code of that number.
            pub const fn from_number(number: i32) -> Option<ConnectCode> {
                match number { $($number => Some(ConnectCode::$variant),)* _ => None }
            }

            /// The code of that name.
            pub fn from_name(name: &str) -> Option<ConnectCode> {
                match name { $($name => Some(ConnectCode::$variant),)* _ => None }
            }
        }
    };
}

connect_codes! {
    /// The store's version is not the one that this client speaks.
    InvalidVersion = -300, "INVALID_VERSION";
    /// An option cannot be used.
    InvalidParams = -600, "INVALID_PARAMS";
    /// No master answered on its main port.
    RpcFail = -900, "RPC_FAIL";
    /// The heartbeat port does not answer, and the main port does not take heartbeats either.
    HeartbeatRpcUnreachable = -901, "HEARTBEAT_RPC_UNREACHABLE";
    /// This client's mode and the master's options do not go together.
    HeartbeatRoutingMismatch = -902, "HEARTBEAT_ROUTING_MISMATCH";
}

impl ConnectCode {
    /// The number.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for ConnectCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

/// Why a client is not connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// See there.
    #[error("{}: {reason}", self.code())]
    Options {
        /// Which, and what was expected.
        reason: OptionsError,
    },
    /// No connection to the main port, or no answer on it.
    #[error("{}: {master}: {reason}", self.code())]
    Unreachable {
        /// As in the options.
        master: String,
        /// What happened.
        reason: String,
    },
    /// Another version of the store.
    #[error("{}: {master} speaks version {found:?}, expected {expected:?}", self.code())]
    Version {
        /// As in the options.
        master: String,
        /// What this client speaks.
        expected: &'static str,
        /// What the master said.
        found: String,
    },
    /// See [`ConnectCode::HeartbeatRpcUnreachable`].
    #[error("{}: heartbeat port {port} of {master}: {reason}", self.code())]
    HeartbeatUnreachable {
        /// As in the options.
        master: String,
        /// The advertised port, or that of strict mode.
        port: u16,
        /// What happened.
        reason: String,
    },
    /// See [`ConnectCode::HeartbeatRoutingMismatch`].
    #[error("{}: {master}: {reason}", self.code())]
    HeartbeatRouting {
        /// As in the options.
        master: String,
        /// The port that the master advertises, 0 for none.
        advertised: u16,
        /// What does not go together.
        reason: String,
    },
}

impl From<OptionsError> for ConnectError {
    fn from(reason: OptionsError) -> ConnectError {
        ConnectError::Options { reason }
    }
}

impl ConnectError {
    /// Its kind.
    pub const fn code(&self) -> ConnectCode {
        match self {
            ConnectError::Options { .. } => ConnectCode::InvalidParams,
            ConnectError::Unreachable { .. } => ConnectCode::RpcFail,
            ConnectError::Version { .. } => ConnectCode::InvalidVersion,
            ConnectError::HeartbeatUnreachable { .. } => ConnectCode::HeartbeatRpcUnreachable,
            ConnectError::HeartbeatRouting { .. } => ConnectCode::HeartbeatRoutingMismatch,
        }
    }
}

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The master refused, with this code of the wire.
    #[error("{} ({})", .0.as_str_name(), *.0 as i32)]
    Refused(ErrorCode),
    /// The master refused with a code that this client does not know.
    #[error("error code {0}, which this client does not know")]
    UnknownCode(i32),
    /// There is no connection and none could be made. The call was not sent.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The master does not serve now (no longer the active, or not yet); the next call begins with a new handshake.
    #[error("the master does not serve: {0}")]
    NotServing(String),
    /// No answer in [`crate::ClientOptions::call_timeout`]. A mutation may or may not have been done.
    #[error("no answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// The connection broke. A mutation may or may not have been done.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// Another gRPC status: a field out of range, a call that is not served there.
    #[error("{}: {}", .0.code(), .0.message())]
    Status(tonic::Status),
    /// The answer does not fit the question.
    #[error("answer: {0}")]
    Answer(String),
}

impl Error {
    /// The code of the wire for it, as a native client would report it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Refused(code) => *code,
            Error::TimedOut(_) => ErrorCode::RpcTimeout,
            Error::NotServing(_) => ErrorCode::UnavailableInCurrentStatus,
            Error::Status(status) if status.code() == tonic::Code::InvalidArgument => {
                ErrorCode::InvalidParams
            }
            Error::UnknownCode(_)
            | Error::Connect(_)
            | Error::Broken(_)
            | Error::Status(_)
            | Error::Answer(_) => ErrorCode::RpcFail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeat_error_codes_round_trip() {
        for &code in ConnectCode::ALL {
            assert_eq!(ConnectCode::from_number(code.number()), Some(code));
            assert_eq!(ConnectCode::from_name(code.name()), Some(code));
        }
        assert_eq!(ConnectCode::HeartbeatRpcUnreachable.number(), -901);
        assert_eq!(ConnectCode::from_name("HEARTBEAT_RPC_UNREACHABLE").map(ConnectCode::number), Some(-901));
        assert_eq!(ConnectCode::from_name("HEARTBEAT_ROUTING_MISMATCH").map(ConnectCode::number), Some(-902));
        // The wire keeps upstream's meaning of -901.
        assert_eq!(ErrorCode::try_from(-901), Ok(ErrorCode::RpcTimeout));
        assert_eq!(ErrorCode::try_from(-902), Ok(ErrorCode::HeartbeatRoutingMismatch));
    }

    #[test]
    fn messages_begin_with_the_name() {
        let error = ConnectError::HeartbeatUnreachable {
            master: "a:1".into(),
            port: 7,
            reason: "connection refused".into(),
        };
        assert_eq!(
            error.to_string(),
            "HEARTBEAT_RPC_UNREACHABLE (-901): heartbeat port 7 of a:1: connection refused"
        );
        assert_eq!(Error::Refused(ErrorCode::ObjectNotFound).to_string(), "OBJECT_NOT_FOUND (-704)");
    }
}
