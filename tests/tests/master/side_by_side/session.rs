//! One session with a master: calls in their order, each under a name, with its answer in a form that two masters can be
//! compared by.

use mooncake_master::{
    error::ErrorCode,
    rpc::native::{
        generation::{Generation, Method},
        types::Type,
        value::Value,
    },
    types::Uuid,
};
use mooncake_tests::{NativeClient, master::http, native::uuid};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};
use tokio::time::Instant;

/// How long an answer may take to become the expected one.
const PATIENCE: Duration = Duration::from_secs(120);

/// Segment `n` covers the addresses whose upper half is `n`; so an address tells its segment.
pub(crate) const fn base(n: u64) -> u64 {
    n << 32
}

/// What was asked and answered, in order.
#[derive(Debug)]
pub(crate) struct Session {
    client: NativeClient,
    admin: SocketAddr,
    pub(crate) answers: Vec<(String, String)>,
    pub(crate) methods: BTreeSet<Method>,
}

impl Session {
    pub(crate) fn new(rpc: SocketAddr, admin: SocketAddr) -> Session {
        let client = mooncake_tests::wait_for("the master accepts", 20, || NativeClient::connect(rpc).ok());
        mooncake_tests::wait_for("the admin port answers", 20, || {
            (http(admin, "GET", "/health").0 == 200).then_some(())
        });
        Session { client, admin, answers: Vec::new(), methods: BTreeSet::new() }
    }

    fn ask(&mut self, method: Method, args: Vec<Value>) -> String {
        self.methods.insert(method);
        let rpc = Generation::newest().method(method).expect("in the newest generation");
        match self.client.request(method, args) {
            Ok(value) => canonical(rpc.result(), &value),
            // Two servers need not word it alike.
            Err(error) => error.to_string().split(':').take(2).collect::<Vec<_>>().join(":"),
        }
    }

    fn note(&mut self, name: String, answer: String) {
        assert!(self.answers.iter().all(|(known, _)| *known != name), "{name} is asked twice");
        self.answers.push((name, answer));
    }

    /// One call; `what` says what it is about.
    pub(crate) fn call(&mut self, method: Method, what: &str, args: Vec<Value>) -> String {
        let answer = self.ask(method, args);
        self.note(name(method, what), answer.clone());
        answer
    }

    /// The same call until its answer begins with `begins`, for what takes its time. Only the last answer counts; one that
    /// never comes is what the comparison then shows.
    #[allow(clippy::needless_pass_by_value, reason = "written like a call")]
    pub(crate) fn until(&mut self, method: Method, what: &str, args: Vec<Value>, begins: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(method, args.clone());
            if answer.starts_with(begins) || Instant::now() >= deadline {
                self.note(name(method, what), answer);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A page of the admin port; `shape` brings its text into a form that can be compared.
    pub(crate) fn page(&mut self, method: &str, path: &str, shape: impl FnOnce(&str) -> String) -> String {
        let (status, body) = http(self.admin, method, path);
        self.note(format!("{method} {path}"), format!("{status} {}", shape(&body)));
        body
    }

    /// One or several findings about a page.
    pub(crate) fn finding(&mut self, name: &str, answer: String) {
        self.note(name.to_owned(), answer);
    }

    /// A page that is no call of the comparison.
    pub(crate) fn fetch(&self, path: &str) -> (u16, String) {
        http(self.admin, "GET", path)
    }
}

fn name(method: Method, what: &str) -> String {
    format!("{}: {what}", method.name())
}

/// Ids of replicas are left out, addresses and paths lose what depends on hashes; sets are sorted.
fn canonical(ty: Type, value: &Value) -> String {
    match (ty, value) {
        (Type::Expected(_), Value::Expected(Err(code))) => {
            ErrorCode::from_number(*code).map_or_else(|| code.to_string(), |code| code.name().to_owned())
        }
        (Type::Expected(inner), Value::Expected(Ok(value))) => format!("ok {}", canonical(*inner, value)),
        (Type::Opt(inner), Value::Opt(value)) => {
            value.as_ref().map_or("none".to_owned(), |value| canonical(*inner, value))
        }
        (Type::Seq(inner), Value::Seq(values)) => {
            let mut all: Vec<String> = values.iter().map(|value| canonical(*inner, value)).collect();
            let is_set = match *inner {
                Type::Struct(described) => described.name == "Replica::Descriptor",
                Type::Str => true,
                _ => false,
            };
            if is_set {
                all.sort();
            }
            format!("[{}]", all.join(", "))
        }
        (Type::Map(key_type, value_type), Value::Map(pairs)) => {
            let pair = |(key, value): &(Value, Value)| {
                format!("{}: {}", canonical(*key_type, key), canonical(*value_type, value))
            };
            let mut pairs: Vec<String> = pairs.iter().map(pair).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        (Type::Variant(alternatives), Value::Variant(index, value)) => {
            canonical(alternatives[usize::from(*index)], value)
        }
        (Type::Struct(described), Value::Struct(values)) => {
            let is_replica = described.name == "Replica::Descriptor";
            let members = described.members.iter().zip(values);
            let shown = members.filter(|((name, _), _)| !(is_replica && *name == "id"));
            let member = |((name, ty), value): (&(&str, Type), &Value)| match (*name, value) {
                ("buffer_address_", Value::U64(address)) => format!("in segment {}", address >> 32),
                ("file_path", Value::Str(path)) => format!("file {}", without_hash(path)),
                _ => format!("{name} {}", canonical(*ty, value)),
            };
            format!("{} {{{}}}", described.name, shown.map(member).collect::<Vec<_>>().join(", "))
        }
        (_, Value::Str(text)) => String::from_utf8_lossy(text).into_owned(),
        (_, Value::Void) => "done".to_owned(),
        (_, Value::Bool(value)) => value.to_string(),
        (_, Value::U8(value)) => value.to_string(),
        (_, Value::I32(value)) => value.to_string(),
        (_, Value::U32(value)) => value.to_string(),
        (_, Value::I64(value)) => value.to_string(),
        (_, Value::U64(value)) => value.to_string(),
        other => panic!("not of its type: {other:?}"),
    }
}

/// A path without the two directories that a hash of the key chooses.
pub(crate) fn without_hash(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    let mut parts: Vec<&str> = path.split('/').collect();
    let levels = parts.len();
    for at in [levels.saturating_sub(3), levels.saturating_sub(2)] {
        if parts[at].len() == 1 {
            parts[at] = "*";
        }
    }
    parts.join("/")
}

/// The n-th client or segment.
pub(crate) const fn id(n: u64) -> Uuid {
    Uuid { first: n, second: n + 1 }
}

pub(crate) fn client(n: u64) -> Value {
    uuid(id(n))
}

pub(crate) fn text(text: &str) -> Value {
    Value::str(text)
}

pub(crate) fn texts(all: &[&str]) -> Value {
    Value::Seq(all.iter().map(|text| Value::str(*text)).collect())
}

pub(crate) fn tenant() -> Value {
    text("default")
}

/// `ReplicateConfig`, member by member; the default but for what a test changes.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) replica_num: u64,
    pub(crate) nof_replica_num: u64,
    pub(crate) dfs_replica_num: u64,
    pub(crate) soft_pin_action: u8,
    pub(crate) soft_pin_ttl_ms: Option<u64>,
    pub(crate) with_hard_pin: bool,
    pub(crate) preferred_segments: Vec<&'static str>,
    pub(crate) preferred_segment: &'static str,
    pub(crate) prefer_alloc_in_same_node: bool,
    pub(crate) data_type: u8,
    pub(crate) host_id: &'static str,
    pub(crate) group_ids: Option<Vec<&'static str>>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            replica_num: 1,
            nof_replica_num: 0,
            dfs_replica_num: 0,
            soft_pin_action: 0,
            soft_pin_ttl_ms: None,
            with_hard_pin: false,
            preferred_segments: Vec::new(),
            preferred_segment: "",
            prefer_alloc_in_same_node: false,
            data_type: 0,
            host_id: "",
            group_ids: None,
        }
    }
}

impl Config {
    /// On that segment, if there is room.
    pub(crate) fn on(segment: &'static str) -> Config {
        Config { preferred_segment: segment, ..Config::default() }
    }

    pub(crate) fn value(&self) -> Value {
        Value::Struct(vec![
            Value::U64(self.replica_num),
            Value::U64(self.nof_replica_num),
            Value::U64(self.dfs_replica_num),
            Value::U8(self.soft_pin_action),
            Value::Opt(self.soft_pin_ttl_ms.map(|ms| Box::new(Value::U64(ms)))),
            Value::Bool(self.with_hard_pin),
            texts(&self.preferred_segments),
            text(self.preferred_segment),
            Value::Seq(vec![]),
            Value::Bool(self.prefer_alloc_in_same_node),
            Value::U8(self.data_type),
            text(self.host_id),
            Value::Opt(self.group_ids.as_ref().map(|groups| Box::new(texts(groups)))),
        ])
    }
}

/// A segment of `mib` MiB with its number as its place.
pub(crate) fn segment(n: u64, name: &str, mib: u64) -> Value {
    segment_at(n, name, base(n), mib << 20, name)
}

pub(crate) fn segment_at(n: u64, name: &str, base: u64, size: u64, endpoint: &str) -> Value {
    Value::Struct(vec![
        uuid(id(n)),
        text(name),
        Value::U64(base),
        Value::U64(size),
        text(endpoint),
        text("tcp"),
        text(""),
    ])
}

/// `ObjectMeta`.
pub(crate) fn meta(key: &str, checksum: Option<u64>) -> Value {
    Value::Struct(vec![text(key), Value::Opt(checksum.map(|sum| Box::new(Value::U64(sum))))])
}

/// Kinds of replicas as the wire numbers them.
pub(crate) const MEMORY: i32 = 0;
pub(crate) const DISK: i32 = 1;
pub(crate) const LOCAL_DISK: i32 = 2;
pub(crate) const NOF: i32 = 3;
pub(crate) const ALL: i32 = 4;
pub(crate) const DFS: i32 = 100;
