//! What can be asked for, read from a path and a query; every mistake is named.

use crate::core::SHARDS;
use std::{fmt::Write as _, time::Duration};

/// Every fault with what it takes, for whoever asks.
pub(super) const NAMES: &[&str] = &[
    "hold_shard?index=&for_ms=",
    "sleep_handlers?ms=&for_ms=",
    "stick_thread?index=&for_ms=",
    "stop_accept?for_ms=",
    "pause_monitor?for_ms=",
    "fail_step?step=&times=",
    "slow_step?step=&ms=&for_ms=",
];

/// The longest that a fault may last, milliseconds.
const MAX_FOR_MS: u64 = 600_000;
/// The longest that one handler or one step may be held up, milliseconds.
const MAX_EACH_MS: u64 = 60_000;

/// A step that can be made to fail or to be slow: of a promotion, or of offboarding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultStep {
    /// The beginning of a promotion, before there is a core.
    Promote,
    /// The RPC ports are bound.
    Bind,
    /// A self-probe after the promotion, until one was ok.
    FirstProbe,
    /// At most 64 keys, or the ranges set aside, taken out of a closed segment.
    CleanSegment,
    /// The cleaned segment taken out of the registry.
    RemoveSegment,
    /// The record taken away, the last step, which lets the client mount again.
    RemoveRecord,
}

impl FaultStep {
    /// In the order in which they happen.
    pub const ALL: [FaultStep; 6] = [
        FaultStep::Promote,
        FaultStep::Bind,
        FaultStep::FirstProbe,
        FaultStep::CleanSegment,
        FaultStep::RemoveSegment,
        FaultStep::RemoveRecord,
    ];

    /// Those of a client's offboarding, in their order.
    pub const OFFBOARDING: [FaultStep; 3] =
        [FaultStep::CleanSegment, FaultStep::RemoveSegment, FaultStep::RemoveRecord];

    /// As a request names it.
    pub const fn name(self) -> &'static str {
        match self {
            FaultStep::Promote => "promote",
            FaultStep::Bind => "bind",
            FaultStep::FirstProbe => "first_probe",
            FaultStep::CleanSegment => "clean_segment",
            FaultStep::RemoveSegment => "remove_segment",
            FaultStep::RemoveRecord => "remove_record",
        }
    }
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultRequest {
    /// A shard's lock is held for writing by a thread of its own.
    HoldShard {
        /// 0 to 1023.
        index: u16,
        /// For how long.
        time: Duration,
    },
    /// Each data handler blocks its thread before it works; Ping, ServiceReady and HealthCheck do not.
    SleepHandlers {
        /// Time of each call.
        each: Duration,
        /// For calls that begin within this.
        time: Duration,
    },
    /// One data thread of the main server blocks.
    StickThread {
        /// Which one.
        index: usize,
        /// For how long.
        time: Duration,
    },
    /// The accept thread of the main server blocks.
    StopAccept {
        /// For how long.
        time: Duration,
    },
    /// The liveness monitor does not run.
    PauseMonitor {
        /// For how long.
        time: Duration,
    },
    /// A step fails and is tried again later.
    FailStep {
        /// Which one.
        step: FaultStep,
        /// How often.
        times: u64,
    },
    /// A step takes longer.
    SlowStep {
        /// Which one.
        step: FaultStep,
        /// Each time by this.
        each: Duration,
        /// For steps that begin within this.
        time: Duration,
    },
}

/// Why a fault was not injected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FaultError {
    #[error("fault injection is off; it needs --enable_fault_injection at the start of the master")]
    Disabled,
    #[error("no such fault: {0}; there are {list}", list = NAMES.join(", "))]
    NoSuchFault(String),
    #[error("{fault} does not take {name:?}; it is {usage}")]
    NoSuchParameter { fault: &'static str, name: String, usage: &'static str },
    #[error("{fault}: {name} is missing; it is {usage}")]
    Missing { fault: &'static str, name: &'static str, usage: &'static str },
    #[error("{fault}: {name} is given twice")]
    Twice { fault: &'static str, name: &'static str },
    #[error("{fault}: {name}={value:?} is not {expected}")]
    BadValue { fault: &'static str, name: &'static str, value: String, expected: String },
    #[error("stick_thread: index={index} is not one of the data threads 0 to {last}")]
    NoSuchThread { index: usize, last: usize },
    #[error("nothing serves here at present, so there is nothing that could suffer")]
    NothingServes,
    #[error("no thread for it: {0}")]
    NoThread(String),
}

/// The parameters of one request.
struct Query<'a> {
    fault: &'static str,
    values: Vec<(&'static str, &'a str)>,
    usage: &'static str,
}

impl<'a> Query<'a> {
    /// `usage` is an entry of [`NAMES`]; it says which parameters there are.
    fn read(usage: &'static str, query: &'a str) -> Result<Query<'a>, FaultError> {
        let (fault, names) = usage.split_once('?').unwrap_or((usage, ""));
        let mut values: Vec<(&'static str, &str)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (given, value) = pair.split_once('=').unwrap_or((pair, ""));
            let known = names.split('&').map(|name| name.trim_end_matches('=')).find(|name| *name == given);
            let Some(name) = known else {
                return Err(FaultError::NoSuchParameter { fault, name: shortened(given), usage });
            };
            if values.iter().any(|(other, _)| *other == name) {
                return Err(FaultError::Twice { fault, name });
            }
            values.push((name, value));
        }
        Ok(Query { fault, values, usage })
    }

    fn text(&self, name: &'static str) -> Result<&'a str, FaultError> {
        let found = self.values.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        found.ok_or(FaultError::Missing { fault: self.fault, name, usage: self.usage })
    }

    fn bad(&self, name: &'static str, value: &str, expected: String) -> FaultError {
        FaultError::BadValue { fault: self.fault, name, value: shortened(value), expected }
    }

    fn number(&self, name: &'static str, min: u64, max: u64) -> Result<u64, FaultError> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| self.bad(name, text, format!("a whole number from {min} to {max}")))
    }

    fn millis(&self, name: &'static str, max: u64) -> Result<Duration, FaultError> {
        self.number(name, 1, max).map(Duration::from_millis)
    }

    fn time(&self) -> Result<Duration, FaultError> {
        self.millis("for_ms", MAX_FOR_MS)
    }

    fn each(&self) -> Result<Duration, FaultError> {
        self.millis("ms", MAX_EACH_MS)
    }

    fn step(&self) -> Result<FaultStep, FaultError> {
        let text = self.text("step")?;
        FaultStep::ALL.into_iter().find(|step| step.name() == text).ok_or_else(|| {
            let mut names = "one of".to_owned();
            for step in FaultStep::ALL {
                // Writing to a string does not fail.
                let _ = write!(names, " {}", step.name());
            }
            self.bad("step", text, names)
        })
    }
}

impl FaultRequest {
    /// From the last part of the path and the query.
    pub fn parse(name: &str, query: &str) -> Result<FaultRequest, FaultError> {
        let usage = NAMES.iter().find(|usage| usage.split('?').next() == Some(name));
        let Some(usage) = usage else { return Err(FaultError::NoSuchFault(shortened(name))) };
        let q = Query::read(usage, query)?;
        Ok(match name {
            "hold_shard" => FaultRequest::HoldShard {
                index: q.number("index", 0, u64::from(SHARDS) - 1)? as u16,
                time: q.time()?,
            },
            "sleep_handlers" => FaultRequest::SleepHandlers { each: q.each()?, time: q.time()? },
            "stick_thread" => {
                FaultRequest::StickThread { index: q.number("index", 0, 1023)? as usize, time: q.time()? }
            }
            "stop_accept" => FaultRequest::StopAccept { time: q.time()? },
            "pause_monitor" => FaultRequest::PauseMonitor { time: q.time()? },
            "fail_step" => {
                FaultRequest::FailStep { step: q.step()?, times: q.number("times", 1, 1_000_000)? }
            }
            _ => FaultRequest::SlowStep { step: q.step()?, each: q.each()?, time: q.time()? },
        })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
