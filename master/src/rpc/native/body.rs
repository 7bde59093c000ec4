//! The head of a body and a bounded reader over what follows it.

use super::types::{Signature, Type};

/// What is wrong with bytes that should have been a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The body ends inside a value.
    #[error("{missing} bytes are missing")]
    Truncated {
        /// At least this many.
        missing: u64,
    },
    /// A container declares more elements than the rest of the body can hold.
    #[error("{count} elements are declared but {left} bytes are left")]
    Count {
        /// As declared.
        count: u64,
        /// Bytes left.
        left: usize,
    },
    /// A flag that is neither 0 nor 1.
    #[error("expected 0 or 1, found {0}")]
    Flag(u8),
    /// A number that names no value of an enum.
    #[error("expected {expected}, found {found}")]
    Enum {
        /// What there is.
        expected: &'static str,
        /// What came.
        found: i64,
    },
    /// The index of a variant that has fewer alternatives.
    #[error("expected an alternative below {alternatives}, found {found}")]
    Alternative {
        /// How many there are.
        alternatives: usize,
        /// What came.
        found: u8,
    },
    /// More elements than this master takes.
    #[error("expected at most {limit} elements, found {found}")]
    Limit {
        /// The most.
        limit: usize,
        /// What came.
        found: usize,
    },
    /// The hash of another type: usually a client of another release.
    #[error("expected type hash {expected:#010x}, found {found:#010x}")]
    Hash {
        /// That of this generation.
        expected: u32,
        /// What came.
        found: u32,
    },
    /// The type literal does not belong to the hash before it.
    #[error("expected the type literal of hash {hash:#010x}, found another")]
    Literal {
        /// The hash in front.
        hash: u32,
    },
}

/// A cause and the member in which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {cause}")]
pub struct Problem {
    /// Name of the innermost member, `body` for the head.
    pub field: &'static str,
    /// What is wrong.
    pub cause: Cause,
}

impl From<Cause> for Problem {
    fn from(cause: Cause) -> Problem {
        Problem { field: "", cause }
    }
}

impl Problem {
    /// Names the member, unless an inner one has a name already.
    #[cold]
    pub(super) fn in_field(self, field: &'static str) -> Problem {
        if self.field.is_empty() { Problem { field, ..self } } else { self }
    }
}

/// A value or what is wrong with it.
pub type Parsed<T> = Result<T, Problem>;

/// Reads the head of `body`, which must carry one of `signatures`, and returns a reader over the payload and
/// whether the literal was sent.
///
/// The literal is optional for the sender (wire notes §3) and is compared byte by byte when it is there.
pub fn open<'a>(body: &'a [u8], signatures: [Option<&Signature>; 2]) -> Parsed<(Reader<'a>, bool)> {
    let mut reader = Reader { rest: body, width: 1 };
    let in_body = |problem: Problem| problem.in_field("body");
    let head = u32::from_le_bytes(reader.array().map_err(in_body)?);
    let hash = head & !1;
    let Some(signature) = signatures.into_iter().flatten().find(|s| s.hash == hash) else {
        let expected = signatures[0].map_or(0, |s| s.hash);
        return Err(in_body(Cause::Hash { expected, found: hash }.into()));
    };
    if head & 1 == 0 {
        return Ok((reader, false));
    }
    let [info] = reader.array().map_err(in_body)?;
    // The total length, only sent with members that Mooncake does not have: skipped like upstream does.
    reader.take([0, 2, 4, 8][usize::from(info & 3)]).map_err(in_body)?;
    let has_literal = info & 4 != 0;
    if has_literal {
        let sent = reader.take(signature.literal.len()).map_err(in_body)?;
        if *sent != *signature.literal {
            return Err(in_body(Cause::Literal { hash }.into()));
        }
    }
    reader.width = 1 << ((info >> 3) & 3);
    Ok((reader, has_literal))
}

/// Appends the head of a body.
pub(super) fn write_head(out: &mut impl bytes::BufMut, signature: &Signature, width: u8, literal: bool) {
    let info = (width.trailing_zeros() as u8) << 3 | u8::from(literal) << 2;
    out.put_u32_le(signature.hash | u32::from(info != 0));
    if info != 0 {
        out.put_u8(info);
    }
    if literal {
        out.put_slice(&signature.literal);
    }
}

/// The width of all sizes in a message whose largest container has `widest` elements or bytes.
pub(super) const fn width_for(widest: usize) -> u8 {
    match widest as u64 {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Reads values from a payload. Whatever it returns borrows from the payload; it never allocates.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes of each size in this message: 1, 2, 4 or 8.
    width: u8,
}

impl<'a> Reader<'a> {
    /// A reader over bytes whose sizes are `width` bytes wide.
    pub(super) fn new(rest: &'a [u8], width: u8) -> Reader<'a> {
        Reader { rest, width }
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes of each size.
    pub fn width(&self) -> u8 {
        self.width
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(Cause::Truncated { missing: (count - self.rest.len()) as u64 }.into()),
        }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(Cause::Truncated { missing: (N - self.rest.len()) as u64 }.into()),
        }
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self) -> Parsed<bool> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(Cause::Flag(other).into()),
        }
    }

    fn size(&mut self) -> Parsed<u64> {
        Ok(match self.width {
            1 => self.array::<1>()?[0].into(),
            2 => u16::from_le_bytes(self.array()?).into(),
            4 => u32::from_le_bytes(self.array()?).into(),
            _ => u64::from_le_bytes(self.array()?),
        })
    }

    /// The bytes of a string.
    pub fn bytes(&mut self) -> Parsed<&'a [u8]> {
        let size = self.size()?;
        if size > self.rest.len() as u64 {
            return Err(Cause::Truncated { missing: size - self.rest.len() as u64 }.into());
        }
        self.take(size as usize)
    }

    /// The count of a container whose elements take at least `min_size` bytes each; never more than can follow.
    pub fn count(&mut self, min_size: usize) -> Parsed<usize> {
        let count = self.size()?;
        // An element without bytes would make any count possible; no type has one.
        if count > (self.rest.len() / min_size.max(1)) as u64 {
            return Err(Cause::Count { count, left: self.rest.len() }.into());
        }
        Ok(count as usize)
    }

    /// Checks and skips a value.
    pub fn skip(&mut self, ty: Type) -> Parsed<()> {
        match ty {
            Type::Void => {}
            Type::Bool => {
                self.flag()?;
            }
            Type::U8 => {
                self.take(1)?;
            }
            Type::I32 | Type::U32 => {
                self.take(4)?;
            }
            Type::I64 | Type::U64 => {
                self.take(8)?;
            }
            Type::Str => {
                self.bytes()?;
            }
            Type::Seq(element) => {
                for _ in 0..self.count(element.min_size())? {
                    self.skip(*element)?;
                }
            }
            Type::Map(key, value) => {
                for _ in 0..self.count(key.min_size() + value.min_size())? {
                    self.skip(*key)?;
                    self.skip(*value)?;
                }
            }
            Type::Opt(value) => {
                if self.flag()? {
                    self.skip(*value)?;
                }
            }
            Type::Variant(alternatives) => {
                let [found] = self.array()?;
                let chosen = alternatives.get(usize::from(found));
                let alternatives = alternatives.len();
                self.skip(*chosen.ok_or(Cause::Alternative { alternatives, found })?)?;
            }
            Type::Expected(value) => {
                let inner = if self.flag()? { *value } else { Type::I32 };
                self.skip(inner)?;
            }
            Type::Struct(described) => {
                for (name, member) in described.members {
                    self.skip(*member).map_err(|problem| problem.in_field(name))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_refused_before_anything_is_read() {
        let mut reader = Reader::new(&[200, 1, 1], 1);
        assert_eq!(reader.count(1).unwrap_err().cause, Cause::Count { count: 200, left: 2 });
        let mut reader = Reader::new(&[0xff; 9], 8);
        assert_eq!(reader.count(1).unwrap_err().cause, Cause::Count { count: u64::MAX, left: 1 });
        let mut reader = Reader::new(&[0xff; 9], 8);
        assert!(matches!(reader.bytes().unwrap_err().cause, Cause::Truncated { .. }));
    }

    #[test]
    fn widths() {
        for (widest, width) in [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4), (1 << 32, 8)] {
            assert_eq!(width_for(widest), width, "{widest}");
        }
    }
}
