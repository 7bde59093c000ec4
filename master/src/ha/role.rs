//! The role of this process: what `/role`, `/leader`, `/ha_status` and `/health` tell.

use crate::lock::Mutex;
use std::sync::{
    OnceLock,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

/// The runtime states of a master (facts §7.2); the text is what `/ha_status` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum HaState {
    Starting,
    Standby,
    Candidate,
    Recovering,
    CatchingUp,
    LeaderWarmup,
    Serving,
}

impl HaState {
    /// In the order of the numbers.
    pub const ALL: [HaState; 7] = [
        HaState::Starting,
        HaState::Standby,
        HaState::Candidate,
        HaState::Recovering,
        HaState::CatchingUp,
        HaState::LeaderWarmup,
        HaState::Serving,
    ];

    /// As `/ha_status` shows it.
    pub const fn name(self) -> &'static str {
        match self {
            HaState::Starting => "starting",
            HaState::Standby => "standby",
            HaState::Candidate => "candidate",
            HaState::Recovering => "recovering",
            HaState::CatchingUp => "catching_up",
            HaState::LeaderWarmup => "leader_warmup",
            HaState::Serving => "serving",
        }
    }

    /// As `/role` shows it.
    pub const fn role(self) -> &'static str {
        match self {
            HaState::LeaderWarmup | HaState::Serving => "leader",
            _ => "standby",
        }
    }
}

/// Who leads, as far as this process knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// `host:port` of its RPC server.
    pub address: String,
    /// Its epoch; 0 without HA.
    pub epoch: u64,
}

/// The role of this process. Written by the lease thread; its lock is held for the copy of one address.
#[derive(Debug)]
pub struct RoleInfo {
    state: AtomicU8,
    transitions: AtomicU64,
    leader: Mutex<Option<Leader>>,
    incarnation: OnceLock<String>,
}

impl Default for RoleInfo {
    fn default() -> Self {
        RoleInfo {
            state: AtomicU8::new(HaState::Starting as u8),
            transitions: AtomicU64::new(0),
            leader: Mutex::new(None),
            incarnation: OnceLock::new(),
        }
    }
}

impl RoleInfo {
    /// The present state.
    pub fn state(&self) -> HaState {
        HaState::ALL[usize::from(self.state.load(Ordering::Acquire))]
    }

    /// Changes the state.
    pub fn set_state(&self, state: HaState) {
        if self.state.swap(state as u8, Ordering::AcqRel) != state as u8 {
            self.transitions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Changes of state since the start.
    pub fn transitions(&self) -> u64 {
        self.transitions.load(Ordering::Relaxed)
    }

    /// The id of this process image; None before the lease thread has started.
    pub fn incarnation(&self) -> Option<&str> {
        self.incarnation.get().map(String::as_str)
    }

    /// Says which process image this is. It never changes.
    pub(super) fn set_incarnation(&self, incarnation: &str) {
        self.incarnation.get_or_init(|| incarnation.to_owned());
    }

    /// The known leader; None while nobody leads.
    pub fn leader(&self) -> Option<Leader> {
        self.leader.lock().clone()
    }

    /// Changes the known leader.
    pub fn set_leader(&self, leader: Option<Leader>) {
        *self.leader.lock() = leader;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_upstreams_names() {
        let role = RoleInfo::default();
        assert_eq!((role.state().name(), role.state().role()), ("starting", "standby"));
        for state in HaState::ALL {
            role.set_state(state);
            role.set_state(state);
            assert_eq!(role.state(), state);
        }
        role.set_incarnation("a");
        role.set_incarnation("b");
        assert_eq!(role.incarnation(), Some("a"));
        assert_eq!(role.transitions(), 6);
        assert_eq!(HaState::LeaderWarmup.role(), "leader");
    }
}
