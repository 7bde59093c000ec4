//! Sets of generations, and what one call tells about the generation of its client.

use super::{GENERATIONS, Generation, Rpc};
use std::{fmt, sync::LazyLock};

/// A set of generations.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GenerationSet(u32);

impl GenerationSet {
    /// None of them.
    pub const EMPTY: GenerationSet = GenerationSet(0);

    /// Every one.
    pub fn all() -> GenerationSet {
        Generation::all().iter().map(GenerationSet::from).fold(GenerationSet::EMPTY, GenerationSet::or)
    }

    /// Whether `generation` is in it.
    pub fn contains(self, generation: &Generation) -> bool {
        self.0 & GenerationSet::from(generation).0 != 0
    }

    /// Whether there is none in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: GenerationSet) -> GenerationSet {
        GenerationSet(self.0 & other.0)
    }

    /// Those in either.
    #[must_use]
    pub fn or(self, other: GenerationSet) -> GenerationSet {
        GenerationSet(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(self, other: GenerationSet) -> GenerationSet {
        GenerationSet(self.0 & !other.0)
    }

    /// This one, or `other` if there is none in this one: for knowledge that may turn out to contradict itself.
    #[must_use]
    pub fn or_if_empty(self, other: GenerationSet) -> GenerationSet {
        if self.is_empty() { other } else { self }
    }

    /// Its members, oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'static Generation> {
        Generation::all().iter().filter(move |generation| self.contains(generation))
    }

    /// Its member if there is exactly one.
    pub fn only(self) -> Option<&'static Generation> {
        if self.0.is_power_of_two() { self.newest() } else { None }
    }

    /// The newest of its members.
    pub fn newest(self) -> Option<&'static Generation> {
        Generation::all().get(self.0.checked_ilog2()? as usize)
    }
}

impl From<&Generation> for GenerationSet {
    fn from(generation: &Generation) -> GenerationSet {
        GenerationSet(1 << generation.index)
    }
}

impl fmt::Display for GenerationSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, generation) in self.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { " or " } else { "" }, generation.name())?;
        }
        Ok(())
    }
}

/// One function id in every generation.
#[derive(Debug)]
pub struct Function {
    id: u32,
    /// By the index of the generation.
    rpcs: Box<[Option<&'static Rpc>]>,
    /// Those whose clients send it.
    sent_by: GenerationSet,
}

static FUNCTIONS: LazyLock<Vec<Function>> = LazyLock::new(|| {
    let generations: &'static [Generation] = &GENERATIONS;
    let mut ids: Vec<u32> = generations.iter().flat_map(|g| g.rpcs().iter().map(Rpc::function_id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let function = |id| Function {
        id,
        rpcs: generations.iter().map(|generation| generation.rpc(id)).collect(),
        sent_by: generations
            .iter()
            .filter(|generation| {
                generation.rpc(id).is_some_and(|rpc| !generation.unsent.contains(&rpc.method()))
            })
            .map(GenerationSet::from)
            .fold(GenerationSet::EMPTY, GenerationSet::or),
    };
    ids.into_iter().map(function).collect()
});

impl Function {
    /// The function of that id, if any generation has it.
    pub fn of(id: u32) -> Option<&'static Function> {
        let at = FUNCTIONS.binary_search_by_key(&id, |function| function.id).ok()?;
        Some(&FUNCTIONS[at])
    }

    /// Every function.
    pub fn all() -> &'static [Function] {
        &FUNCTIONS
    }

    /// As `generation` has it.
    pub fn rpc(&self, generation: &Generation) -> Option<&'static Rpc> {
        self.rpcs[usize::from(generation.index)]
    }

    /// As the newest generation that has it.
    pub fn newest_rpc(&self) -> Option<&'static Rpc> {
        self.rpcs.iter().rev().find_map(|rpc| *rpc)
    }

    /// The generations whose clients may have sent a body that begins with `head` (its first four bytes; anything for
    /// an empty one).
    pub fn senders(&self, head: u32) -> GenerationSet {
        self.sent_by
            .iter()
            .filter(|generation| self.rpc(generation).is_some_and(|rpc| rpc.accepts_head(head)))
            .map(GenerationSet::from)
            .fold(GenerationSet::EMPTY, GenerationSet::or)
    }

    /// Those of `among` that read an answer in the form of `generation`.
    pub fn readers(&self, among: GenerationSet, generation: &Generation) -> GenerationSet {
        let hash = |of| self.rpc(of).map(|rpc| rpc.result_signature().hash);
        let expected = hash(generation);
        among
            .iter()
            .filter(|other| hash(other) == expected)
            .map(GenerationSet::from)
            .fold(GenerationSet::EMPTY, GenerationSet::or)
    }

    /// Whether all of `among` read the same answer.
    pub fn is_unambiguous(&self, among: GenerationSet) -> bool {
        among.newest().is_none_or(|newest| self.readers(among, newest) == among)
    }
}

impl Generation {
    /// The generations that cannot be told from this one by some call that names no client and whose answer differs.
    pub fn confusable(&self) -> GenerationSet {
        CONFUSABLE[usize::from(self.index)]
    }
}

static CONFUSABLE: LazyLock<Vec<GenerationSet>> = LazyLock::new(|| {
    let with = |one: &'static Generation| {
        let mut confusable = GenerationSet::EMPTY;
        for function in Function::all() {
            let Some(rpc) = function.rpc(one).filter(|rpc| !rpc.names_client()) else { continue };
            let senders = function.senders(rpc.args_signature().map_or(0, |signature| signature.hash));
            if senders.contains(one) {
                confusable = confusable.or(senders.without(function.readers(senders, one)));
            }
        }
        confusable
    };
    Generation::all().iter().map(with).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::native::generation::Method;

    fn named(name: &str) -> &'static Generation {
        Generation::by_name(name).expect(name)
    }

    fn senders(method: Method, of: &str) -> String {
        let rpc = named(of).method(method).expect("in that generation");
        let head = rpc.args_signature().map_or(0, |s| s.hash | 1);
        Function::of(rpc.function_id()).expect("known").senders(head).to_string()
    }

    #[test]
    fn a_call_tells_its_generation_or_does_not() {
        assert_eq!(senders(Method::MountSegment, "0.3.9"), "0.3.9 or 0.3.11");
        assert_eq!(senders(Method::MountSegment, "0.3.13"), "0.3.12 or 0.3.13");
        assert_eq!(senders(Method::PutStart, "0.3.12"), "0.3.12");
        assert_eq!(senders(Method::GetReplicaList, "0.3.13"), "0.3.12 or 0.3.13");
        assert_eq!(senders(Method::FetchTasks, "0.3.11"), "0.3.11 or 0.3.12 or 0.3.13");
        assert_eq!(senders(Method::HealthCheck, "0.3.13"), GenerationSet::all().to_string());
    }

    #[test]
    fn the_calls_whose_answers_depend_on_what_they_do_not_tell() {
        let mut ambiguous = Vec::new();
        for method in Method::ALL {
            let function = Function::of(method.function_id()).expect("known");
            let heads = function.rpcs.iter().flatten().map(|rpc| rpc.args_signature().map_or(0, |s| s.hash));
            let sets: Vec<GenerationSet> = heads.map(|head| function.senders(head)).collect();
            if sets.iter().any(|set| !function.is_unambiguous(*set)) {
                ambiguous.push(method.name());
            }
        }
        assert_eq!(
            ambiguous,
            [
                "GetReplicaListByRegex",
                "GetReplicaList",
                "BatchGetReplicaList",
                "OffloadObjectHeartbeat",
                "PromotionAllocStart",
                "CopyStart",
                "MoveStart"
            ]
        );
    }

    #[test]
    fn which_generations_are_confusable() {
        let of = |name: &str| named(name).confusable().to_string();
        assert_eq!(of("0.3.9"), "0.3.11");
        assert_eq!(of("0.3.11"), "0.3.9");
        assert_eq!(of("0.3.12"), "0.3.13");
        assert_eq!(of("0.3.13"), "0.3.12");
    }

    #[test]
    fn sets() {
        let (old, new) = (named("0.3.9"), named("0.3.13"));
        let both = GenerationSet::from(old).or(new.into());
        assert_eq!((both.only(), both.newest()), (None, Some(new)));
        assert_eq!(both.without(new.into()).only(), Some(old));
        assert_eq!(GenerationSet::EMPTY.newest(), None);
        assert_eq!(GenerationSet::EMPTY.or_if_empty(both), both);
        assert_eq!(GenerationSet::all().iter().count(), Generation::all().len());
    }
}
