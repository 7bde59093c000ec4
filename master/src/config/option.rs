//! The shape of one row of the option table.

/// The unit of a plain number; a suffix (`ms`, `s`, `m`, `h`) in the value overrides it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// Milliseconds in one of it.
    pub const fn millis(self) -> u64 {
        match self {
            Unit::Millis => 1,
            Unit::Seconds => 1000,
        }
    }

    /// As written in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Millis => "ms",
            Unit::Seconds => "s",
        }
    }
}

/// What values an option takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// true or false.
    Bool,
    /// A whole number in a closed range.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A number in a closed range.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A whole number with a sign.
    Signed,
    /// A time; a plain number is in the unit.
    Duration {
        /// Of a plain number.
        unit: Unit,
        /// Smallest, in the unit.
        min: u64,
    },
    /// A size in bytes; `Ki`, `Mi`, `Gi`, `Ti` (optionally with a `B`) are understood.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of a fixed set of words.
    Choice(&'static [&'static str]),
    /// An IPv4 or IPv6 address.
    Address,
    /// Any text.
    Text,
}

/// Where an option stands in this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It does what its help says.
    Active,
    /// An old name of another option.
    Deprecated {
        /// The name to use.
        instead: &'static str,
    },
    /// What it changes is not in this version: only its default is accepted.
    DefaultOnly,
    /// It shapes a feature that another option switches on, and that one accepts only "off" in this version. As with
    /// the C++ master, it is read, checked and then has no effect.
    ParameterOf(&'static str),
    /// Accepted so that command lines of the C++ master work; it has no meaning here.
    Ignored(&'static str),
}

/// The heading under which an option is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Group {
    General,
    Rpc,
    Heartbeat,
    Admin,
    Probe,
    Objects,
    Liveness,
    Ha,
    Storage,
    Logging,
    Eviction,
    Snapshot,
    Oplog,
    Tasks,
    Offload,
    Features,
    Glog,
}

impl Group {
    /// In the order in which they are shown.
    pub const ALL: &'static [Group] = &[
        Group::General,
        Group::Rpc,
        Group::Heartbeat,
        Group::Admin,
        Group::Probe,
        Group::Objects,
        Group::Liveness,
        Group::Ha,
        Group::Storage,
        Group::Logging,
        Group::Eviction,
        Group::Snapshot,
        Group::Oplog,
        Group::Tasks,
        Group::Offload,
        Group::Features,
        Group::Glog,
    ];

    /// The heading.
    pub const fn title(self) -> &'static str {
        match self {
            Group::General => "General",
            Group::Rpc => "RPC server",
            Group::Heartbeat => "Heartbeat server",
            Group::Admin => "Admin HTTP",
            Group::Probe => "Readiness probe",
            Group::Objects => "Objects",
            Group::Liveness => "Client liveness",
            Group::Ha => "High availability",
            Group::Storage => "Storage settings told to clients",
            Group::Logging => "Logging",
            Group::Eviction => "Eviction",
            Group::Snapshot => "Snapshots",
            Group::Oplog => "Operation log",
            Group::Tasks => "Copy and move tasks",
            Group::Offload => "Offload and promotion",
            Group::Features => "Other features of the C++ master",
            Group::Glog => "Flags of glog and gflags",
        }
    }
}

/// One option.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spec {
    /// With underscores, the same on the command line and in the file.
    pub name: &'static str,
    /// Heading.
    pub group: Group,
    /// What values it takes.
    pub kind: Kind,
    /// As it would be written on the command line.
    pub default: &'static str,
    /// What it does, one or two sentences.
    pub help: &'static str,
    /// Where it stands.
    pub status: Status,
    /// The environment variable that sets it, if there is one.
    pub env: Option<&'static str>,
}

impl Spec {
    /// An active option without an environment variable.
    pub(super) const fn new(
        group: Group,
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> Spec {
        Spec { name, group, kind, default, help, status: Status::Active, env: None }
    }

    /// With an environment variable.
    pub(super) const fn env(mut self, name: &'static str) -> Spec {
        self.env = Some(name);
        self
    }

    /// An old name.
    pub(super) const fn deprecated(mut self, instead: &'static str) -> Spec {
        self.status = Status::Deprecated { instead };
        self
    }

    /// Not in this version.
    pub(super) const fn default_only(mut self) -> Spec {
        self.status = Status::DefaultOnly;
        self
    }

    /// No effect while `switch` is off.
    pub(super) const fn parameter_of(mut self, switch: &'static str) -> Spec {
        self.status = Status::ParameterOf(switch);
        self
    }

    /// No meaning here.
    pub(super) const fn ignored(mut self, why: &'static str) -> Spec {
        self.status = Status::Ignored(why);
        self
    }
}
