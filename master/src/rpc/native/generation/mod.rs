//! One type table per client generation.
//!
//! # How to add the next generation
//! `docs/generations.md` has the steps. In the code it is a table file and its line in [`TABLES`]: members are found by
//! their names, so a new order, a new member or a missing one needs no other code. What no decoder asks for is checked and
//! skipped, what a decoder asks for and the table lacks keeps its default.
//!
//! A function that no generation had before also needs a [`Method`], and a line in `request.rs` if it is served.
//! The tests compare every row with what was found in that release's binaries, and every typed decoder with the table.

mod common;
mod set;
mod v09;
mod v11;
mod v12;
mod v13;

pub use set::{Function, GenerationSet};

use super::{
    body::open,
    field::Step,
    request,
    types::{Member, Signature, Type, function_id},
};
use crate::types::{ClientId, Uuid};
use common::{HEALTH_CHECK, HEARTBEAT_READY, rpcs};
use std::sync::LazyLock;

/// What the C++ class was called; part of every function id.
const CLASS: &str = "mooncake::WrappedMasterService::";

macro_rules! methods {
    ($($name:ident)*) => {
        /// A function of the master, in any generation.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum Method { $($name),* }

        impl Method {
            /// Every function.
            pub const ALL: &'static [Method] = &[$(Method::$name),*];

            /// The name, without namespace and class.
            pub const fn name(self) -> &'static str {
                match self { $(Method::$name => stringify!($name)),* }
            }

            /// The function of that name.
            pub fn from_name(name: &str) -> Option<Method> {
                Method::ALL.iter().copied().find(|method| method.name() == name)
            }
        }
    };
}

methods! {
    ExistKey BatchExistKey BatchQueryIp BatchReplicaClear GetReplicaListByRegex GetReplicaList BatchGetReplicaList
    PutStart PutEnd PutRevoke BatchPutStart BatchPutEnd BatchPutRevoke
    UpsertStart UpsertEnd UpsertRevoke BatchUpsertStart BatchUpsertEnd BatchUpsertRevoke
    Remove BatchRemove RemoveByRegex RemoveAll
    MountSegment ReMountSegment UnmountSegment GracefulUnmountSegment QuerySegmentStatus QuerySegmentStatusById
    MountNoFSegment ReMountNoFSegment UnmountNoFSegment GetAllNoFSegments GetNoFSegmentsByName
    Ping GetFsdir GetStorageConfig ServiceReady
    MountLocalDiskSegment UnmountLocalDiskSegment OffloadObjectHeartbeat PollRemoveAll ReportSsdCapacity
    NotifyOffloadSuccess PromotionObjectHeartbeat PromotionAllocStart NotifyPromotionSuccess NotifyPromotionFailure
    CopyStart CopyEnd CopyRevoke DynamicReplicaCopyStart DynamicReplicaCopyEnd DynamicReplicaCopyRevoke
    MoveStart MoveEnd MoveRevoke EvictDiskReplica BatchEvictDiskReplica
    CreateCopyTask CreateMoveTask QueryTask FetchTasks MarkTaskToComplete
    HealthCheck HeartbeatServiceReady GetHeartbeatRpcPort
}

impl Method {
    /// The id by which the wire names it, the same in all generations.
    pub fn function_id(self) -> u32 {
        function_id(&format!("{CLASS}{}", self.name()))
    }
}

/// One function as a table describes it.
#[derive(Debug)]
struct Row {
    method: Method,
    args: &'static [Member],
    result: Type,
}

/// What one file says.
#[derive(Debug)]
struct Table {
    /// The first release whose clients say this.
    name: &'static str,
    /// Every function that is registered or called in that release's binaries.
    rows: &'static [Row],
    /// Functions that the release's master has and its client never calls, where that helps to tell clients apart.
    unsent: &'static [Method],
}

/// Every table, oldest first.
const TABLES: &[Table] = &[v09::TABLE, v11::TABLE, v12::TABLE, v13::TABLE];

/// Names of the generations, oldest first.
pub const NAMES: &[&str] = &{
    let mut names = [""; TABLES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = TABLES[i].name;
        i += 1;
    }
    names
};

/// Name of the newest generation.
pub const NEWEST: &str = NAMES[NAMES.len() - 1];

/// The functions of this master that no upstream release has (C3); every generation has them.
const OURS: &[Row] = rpcs! {
    HealthCheck() -> Type::Expected(&HEALTH_CHECK);
    HeartbeatServiceReady() -> Type::Expected(&HEARTBEAT_READY);
    GetHeartbeatRpcPort() -> Type::Expected(&Type::U32);
};

/// A function in one generation, with everything that is computed from its description.
#[derive(Debug)]
pub struct Rpc {
    method: Method,
    function_id: u32,
    args: &'static [Member],
    result: Type,
    args_signature: Option<Signature>,
    /// A single argument may also come as a tuple of one.
    args_in_tuple: Option<Signature>,
    result_signature: Signature,
    shape: AnswerShape,
    plan: Option<Step>,
    /// Which argument is the client's id.
    client: Option<usize>,
}

impl Rpc {
    fn new(row: &Row) -> Rpc {
        let tuple = || Signature::of_tuple(row.args);
        let (args_signature, args_in_tuple) = match row.args {
            [] => (None, None),
            [(_, only)] => (Some(Signature::of(*only)), Some(tuple())),
            _ => (Some(tuple()), None),
        };
        Rpc {
            method: row.method,
            function_id: row.method.function_id(),
            args: row.args,
            result: row.result,
            args_signature,
            args_in_tuple,
            result_signature: Signature::of(row.result),
            shape: AnswerShape::of(row.result),
            plan: request::plan(row.method, row.args),
            client: row.args.iter().position(|member| *member == common::CLIENT),
        }
    }

    /// Which function.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Its id on the wire.
    pub fn function_id(&self) -> u32 {
        self.function_id
    }

    /// Its arguments; none means an empty body.
    pub fn args(&self) -> &'static [Member] {
        self.args
    }

    /// Its result.
    pub fn result(&self) -> Type {
        self.result
    }

    /// Signature of the arguments, if there are any.
    pub fn args_signature(&self) -> Option<&Signature> {
        self.args_signature.as_ref()
    }

    /// Signature of the result.
    pub fn result_signature(&self) -> &Signature {
        &self.result_signature
    }

    /// What a body with the arguments may begin with.
    pub(super) fn accepted(&self) -> [Option<&Signature>; 2] {
        [self.args_signature.as_ref(), self.args_in_tuple.as_ref()]
    }

    /// What its answers look like in this generation.
    pub(super) fn shape(&self) -> AnswerShape {
        self.shape
    }

    /// How to read the arguments into the request of a served function.
    pub(super) fn plan(&self) -> Option<&Step> {
        self.plan.as_ref()
    }

    /// Whether its arguments name the client.
    pub fn names_client(&self) -> bool {
        self.client.is_some()
    }

    /// The client that a body names; `None` if the function names none or the body is not one of its.
    pub fn client(&self, body: &[u8]) -> Option<ClientId> {
        let at = self.client?;
        let (mut reader, _) = open(body, self.accepted()).ok()?;
        self.args[..at].iter().try_for_each(|(_, ty)| reader.skip(*ty)).ok()?;
        let mut half = || reader.array().map(u64::from_le_bytes).ok();
        Some(Uuid { first: half()?, second: half()? })
    }

    /// Whether a body that begins with `head` is one of this function in this generation.
    pub fn accepts_head(&self, head: u32) -> bool {
        match self.args_signature {
            None => true,
            Some(_) => self.accepted().into_iter().flatten().any(|s| s.hash == head & !1),
        }
    }
}

/// Where the answers of one generation differ from those of another in more than their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct AnswerShape {
    /// Replica lists end in a checksum.
    pub(super) has_checksum: bool,
    /// Index of the DISK alternative among the kinds of replicas.
    pub(super) disk_variant: u8,
}

impl AnswerShape {
    fn of(result: Type) -> AnswerShape {
        AnswerShape {
            has_checksum: mentions(result, "object_checksum"),
            disk_variant: alternative(result, "DiskDescriptor").unwrap_or_default(),
        }
    }
}

/// Index of the struct of that name in the variant that has it.
fn alternative(ty: Type, name: &str) -> Option<u8> {
    match ty {
        Type::Seq(inner) | Type::Opt(inner) | Type::Expected(inner) => alternative(*inner, name),
        Type::Map(key, value) => alternative(*key, name).or_else(|| alternative(*value, name)),
        Type::Variant(alternatives) => {
            let is_it = |ty: &Type| matches!(ty, Type::Struct(described) if described.name == name);
            alternatives.iter().position(is_it).and_then(|at| u8::try_from(at).ok())
        }
        Type::Struct(described) => described.members.iter().find_map(|(_, ty)| alternative(*ty, name)),
        _ => None,
    }
}

/// Whether a description has a member of that name.
fn mentions(ty: Type, name: &str) -> bool {
    match ty {
        Type::Seq(inner) | Type::Opt(inner) | Type::Expected(inner) => mentions(*inner, name),
        Type::Map(key, value) => mentions(*key, name) || mentions(*value, name),
        Type::Variant(alternatives) => alternatives.iter().any(|a| mentions(*a, name)),
        Type::Struct(described) => described.members.iter().any(|(n, t)| *n == name || mentions(*t, name)),
        _ => false,
    }
}

/// What clients of one range of releases say.
#[derive(Debug)]
pub struct Generation {
    name: &'static str,
    /// Its place in [`Generation::all`].
    index: u8,
    unsent: &'static [Method],
    /// Sorted by function id.
    rpcs: Vec<Rpc>,
}

static GENERATIONS: LazyLock<Vec<Generation>> = LazyLock::new(|| {
    let generation = |(index, table): (usize, &Table)| {
        let mut rpcs: Vec<Rpc> = table.rows.iter().chain(OURS).map(Rpc::new).collect();
        rpcs.sort_unstable_by_key(|rpc| rpc.function_id);
        Generation { name: table.name, index: index as u8, unsent: table.unsent, rpcs }
    };
    TABLES.iter().enumerate().map(generation).collect()
});

impl Generation {
    /// Every generation, oldest first.
    pub fn all() -> &'static [Generation] {
        &GENERATIONS
    }

    /// The newest one.
    pub fn newest() -> &'static Generation {
        &GENERATIONS[TABLES.len() - 1]
    }

    /// By the release that gave it its name, e.g. `0.3.13`.
    pub fn by_name(name: &str) -> Option<&'static Generation> {
        GENERATIONS.iter().find(|generation| generation.name == name)
    }

    /// The release that gave it its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its place among all, the oldest being 0.
    pub fn index(&self) -> usize {
        usize::from(self.index)
    }

    /// Its functions.
    pub fn rpcs(&self) -> &[Rpc] {
        &self.rpcs
    }

    /// The function of that id.
    pub fn rpc(&self, function_id: u32) -> Option<&Rpc> {
        let at = self.rpcs.binary_search_by_key(&function_id, |rpc| rpc.function_id).ok()?;
        Some(&self.rpcs[at])
    }

    /// The function of that name, if the generation has it.
    pub fn method(&self, method: Method) -> Option<&Rpc> {
        self.rpcs.iter().find(|rpc| rpc.method == method)
    }
}

impl PartialEq for Generation {
    fn eq(&self, other: &Generation) -> bool {
        self.index == other.index
    }
}

impl Eq for Generation {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_method_is_in_the_newest_table_once() {
        let newest = Generation::newest();
        assert_eq!(newest.rpcs().len(), Method::ALL.len());
        let ids: HashSet<u32> = newest.rpcs().iter().map(Rpc::function_id).collect();
        assert_eq!(ids.len(), Method::ALL.len());
        for &method in Method::ALL {
            let rpc = newest.method(method).unwrap();
            assert_eq!(newest.rpc(rpc.function_id()).map(Rpc::method), Some(method));
            assert_eq!(Method::from_name(method.name()), Some(method));
        }
    }

    /// Every function of every release with the hashes that were found in its binaries, arguments `-` where there are
    /// none. A generation without its list there, a row too few or too many, or another type fails here.
    #[test]
    fn every_table_is_complete_and_its_hashes_are_those_of_its_release() {
        let text = include_str!("../../../../tests/fixtures/wire/hashes-by-version.json");
        let functions: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        for table in TABLES {
            let generation = Generation::by_name(table.name).unwrap();
            let mut found = 0;
            for (name, releases) in &functions {
                let Some(hashes) = releases.get(table.name) else { continue };
                let method = Method::from_name(name).expect(name);
                let rpc = generation
                    .method(method)
                    .unwrap_or_else(|| panic!("{name} is missing in {}", table.name));
                let args = rpc.args_signature().map_or("-".to_owned(), |s| format!("{:08x}", s.hash));
                let result = format!("{:08x}", rpc.result_signature().hash);
                assert_eq!(
                    (&*args, &*result),
                    (hashes[0].as_str().unwrap(), hashes[1].as_str().unwrap()),
                    "{name} in {}",
                    table.name
                );
                found += 1;
            }
            let methods: HashSet<Method> = table.rows.iter().map(|row| row.method).collect();
            assert_eq!((found, methods.len()), (table.rows.len(), found), "rows of {}", table.name);
        }
    }

    /// All functions of 0.3.13: id, arguments, result. Each of these numbers was found in that release's binary.
    #[test]
    fn ids_and_hashes_equal_those_of_the_newest_release() {
        let text = include_str!("../../../../tests/fixtures/wire/hashes-0.3.13.json");
        let table: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        assert_eq!(table.len() + OURS.len(), Method::ALL.len());
        for (name, numbers) in &table {
            let rpc = Generation::newest().method(Method::from_name(name).expect(name)).expect(name);
            let ours = [
                format!("{:08x}", rpc.function_id()),
                rpc.args_signature().map_or("-".to_owned(), |s| format!("{:08x}", s.hash)),
                format!("{:08x}", rpc.result_signature().hash),
            ];
            assert_eq!(ours.as_slice(), numbers.as_array().unwrap(), "{name}");
        }
    }

    /// On the wire the kind of a replica is a number: how many kinds stand before it in the type literal. That these are
    /// the literals of the releases is proven by their hashes, above.
    #[test]
    fn disk_replicas_are_of_the_kind_that_each_release_has_for_them() {
        // Memory, and NoF, which looks the same; DISK.
        let (buffer, disk) = (b"\xfd\xfd\x04\x04\x80\x0c\x80\x0c\xff\xff", b"\xfd\x80\x0c\x04\xff");
        let kinds = [("0.3.9", 1), ("0.3.11", 2), ("0.3.12", 2), ("0.3.13", 2)];
        assert_eq!(kinds.map(|(name, _)| name), NAMES);
        for (name, before) in kinds {
            let variant = [&[0x86][..], &buffer.repeat(before), disk].concat();
            let mut with_replicas = 0;
            for rpc in Generation::by_name(name).expect(name).rpcs() {
                let literal = rpc.result().literal();
                if !literal.contains(&0x86) {
                    continue;
                }
                let is_there = literal.windows(variant.len()).any(|part| part == variant);
                assert!(is_there, "{:?} in {name}", rpc.method());
                assert_eq!(usize::from(rpc.shape().disk_variant), before, "{:?} in {name}", rpc.method());
                with_replicas += 1;
            }
            assert!(with_replicas >= 7, "{with_replicas} in {name}");
        }
    }

    #[test]
    fn no_decoder_leaves_out_a_member_by_mistake() {
        // NoF placement is refused by its count; its names are of no use.
        let known = ["preferred_nof_segments"];
        for generation in Generation::all() {
            for rpc in generation.rpcs() {
                let skipped: Vec<_> = rpc.plan().into_iter().flat_map(Step::skipped).collect();
                assert!(skipped.iter().all(|name| known.contains(name)), "{:?}: {skipped:?}", rpc.method());
            }
        }
    }
}
