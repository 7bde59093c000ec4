//! Typed decoding: Rust structs that find their members in a table's description by name, once at start, and then
//! read them without looking at names again.

use super::{
    body::{Cause, Parsed, Problem, Reader},
    types::{Member, Type},
};
use crate::types::{ReplicaType, SoftPinAction, Uuid};
use std::{fmt, marker::PhantomData};

/// [`Step::index`] of a member that no field asks for.
const UNUSED: u8 = u8::MAX;

/// How to read one value: a description, matched with the Rust type that takes it.
#[derive(Debug)]
pub struct Step {
    /// Which field of the struct around it takes the value.
    pub(super) index: u8,
    name: &'static str,
    ty: Type,
    min_size: usize,
    pub(super) children: Box<[Step]>,
}

impl Step {
    fn new(ty: Type, children: Box<[Step]>) -> Step {
        Step { index: UNUSED, name: "", ty, min_size: ty.min_size(), children }
    }

    /// A value with one inner value.
    pub(super) fn one(ty: Type, inner: Step) -> Step {
        Step::new(ty, Box::new([inner]))
    }

    /// A value without members, if it is described as `expected`.
    fn leaf(ty: Type, expected: Type) -> Option<Step> {
        (ty == expected).then(|| Step::new(ty, Box::default()))
    }

    /// The members of a struct; `find` gives the field that takes the member of that name and type.
    pub(super) fn members(
        members: &'static [Member],
        find: impl Fn(&str, Type) -> Option<(u8, Step)>,
    ) -> Box<[Step]> {
        let step = |&(name, ty): &Member| match find(name, ty) {
            Some((index, step)) => Step { index, name, ..step },
            None => Step { name, ..Step::new(ty, Box::default()) },
        };
        members.iter().map(step).collect()
    }

    /// A whole list of arguments, read like the members of a struct.
    pub(super) fn arguments(children: Box<[Step]>) -> Step {
        Step::new(Type::Void, children)
    }

    /// A struct; where the table has the bare type of its first field, as older releases often do, that field alone
    /// (a struct of one member is encoded like the member).
    pub(super) fn structure(
        ty: Type,
        plan: impl Fn(&'static [Member]) -> Box<[Step]>,
        first: impl Fn(Type) -> Option<Step>,
    ) -> Option<Step> {
        if let Type::Struct(described) = ty {
            return Some(Step::new(ty, plan(described.members)));
        }
        let step = Step { index: 0, ..first(ty)? };
        Some(Step::one(ty, step))
    }

    /// Names of the members that no field takes, this one's and all below it.
    #[cfg(test)]
    pub(super) fn skipped(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        for child in &self.children {
            if child.index == UNUSED && !child.name.is_empty() {
                found.push(child.name);
            }
            found.extend(child.skipped());
        }
        found
    }

    /// Checks a member that nobody asks for.
    pub(super) fn skip(&self, reader: &mut Reader<'_>) -> Parsed<()> {
        reader.skip(self.ty)
    }

    #[cold]
    pub(super) fn blame(&self, problem: Problem) -> Problem {
        problem.in_field(self.name)
    }
}

/// A Rust type that a description can be read into. Reading allocates nothing and borrows from the frame.
pub trait Field<'a>: Sized {
    /// The plan for values that are described as `ty`; `None` if this type cannot take them.
    fn step(ty: Type) -> Option<Step>;
    /// Reads a value by its plan.
    fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Self>;
}

macro_rules! number_fields {
    ($($ty:ty = $described:ident;)*) => {$(
        impl<'a> Field<'a> for $ty {
            fn step(ty: Type) -> Option<Step> {
                Step::leaf(ty, Type::$described)
            }
            fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<Self> {
                Ok(<$ty>::from_le_bytes(reader.array()?))
            }
        }
    )*};
}
number_fields! { u8 = U8; i32 = I32; u32 = U32; i64 = I64; u64 = U64; }

impl<'a> Field<'a> for bool {
    fn step(ty: Type) -> Option<Step> {
        Step::leaf(ty, Type::Bool)
    }
    fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<bool> {
        reader.flag()
    }
}

impl<'a> Field<'a> for () {
    fn step(ty: Type) -> Option<Step> {
        Step::leaf(ty, Type::Void)
    }
    fn read(_: &mut Reader<'a>, _: &'static Step) -> Parsed<()> {
        Ok(())
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn step(ty: Type) -> Option<Step> {
        Step::leaf(ty, Type::Str)
    }
    fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<&'a [u8]> {
        reader.bytes()
    }
}

impl<'a> Field<'a> for Uuid {
    fn step(ty: Type) -> Option<Step> {
        let Type::Struct(described) = ty else { return None };
        matches!(described.members, [(_, Type::U64), (_, Type::U64)]).then(|| Step::new(ty, Box::default()))
    }
    fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<Uuid> {
        let first = u64::from_le_bytes(reader.array()?);
        Ok(Uuid { first, second: u64::from_le_bytes(reader.array()?) })
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn step(ty: Type) -> Option<Step> {
        let Type::Opt(inner) = ty else { return None };
        Some(Step::one(ty, T::step(*inner)?))
    }
    fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Option<T>> {
        Ok(if reader.flag()? { Some(T::read(reader, &step.children[0])?) } else { None })
    }
}

/// `tl::expected<T, ErrorCode>`, the code as a number: a later release may know more of them.
impl<'a, T: Field<'a>> Field<'a> for Result<T, i32> {
    fn step(ty: Type) -> Option<Step> {
        let Type::Expected(inner) = ty else { return None };
        Some(Step::one(ty, T::step(*inner)?))
    }
    fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Result<T, i32>> {
        Ok(if reader.flag()? {
            Ok(T::read(reader, &step.children[0])?)
        } else {
            Err(i32::from_le_bytes(reader.array()?))
        })
    }
}

impl<'a> Field<'a> for SoftPinAction {
    fn step(ty: Type) -> Option<Step> {
        Step::leaf(ty, Type::U8)
    }
    fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<SoftPinAction> {
        Ok(match reader.array()? {
            [0] => SoftPinAction::Preserve,
            [1] => SoftPinAction::Enable,
            [2] => SoftPinAction::Disable,
            [other] => {
                let expected = "0 (preserve), 1 (enable) or 2 (disable)";
                return Err(Cause::Enum { expected, found: other.into() }.into());
            }
        })
    }
}

/// A replica type as an argument: everything where the call has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(pub ReplicaType);

impl Default for Kind {
    fn default() -> Kind {
        Kind(ReplicaType::All)
    }
}

impl<'a> Field<'a> for Kind {
    fn step(ty: Type) -> Option<Step> {
        Step::leaf(ty, Type::I32)
    }
    fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<Kind> {
        let found = i32::from_le_bytes(reader.array()?);
        let expected = "a replica type (0 to 4, or 100)";
        let kind = ReplicaType::from_number(found).ok_or(Cause::Enum { expected, found: found.into() })?;
        Ok(Kind(kind))
    }
}

/// The tenant of a call; `default` where a generation has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenant<'a>(pub &'a [u8]);

impl Default for Tenant<'_> {
    fn default() -> Self {
        Tenant(b"default")
    }
}

impl<'a> Field<'a> for Tenant<'a> {
    fn step(ty: Type) -> Option<Step> {
        Step::leaf(ty, Type::Str)
    }
    fn read(reader: &mut Reader<'a>, _: &'static Step) -> Parsed<Tenant<'a>> {
        Ok(Tenant(reader.bytes()?))
    }
}

/// The elements of a vector, checked when the frame was decoded and read again while iterating: a batch of any size
/// costs no memory.
pub struct List<'a, T> {
    count: usize,
    items: Reader<'a>,
    step: Option<&'static Step>,
    of: PhantomData<fn() -> T>,
}

/// A vector of strings.
pub type Keys<'a> = List<'a, &'a [u8]>;

impl<T> List<'_, T> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a, T: Field<'a>> List<'a, T> {
    /// The elements in their order.
    pub fn iter(&self) -> Iter<'a, T> {
        Iter(*self)
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        List { count: 0, items: Reader::new(&[], 1), step: None, of: PhantomData }
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<'a, T: Field<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Field<'a>> IntoIterator for &List<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Over the elements of a [`List`].
pub struct Iter<'a, T>(List<'a, T>);

impl<'a, T: Field<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.count = self.0.count.checked_sub(1)?;
        // The same bytes were read by the same plan when the list was decoded, so this cannot fail.
        let element = T::read(&mut self.0.items, self.0.step?);
        debug_assert!(element.is_ok(), "checked when the list was decoded");
        element.ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.count, Some(self.0.count))
    }
}

impl<'a, T: Field<'a>> ExactSizeIterator for Iter<'a, T> {}

impl<'a, T: Field<'a>> Field<'a> for List<'a, T> {
    fn step(ty: Type) -> Option<Step> {
        let Type::Seq(element) = ty else { return None };
        Some(Step::one(ty, T::step(*element)?))
    }

    fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<List<'a, T>> {
        let step = &step.children[0];
        let count = reader.count(step.min_size)?;
        let items = *reader;
        for _ in 0..count {
            T::read(reader, step)?;
        }
        Ok(List { count, items, step: Some(step), of: PhantomData })
    }
}

/// Segment names in a placement wish, at most [`Wishes::LIMIT`]: they are kept in memory while the call runs.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wishes<'a>(pub Keys<'a>);

impl Wishes<'_> {
    /// The most names that a call may carry.
    pub const LIMIT: usize = 1024;
}

impl<'a> Field<'a> for Wishes<'a> {
    fn step(ty: Type) -> Option<Step> {
        Keys::step(ty)
    }
    fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Wishes<'a>> {
        let names = Keys::read(reader, step)?;
        if names.len() > Wishes::LIMIT {
            return Err(Cause::Limit { limit: Wishes::LIMIT, found: names.len() }.into());
        }
        Ok(Wishes(names))
    }
}

/// A struct of the wire: each field says under which names a table may have it. Fields that a table lacks keep their
/// default.
macro_rules! wire_structs {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$lt:lifetime>)? {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $wire:literal $(| $other:literal)*),* $(,)?
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub struct $name $(<$lt>)? {
            $($(#[$field_doc])* pub $field: $ty),*
        }

        const _: () = {
            #[allow(non_camel_case_types)]
            enum Index { $($field),* }

            impl<'a> $name $(<$lt>)? {
                fn find(name: &str, ty: Type) -> Option<(u8, Step)> {
                    $(if matches!(name, $wire $(| $other)*) {
                        return Some((Index::$field as u8, <$ty as Field<'a>>::step(ty)?));
                    })*
                    None
                }

                /// How to read these members.
                #[allow(dead_code)]
                pub(in crate::rpc::native) fn plan(members: &'static [Member]) -> Box<[Step]> {
                    Step::members(members, Self::find)
                }
            }

            impl<'a> Field<'a> for $name $(<$lt>)? {
                fn step(ty: Type) -> Option<Step> {
                    let first = [$($wire),*][0];
                    Step::structure(ty, Self::plan, |ty| Self::find(first, ty).map(|(_, step)| step))
                }

                fn read(reader: &mut Reader<'a>, step: &'static Step) -> Parsed<Self> {
                    let mut value = Self::default();
                    for step in &step.children {
                        $(if step.index == Index::$field as u8 {
                            match Field::read(reader, step) {
                                Ok(read) => value.$field = read,
                                Err(problem) => return Err(step.blame(problem)),
                            }
                            continue;
                        })*
                        step.skip(reader).map_err(|problem| step.blame(problem))?;
                    }
                    Ok(value)
                }
            }
        };
    )*};
}
pub(super) use wire_structs;
