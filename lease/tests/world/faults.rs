//! What goes wrong, drawn at random.

use super::{MS, SECOND, What, World};
use mooncake_lease::{Command, Input, WatchInput, record};
use rand::{Rng, seq::IndexedRandom};
use serde_json::{Value, json};
use std::time::Duration;

fn annotation(raw: &mut Value, name: &str, value: Value) {
    if !raw["metadata"]["annotations"].is_object() {
        raw["metadata"]["annotations"] = json!({});
    }
    raw["metadata"]["annotations"][name] = value;
}

impl World {
    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let next = self.rng.random_range(200 * MS..4 * SECOND);
        self.at(next, What::Fault);
        let any = self.rng.random_range(0..self.slots.len());
        let holder = (0..self.slots.len()).find(|&slot| self.end_of(slot) > self.now);
        let slot = holder.filter(|_| self.rng.random_bool(0.6)).unwrap_or(any);
        let process = self.slots[slot].process;
        match self.rng.random_range(0..15) {
            0 => {
                self.stop(slot);
                let (after, same_pod) = (self.rng.random_range(0..3 * SECOND), self.rng.random_bool(0.5));
                self.at(after, What::Start { slot, same_pod });
            }
            1 => {
                self.slots[slot].leaving = true;
                self.feed(slot, Input::Command(Command::Resign { successor: None }));
            }
            2 => {
                let successor = self.slots[any].incarnation.clone();
                self.feed(slot, Input::Command(Command::Resign { successor: Some(successor) }));
            }
            3 => self.slots[slot].paused_until = self.now + self.rng.random_range(SECOND / 2..12 * SECOND),
            4 => {
                let long = if self.rng.random_bool(0.3) { 60 } else { 6 };
                self.away_until = self.now + self.rng.random_range(SECOND / 2..long * SECOND);
            }
            5 => self.slots[slot].cut_until = self.now + self.rng.random_range(SECOND / 2..15 * SECOND),
            6 => {
                self.server.delete();
                self.wake_watches();
                self.raise_floors();
                if self.rng.random_bool(0.6) {
                    let after = self.rng.random_range(0..4 * SECOND);
                    self.at(after, What::Recreate);
                }
            }
            7 | 8 => self.scribble(),
            9 => {
                self.slots[slot].watched = self.server.history.len();
                self.feed(slot, Input::Watch(WatchInput::Broken));
            }
            10 if self.profile.members => {
                let all: Vec<String> = self.slots.iter().map(|slot| slot.incarnation.clone()).collect();
                let own = self.slots[slot].incarnation.clone();
                let members = all.into_iter().filter(|id| *id != own && self.rng.random_bool(0.6)).collect();
                self.feed(slot, Input::Command(Command::InSync(members)));
            }
            11 => {
                self.feed(slot, Input::Command(Command::MayClaim(false)));
                let after = self.rng.random_range(0..5 * SECOND);
                self.at(after, What::Command { slot, process, command: Command::MayClaim(true) });
            }
            12 | 13 => {
                let successor = self.slots[any].incarnation.clone();
                self.server.scribble(|raw| annotation(raw, record::DESIGNATED, successor.into()));
                self.wake_watches();
            }
            14 => {
                let period = Duration::from_secs(self.rng.random_range(0..15));
                self.feed(slot, Input::Command(Command::Reluctant { period }));
            }
            _ => {}
        }
    }

    /// The operator's status is current when a Lease goes.
    fn raise_floors(&mut self) {
        let applied = self.server.history.iter().filter_map(|change| match change {
            super::Change::Put(raw) => raw["spec"]["leaseTransitions"].as_u64(),
            super::Change::Deleted { .. } => None,
        });
        let epoch = applied.max().unwrap_or(0).max(self.highest);
        self.highest = self.highest.max(epoch);
        for slot in 0..self.slots.len() {
            let floor = Command::EpochFloor { epoch, duration: Duration::ZERO };
            self.feed(slot, Input::Command(floor));
        }
    }

    pub(super) fn recreate(&mut self) {
        let body = json!({
            "metadata": { "name": "m", "namespace": "ns", "labels": { "app": "m" } },
            "spec": { "leaseTransitions": self.highest },
        });
        self.server.apply(&mooncake_lease::RequestKind::Create(body));
        self.wake_watches();
    }

    fn scribble(&mut self) {
        let names = [
            "foreign",
            record::INCARNATION,
            record::READ_LEASE_TTL_MS,
            record::RELEASED,
            record::POD_UID,
            record::IN_SYNC,
            record::DESIGNATED,
        ];
        // Not the incarnation of a living process: that would be a proof of death that is a lie.
        let value = format!("garbage {}", self.rng.random_range(0..1000));
        let name = *names.choose(&mut self.rng).unwrap();
        match self.rng.random_range(0..6) {
            0 => self.server.scribble(|raw| annotation(raw, name, Value::Null)),
            1 => self.server.scribble(|raw| {
                if let Some(spec) = raw["spec"].as_object_mut() {
                    spec.remove("leaseDurationSeconds");
                }
            }),
            2 => self.server.scribble(|raw| raw["spec"]["holderIdentity"] = Value::Null),
            3 => self.server.scribble(|raw| raw["metadata"]["labels"] = json!({ "x": value })),
            _ => self.server.scribble(|raw| annotation(raw, name, value.into())),
        }
        self.wake_watches();
    }
}
