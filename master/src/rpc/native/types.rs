//! Descriptions of what lies on the wire, and what follows from them: the type literal, its hash, and the ids of
//! functions. Nothing here is a copied constant; captured traffic proves the results.

use md5::{Digest, Md5};

/// A type on the wire. A description is a constant tree; nesting is static, so it is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Type {
    /// One byte, 0 or 1.
    Bool,
    U8,
    /// Also an enum of C++ without an underlying type.
    I32,
    U32,
    I64,
    U64,
    /// Nothing on the wire.
    Void,
    /// Size, then any bytes.
    Str,
    /// Size, then the elements.
    Seq(&'static Type),
    /// Size, then pairs in any order.
    Map(&'static Type, &'static Type),
    /// One byte 0 or 1, then the value if 1.
    Opt(&'static Type),
    /// One byte that is the index of the alternative, then that one.
    Variant(&'static [Type]),
    /// One byte, then the value if 1 and the error code (i32) if 0.
    Expected(&'static Type),
    /// The members in their order.
    Struct(&'static Struct),
}

/// A member: its name, which is not on the wire, and its type.
pub type Member = (&'static str, Type);

/// A struct, pair or tuple.
#[derive(Debug, PartialEq, Eq)]
pub struct Struct {
    /// For messages and for look-ups; not on the wire.
    pub name: &'static str,
    /// In the order of the wire.
    pub members: &'static [Member],
    /// A plain aggregate (`std::pair`) and not one with reflection (`YLT_REFL`, `std::tuple`): if all its
    /// members are numbers its literal ends in two alignments.
    pub plain: bool,
}

impl Type {
    /// Appends the type literal, the pre-image of the hash.
    pub fn write_literal(self, out: &mut Vec<u8>) {
        match self {
            Type::I32 => out.push(0x01),
            Type::U32 => out.push(0x02),
            Type::I64 => out.push(0x03),
            Type::U64 => out.push(0x04),
            Type::U8 => out.push(0x06),
            Type::Bool => out.push(0x0b),
            Type::Void => out.push(0xfa),
            Type::Str => out.extend([0x80, 0x0c]),
            Type::Seq(element) => {
                out.push(0x84);
                element.write_literal(out);
            }
            Type::Map(key, value) => {
                out.push(0x82);
                key.write_literal(out);
                value.write_literal(out);
            }
            Type::Opt(value) => {
                out.push(0x85);
                value.write_literal(out);
            }
            Type::Variant(alternatives) => {
                out.push(0x86);
                for alternative in alternatives {
                    alternative.write_literal(out);
                }
                out.push(0xff);
            }
            Type::Expected(value) => {
                out.push(0x87);
                value.write_literal(out);
                Type::I32.write_literal(out);
            }
            Type::Struct(described) => {
                write_members(described.members, out);
                if self.is_trivial() {
                    let alignment = self.alignment();
                    // Once for the packing, once for the type; they differ only under `#pragma pack`.
                    write_size(alignment, out);
                    write_size(alignment, out);
                }
                out.push(0xff);
            }
        }
    }

    /// The type literal.
    pub fn literal(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_literal(&mut out);
        out
    }

    /// Whether C++ would copy it as raw memory: a number, or a plain aggregate of such.
    fn is_trivial(self) -> bool {
        match self {
            Type::Bool | Type::U8 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Void => true,
            Type::Struct(described) => {
                described.plain && described.members.iter().all(|(_, t)| t.is_trivial())
            }
            _ => false,
        }
    }

    fn alignment(self) -> usize {
        match self {
            Type::I32 | Type::U32 => 4,
            Type::I64 | Type::U64 => 8,
            Type::Struct(described) => {
                described.members.iter().map(|(_, t)| t.alignment()).max().unwrap_or(1)
            }
            _ => 1,
        }
    }

    /// The fewest bytes that a value can take, with one-byte sizes. A declared count times this must not exceed
    /// what is left of a body.
    pub fn min_size(self) -> usize {
        match self {
            Type::Void => 0,
            Type::Bool | Type::U8 | Type::Str | Type::Seq(_) | Type::Map(..) | Type::Opt(_) => 1,
            Type::I32 | Type::U32 => 4,
            Type::I64 | Type::U64 => 8,
            Type::Variant(alternatives) => 1 + alternatives.iter().map(|t| t.min_size()).min().unwrap_or(0),
            Type::Expected(value) => 1 + value.min_size().min(4),
            Type::Struct(described) => described.members.iter().map(|(_, t)| t.min_size()).sum(),
        }
    }
}

fn write_members(members: &[Member], out: &mut Vec<u8>) {
    out.push(0xfd);
    for (_, member) in members {
        member.write_literal(out);
    }
}

/// A size inside a literal: base 127, little endian, each digit plus 1 and the last one plus 129.
fn write_size(mut size: usize, out: &mut Vec<u8>) {
    while size >= 127 {
        out.push((size % 127) as u8 + 1);
        size /= 127;
    }
    out.push(size as u8 + 129);
}

/// The first four bytes of an MD5, big endian.
fn md5_head(bytes: &[u8]) -> u32 {
    let digest = Md5::digest(bytes);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// The id of a function, from its fully qualified C++ name.
pub fn function_id(name: &str) -> u32 {
    md5_head(name.as_bytes())
}

/// A literal and its hash.
#[derive(Debug, PartialEq, Eq)]
pub struct Signature {
    /// The hash with bit 0 clear.
    pub hash: u32,
    /// The literal and the NUL that ends it on the wire.
    pub literal: Box<[u8]>,
}

impl Signature {
    fn from_literal(mut literal: Vec<u8>) -> Signature {
        let hash = md5_head(&literal) & !1;
        literal.push(0);
        Signature { hash, literal: literal.into() }
    }

    /// Of a value.
    pub fn of(ty: Type) -> Signature {
        Signature::from_literal(ty.literal())
    }

    /// Of a `std::tuple` of these members.
    pub fn of_tuple(members: &[Member]) -> Signature {
        let mut literal = Vec::new();
        write_members(members, &mut literal);
        literal.push(0xff);
        Signature::from_literal(literal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Type =
        Type::Struct(&Struct { name: "pair", members: &[("a", Type::U64), ("b", Type::U64)], plain: true });
    const REFLECTED: Type =
        Type::Struct(&Struct { name: "two", members: &[("a", Type::U64), ("b", Type::U64)], plain: false });

    #[test]
    fn a_plain_aggregate_of_numbers_names_its_alignment() {
        assert_eq!(PAIR.literal(), [0xfd, 4, 4, 0x89, 0x89, 0xff]);
        assert_eq!(REFLECTED.literal(), [0xfd, 4, 4, 0xff]);
    }

    #[test]
    fn sizes_in_literals_have_base_127() {
        let of = |n| {
            let mut out = Vec::new();
            write_size(n, &mut out);
            out
        };
        assert_eq!(of(8), [0x89]);
        assert_eq!(of(126), [255]);
        assert_eq!(of(127), [1, 130]);
        assert_eq!(of(1000), [(1000 % 127) as u8 + 1, 7 + 129]);
    }

    #[test]
    fn the_worked_example_of_a_string() {
        assert_eq!(Signature::of(Type::Str).hash, 0x9dcf_fa76);
        assert_eq!(function_id("mooncake::WrappedMasterService::ExistKey"), 0x8938_5f09);
    }

    #[test]
    fn minimal_sizes() {
        assert_eq!(PAIR.min_size(), 16);
        assert_eq!(Type::Expected(&Type::Void).min_size(), 1);
        assert_eq!(Type::Expected(&Type::U64).min_size(), 5);
        assert_eq!(Type::Variant(&[Type::U64, Type::Str]).min_size(), 2);
    }
}
