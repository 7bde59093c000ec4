//! A value of any described type: for test vectors, fuzzing and clients of rare calls. The master's own path is typed.

use super::{
    body::{Cause, Parsed, Reader, open, width_for, write_head},
    types::{Signature, Type},
};

/// The most values that one body may hold: decoding a body costs about 50 bytes for each.
pub const MAX_VALUES: usize = 1 << 20;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Value {
    Void,
    Bool(bool),
    U8(u8),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Str(Vec<u8>),
    Seq(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Opt(Option<Box<Value>>),
    Variant(u8, Box<Value>),
    Expected(Result<Box<Value>, i32>),
    Struct(Vec<Value>),
}

/// A decoded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What it says.
    pub value: Value,
    /// Bytes of each size.
    pub width: u8,
    /// Whether the type literal was sent.
    pub literal: bool,
    /// Bytes behind the value.
    pub trailing: usize,
}

impl Value {
    /// A string.
    pub fn str(bytes: impl AsRef<[u8]>) -> Value {
        Value::Str(bytes.as_ref().to_vec())
    }

    /// Decodes a body of type `ty`.
    pub fn decode(ty: Type, signature: &Signature, body: &[u8]) -> Parsed<Decoded> {
        let (mut reader, literal) = open(body, [Some(signature), None])?;
        let width = reader.width();
        let mut left = MAX_VALUES;
        let value = Value::read(ty, &mut reader, &mut left)?;
        Ok(Decoded { value, width, literal, trailing: reader.rest().len() })
    }

    /// Encodes a body. `self` must be of type `ty`, else what comes out means nothing.
    pub fn encode(&self, signature: &Signature, literal: bool) -> Vec<u8> {
        let width = width_for(self.widest());
        let mut out = Vec::new();
        write_head(&mut out, signature, width, literal);
        self.write_to(&mut out, width);
        out
    }

    fn read(ty: Type, reader: &mut Reader<'_>, left: &mut usize) -> Parsed<Value> {
        *left = left.checked_sub(1).ok_or(Cause::Limit { limit: MAX_VALUES, found: MAX_VALUES + 1 })?;
        Ok(match ty {
            Type::Void => Value::Void,
            Type::Bool => Value::Bool(reader.flag()?),
            Type::U8 => Value::U8(reader.array::<1>()?[0]),
            Type::I32 => Value::I32(i32::from_le_bytes(reader.array()?)),
            Type::U32 => Value::U32(u32::from_le_bytes(reader.array()?)),
            Type::I64 => Value::I64(i64::from_le_bytes(reader.array()?)),
            Type::U64 => Value::U64(u64::from_le_bytes(reader.array()?)),
            Type::Str => Value::Str(reader.bytes()?.to_vec()),
            Type::Seq(element) => {
                let count = reader.count(element.min_size())?;
                Value::Seq((0..count).map(|_| Value::read(*element, reader, left)).collect::<Parsed<_>>()?)
            }
            Type::Map(key, value) => {
                let count = reader.count(key.min_size() + value.min_size())?;
                let mut pair = || Ok((Value::read(*key, reader, left)?, Value::read(*value, reader, left)?));
                Value::Map((0..count).map(|_| pair()).collect::<Parsed<_>>()?)
            }
            Type::Opt(value) => Value::Opt(if reader.flag()? {
                Some(Box::new(Value::read(*value, reader, left)?))
            } else {
                None
            }),
            Type::Variant(alternatives) => {
                let [found] = reader.array()?;
                let chosen = alternatives.get(usize::from(found));
                let alternatives = alternatives.len();
                let chosen = *chosen.ok_or(Cause::Alternative { alternatives, found })?;
                Value::Variant(found, Box::new(Value::read(chosen, reader, left)?))
            }
            Type::Expected(value) => Value::Expected(if reader.flag()? {
                Ok(Box::new(Value::read(*value, reader, left)?))
            } else {
                Err(i32::from_le_bytes(reader.array()?))
            }),
            Type::Struct(described) => {
                let mut members = Vec::with_capacity(described.members.len());
                for (name, member) in described.members {
                    members
                        .push(Value::read(*member, reader, left).map_err(|problem| problem.in_field(name))?);
                }
                Value::Struct(members)
            }
        })
    }

    fn widest(&self) -> usize {
        match self {
            Value::Str(bytes) => bytes.len(),
            Value::Seq(elements) => elements.iter().map(Value::widest).max().unwrap_or(0).max(elements.len()),
            Value::Map(pairs) => {
                let inner = pairs.iter().map(|(key, value)| key.widest().max(value.widest()));
                inner.max().unwrap_or(0).max(pairs.len())
            }
            Value::Opt(Some(value)) | Value::Variant(_, value) | Value::Expected(Ok(value)) => value.widest(),
            Value::Struct(members) => members.iter().map(Value::widest).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn write_to(&self, out: &mut Vec<u8>, width: u8) {
        let size = |out: &mut Vec<u8>, size: usize| {
            out.extend_from_slice(&(size as u64).to_le_bytes()[..usize::from(width)]);
        };
        match self {
            Value::Void => {}
            Value::Bool(value) => out.push((*value).into()),
            Value::U8(value) => out.push(*value),
            Value::I32(value) => out.extend_from_slice(&value.to_le_bytes()),
            Value::U32(value) => out.extend_from_slice(&value.to_le_bytes()),
            Value::I64(value) => out.extend_from_slice(&value.to_le_bytes()),
            Value::U64(value) => out.extend_from_slice(&value.to_le_bytes()),
            Value::Str(bytes) => {
                size(out, bytes.len());
                out.extend_from_slice(bytes);
            }
            Value::Seq(elements) => {
                size(out, elements.len());
                for element in elements {
                    element.write_to(out, width);
                }
            }
            Value::Map(pairs) => {
                size(out, pairs.len());
                for (key, value) in pairs {
                    key.write_to(out, width);
                    value.write_to(out, width);
                }
            }
            Value::Opt(value) => {
                out.push(value.is_some().into());
                if let Some(value) = value {
                    value.write_to(out, width);
                }
            }
            Value::Variant(index, value) => {
                out.push(*index);
                value.write_to(out, width);
            }
            Value::Expected(Ok(value)) => {
                out.push(1);
                value.write_to(out, width);
            }
            Value::Expected(Err(code)) => {
                out.push(0);
                out.extend_from_slice(&code.to_le_bytes());
            }
            Value::Struct(members) => members.iter().for_each(|member| member.write_to(out, width)),
        }
    }
}
