//! Condition types and reasons: the enums are the source, `docs/conditions.md` is generated from them.

/// A condition on `MooncakeMaster.status.conditions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionType {
    /// Clients can reach an active that serves.
    Available,
    /// The operator is bringing the objects and pods to what the spec asks for.
    Progressing,
    /// Something needs attention, whether or not clients are served.
    Degraded,
    /// Nobody serves, and the active role cannot move to anybody who would.
    FailoverBlocked,
    /// So many clients fell silent at once that the active suspects the network, or itself.
    ClientsSilent,
    /// Heartbeats come to where they are served.
    HeartbeatRouted,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// As it stands in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

impl ConditionType {
    /// All, in the order in which they are reported.
    pub const ALL: [ConditionType; 6] = [
        ConditionType::Available,
        ConditionType::Progressing,
        ConditionType::Degraded,
        ConditionType::FailoverBlocked,
        ConditionType::ClientsSilent,
        ConditionType::HeartbeatRouted,
    ];

    /// As it stands in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConditionType::Available => "Available",
            ConditionType::Progressing => "Progressing",
            ConditionType::Degraded => "Degraded",
            ConditionType::FailoverBlocked => "FailoverBlocked",
            ConditionType::ClientsSilent => "ClientsSilent",
            ConditionType::HeartbeatRouted => "HeartbeatRouted",
        }
    }

    /// What it says, for the reference.
    pub const fn doc(self) -> &'static str {
        match self {
            ConditionType::Available => {
                "Clients can reach an active that serves: it holds the Lease, its pod is Ready and carries the \
                 leader label that the Service selects. Wait for it with \
                 `kubectl wait --for=condition=Available mooncakemaster/NAME`."
            }
            ConditionType::Progressing => {
                "The operator is bringing the objects and pods to what the spec asks for. False means that it is \
                 done, or that it cannot go on."
            }
            ConditionType::Degraded => {
                "Something needs attention, whether or not clients are served at the moment."
            }
            ConditionType::FailoverBlocked => {
                "The active has not served for `spec.failover.blockedAfter`, and the role cannot move to a master that \
                 would. Nothing is moved while it is True."
            }
            ConditionType::ClientsSilent => {
                "So many clients fell silent at once that the active suspects the network, or itself, and holds them \
                 back from being dropped for one more suspicion time. What they hold is not served meanwhile."
            }
            ConditionType::HeartbeatRouted => {
                "Clients send their heartbeats to where they are served. False while the active refuses some: those \
                 clients count as silent."
            }
        }
    }
}

macro_rules! reasons {
    ($($variant:ident: $condition:ident $status:ident, $doc:literal, $advice:literal;)*) => {
        /// Why a condition has its status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $doc] $variant,)*
        }

        impl Reason {
            /// All, grouped by condition.
            pub const ALL: &[Reason] = &[$(Reason::$variant,)*];

            /// As it stands in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Reason::$variant => stringify!($variant),)* }
            }

            /// The condition that carries it.
            pub const fn condition(self) -> ConditionType {
                match self { $(Reason::$variant => ConditionType::$condition,)* }
            }

            /// The status that goes with it.
            pub const fn status(self) -> ConditionStatus {
                match self { $(Reason::$variant => ConditionStatus::$status,)* }
            }

            /// What it says.
            pub const fn doc(self) -> &'static str {
                match self { $(Reason::$variant => $doc,)* }
            }

            /// What to do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(Reason::$variant => $advice,)* }
            }
        }
    };
}

reasons! {
    ActiveServing: Available True,
        "The active holds the Lease, its pod is Ready and carries the leader label.",
        "Nothing.";
    NoActive: Available False,
        "Nobody holds the Lease: no master has claimed it yet, or the last active has released it.",
        "A standby claims it within seconds. If none does, read the masters' logs.";
    LeaseExpired: Available False,
        "The holder of the Lease has not renewed it for longer than its duration.",
        "A standby takes over by itself. With no healthy standby the reason stays until the holder is back.";
    ActiveNotReady: Available False,
        "The active holds the Lease, but its pod is not Ready: its own probe fails, or it has just taken over.",
        "If it lasts, look at `/readyz` and `/metrics` of the active pod.";
    ActiveNotLabelled: Available False,
        "The active is Ready, but its pod does not carry the leader label, so the Service does not reach it.",
        "The active sets the label, and the operator after 3 s. If it lasts, check the Role of the masters.";
    Unobservable: Available Unknown,
        "The operator could not read what it needs from the API server.",
        "The message says what failed. The masters do not depend on the operator.";
    Creating: Progressing True,
        "Objects or pods are being created.",
        "If it lasts, look at the events of the StatefulSet and of its pods.";
    WaitingForActive: Progressing True,
        "All pods exist; none is active yet.",
        "The election takes a few seconds.";
    RollingOut: Progressing True,
        "Pods are being replaced because the template changed: standbys one at a time, the active last.",
        "Nothing. The message says who is next.";
    Moving: Progressing True,
        "The active role is being moved; `status.move` has the phase.",
        "Nothing. The index does not move with it: clients register with the new active by themselves.";
    ProgressUnknown: Progressing Unknown,
        "The operator could not read what it needs from the API server.",
        "See Available.";
    UpToDate: Progressing False,
        "Everything is as the spec asks for.",
        "Nothing.";
    Paused: Progressing False,
        "`spec.paused` is set: the operator only reports.",
        "Set `spec.paused` to false.";
    Stopped: Progressing False,
        "The operator cannot go on; Degraded says why.",
        "See Degraded. Reverting the change heals a stopped roll.";
    HealthUnknown: Degraded Unknown,
        "The operator could not read what it needs from the API server.",
        "See Available.";
    AsExpected: Degraded False,
        "Nothing needs attention.",
        "Nothing.";
    InvalidSpec: Degraded True,
        "The spec breaks a rule that the API server did not enforce, for example because the installed definition \
         is older than the operator. Nothing is changed until it is corrected.",
        "Correct the fields that the message names; update the CustomResourceDefinition.";
    ForeignObject: Degraded True,
        "An object that the operator would create exists already and belongs to somebody else. It is not touched, \
         and nothing else is created or changed until this is resolved.",
        "Delete or rename the object that the message names, or choose another name for the MooncakeMaster.";
    ApplyFailed: Degraded True,
        "The API server refused a change.",
        "The message has its answer: usually a quota, an admission policy, or a missing permission of the operator.";
    StandbyFailed: Degraded True,
        "A standby does not come up. A roll stops there; the active is not touched.",
        "The message names the pod and what its container waits for. Correct or revert the template.";
    RollFailed: Degraded True,
        "The last master of the older template was to be replaced, and the one that took over from it did not serve. \
         The active of the older template keeps the role; nothing is tried again with the present template.",
        "Read the log of the master that did not serve. Correct or revert the template; to insist, delete the pod of \
         the active.";
    ObjectContested: Degraded True,
        "Somebody else changes or deletes one of the operator's objects again whenever it is corrected. The time between \
         two corrections grows to a minute; a roll waits meanwhile. Said until five minutes after the last correction.",
        "The message names the object, the field and, where the object tells it, the writer. Leave the field to one of \
         the two.";
    RedundancyLost: Degraded True,
        "Fewer standbys than asked for are healthy: a failure of the active would cause an outage, or a longer one.",
        "The message names the pods. They usually come back by themselves.";
    ActiveBlocked: Degraded True,
        "The active does not serve: its pod is not Ready, and it does not answer the operator's HealthCheck either.",
        "A standby takes over after `spec.failover.blockedAfter`. FailoverBlocked says if that cannot be.";
    OperatorCutOff: Degraded True,
        "The operator reaches none of the masters, while their kubelets report as ever. Nothing is moved for it.",
        "Look for a NetworkPolicy that keeps the operator from the pods' metrics and rpc ports.";
    HealthCheckFailing: Degraded True,
        "The active does not answer the operator's HealthCheck, while its pod is Ready. Nothing is moved for it.",
        "Look at `/metrics` of the active. A NetworkPolicy must let the operator reach the rpc port.";
    ActiveNodeLeaving: Degraded True,
        "The node of the active is cordoned or about to go, and the role has not moved yet.",
        "The message says what is missing: usually a standby on a node that stays.";
    NotBlocked: FailoverBlocked False,
        "The active serves, or the role can move.",
        "Nothing.";
    NoCandidate: FailoverBlocked True,
        "Nobody serves, and no other master stands by to take over.",
        "The message names the masters and what keeps them. Free or add a node, or revert the template.";
    CoolingDown: FailoverBlocked True,
        "The active does not serve, and the last failover was less than `spec.failover.cooldown` ago.",
        "The role moves when the cool-down is over. If it happens again, look for a cause that moves with the role.";
    TakeoverFailed: FailoverBlocked True,
        "The role has moved, and the new active does not become Ready either.",
        "Look at the new active: `/readyz`, its log, its node. The operator tries again after the cool-down.";
    FailoverUnknown: FailoverBlocked Unknown,
        "The operator could not read what it needs from the API server.",
        "See Available.";
    ClientsHeard: ClientsSilent False,
        "No mass silence. Single clients may be silent; `status.clients` counts them.",
        "Nothing.";
    MassSilence: ClientsSilent True,
        "A large part of the clients fell silent within one active time.",
        "Look at the network between clients and the active before anything else. Those that come back keep all that \
         they hold.";
    ClientsUnknown: ClientsSilent Unknown,
        "There is no active, or it does not say how its clients are.",
        "See Available. An image older than the operator does not say it at all.";
    HeartbeatsRouted: HeartbeatRouted True,
        "For a minute no heartbeat has come to a port that does not serve it.",
        "Nothing.";
    HeartbeatRoutingMismatch: HeartbeatRouted False,
        "Heartbeats come to the rpc port, while `spec.heartbeat.keepOnMain` is false. Released native clients know no \
         other port; they expire, and what they hold is dropped.",
        "Set `spec.heartbeat.keepOnMain` to true until those clients are replaced. The active's log names them.";
    HeartbeatRoutingUnknown: HeartbeatRouted Unknown,
        "There is no active, or it does not say what it has refused.",
        "See ClientsSilent.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_both_outcomes() {
        for condition in ConditionType::ALL {
            for status in [ConditionStatus::True, ConditionStatus::False] {
                assert!(
                    Reason::ALL.iter().any(|r| r.condition() == condition && r.status() == status),
                    "{condition:?} {status:?}"
                );
            }
        }
    }
}
