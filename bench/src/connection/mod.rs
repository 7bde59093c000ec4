//! One connection to a master, one call at a time, over either protocol.

mod grpc;
mod native;

use crate::keys::KeyBatch;
use mooncake_master::{error::ErrorCode, types::Uuid};
use std::{collections::BTreeMap, io, net::SocketAddr};

/// The longest that a call may take; a stall is what is measured, so it is long.
pub(crate) const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

/// What the calls speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// That of upstream's clients.
    Native,
    /// `mooncake.master.v1`.
    Grpc,
}

/// Results, counted per item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// As wanted.
    pub(crate) done: u64,
    /// Refused, by code; 1 stands for "not there" of an existence check.
    pub(crate) refused: BTreeMap<i32, u64>,
}

impl Tally {
    fn count(&mut self, result: Result<bool, i32>) {
        match result {
            Ok(true) => self.done += 1,
            Ok(false) => *self.refused.entry(1).or_default() += 1,
            Err(code) => *self.refused.entry(code).or_default() += 1,
        }
    }

    /// Adds another one's counts.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.done += other.done;
        for (code, count) in &other.refused {
            *self.refused.entry(*code).or_default() += count;
        }
    }

    /// Names and counts of refusals.
    pub(crate) fn refusals(&self) -> BTreeMap<String, u64> {
        let name = |code: i32| match ErrorCode::from_number(code) {
            _ if code == 1 => "NOT_THERE".to_owned(),
            Some(code) => code.name().to_owned(),
            None => code.to_string(),
        };
        self.refused.iter().map(|(code, count)| (name(*code), *count)).collect()
    }

    /// An error unless all of `items` went as wanted.
    pub(crate) fn all(&self, what: &str, items: u64) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.done == items,
            "{what}: {} of {items} done, refused: {:?}",
            self.done,
            self.refusals()
        );
        Ok(())
    }
}

/// A piece of memory as a segment client offers it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) client: Uuid,
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) base: u64,
    pub(crate) size: u64,
}

/// What a put says beside its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put<'a> {
    /// The writer.
    pub(crate) client: Uuid,
    /// Bytes of the value.
    pub(crate) size: u64,
    /// Segment to try first, empty for none.
    pub(crate) preferred: &'a str,
}

/// A connection.
pub(crate) enum Connection {
    Native(Box<native::Native>),
    Grpc(Box<grpc::Grpc>),
}

macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {
        impl Connection {
            $($(#[$doc])* pub(crate) fn $name(&mut self, $($arg: $ty),*) -> io::Result<$result> {
                match self {
                    Connection::Native(connection) => connection.$name($($arg),*),
                    Connection::Grpc(connection) => connection.$name($($arg),*),
                }
            })*
        }
    };
}

forward! {
    /// Whether the client need not mount again, or the code of the refusal.
    ping(client: Uuid) -> Result<bool, i32>;
    /// The code of the refusal.
    mount(segment: &Segment) -> Result<(), i32>;
    /// The code of the refusal.
    remount(segment: &Segment) -> Result<(), i32>;
    /// Done if it exists.
    exist(key: &[u8], tally: &mut Tally) -> ();
    /// Done for each that exists.
    batch_exist(keys: &[Vec<u8>], tally: &mut Tally) -> ();
    /// Done if it has a replica.
    get(key: &[u8], tally: &mut Tally) -> ();
    /// Done for each that has a replica.
    batch_get(keys: &[Vec<u8>], tally: &mut Tally) -> ();
    /// Done if it got a place.
    put_start(put: Put<'_>, key: &[u8], tally: &mut Tally) -> ();
    /// Done if it is readable.
    put_end(put: Put<'_>, key: &[u8], tally: &mut Tally) -> ();
    /// Done for each that got a place.
    batch_put_start(put: Put<'_>, keys: &[Vec<u8>], tally: &mut Tally) -> ();
    /// Done for each that is readable.
    batch_put_end(put: Put<'_>, keys: &[Vec<u8>], tally: &mut Tally) -> ();
    /// How many keys were removed.
    remove_all() -> i64;
    /// Whether HealthCheck says ok; `None` from a master that does not know the question.
    health() -> Option<bool>;
    /// The master's heartbeat port, 0 for none.
    heartbeat_port() -> u16;
}

impl Connection {
    /// A new connection.
    pub(crate) fn open(protocol: Protocol, address: SocketAddr) -> io::Result<Connection> {
        Ok(match protocol {
            Protocol::Native => Connection::Native(Box::new(native::Native::open(address)?)),
            Protocol::Grpc => Connection::Grpc(Box::new(grpc::Grpc::open(address)?)),
        })
    }

    /// Puts the keys of these numbers, 128 at a time.
    pub(crate) fn fill(
        &mut self,
        put: Put<'_>,
        space: crate::keys::KeySpace,
        mut numbers: std::ops::Range<u64>,
    ) -> anyhow::Result<()> {
        let mut batch = KeyBatch::default();
        while !numbers.is_empty() {
            let part = numbers.start..numbers.end.min(numbers.start + 128);
            numbers.start = part.end;
            // A `Range<u64>` does not know its length, a vector does.
            let keys = batch.fill(space, part.collect::<Vec<_>>().into_iter());
            let (mut started, mut ended) = (Tally::default(), Tally::default());
            self.batch_put_start(put, keys, &mut started)?;
            started.all("BatchPutStart", keys.len() as u64)?;
            self.batch_put_end(put, keys, &mut ended)?;
            ended.all("BatchPutEnd", keys.len() as u64)?;
        }
        Ok(())
    }
}
