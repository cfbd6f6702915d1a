//! Reads canonical MessagePack. Every length is checked against the bytes that are left before anything is allocated.

use super::{DEPTH_MAX, MAP_VALUES, VALUES_MAX};
use crate::catalogue::grain::{BadGrain, Item};

/// What the tag of a short map begins with.
const FIX_MAP: u8 = 0x80;

/// Reads exactly one map and nothing after it.
pub fn parse(bytes: &[u8]) -> Result<Vec<(String, Item)>, BadGrain> {
    let mut reader = Reader { rest: bytes, values_left: VALUES_MAX };
    let Item::Map(entries) = reader.item(0)? else { return Err(bad("the payload is no map")) };
    if reader.rest.is_empty() { Ok(entries) } else { Err(bad("bytes after the payload")) }
}

struct Reader<'a> {
    rest: &'a [u8],
    values_left: usize,
}

impl<'a> Reader<'a> {
    /// One value, `depth` containers being open around it. Recurses at most to `DEPTH_MAX`.
    fn item(&mut self, depth: usize) -> Result<Item, BadGrain> {
        let [tag] = self.array()?;
        match tag {
            0x00..=0x7f => Ok(Item::Unsigned(u64::from(tag))),
            0xe0..=0xff => Ok(Item::Negative(i64::from(tag.cast_signed()))),
            0xc0 => Ok(Item::Nil),
            0xc2 | 0xc3 => Ok(Item::Bool(tag == 0xc3)),
            0xa0..=0xbf | 0xd9..=0xdb => self.text(tag).map(Item::Text),
            0xc4..=0xc6 => self.binary(tag),
            0xcc..=0xcf => self.unsigned(tag).map(Item::Unsigned),
            0xd0..=0xd3 => self.negative(tag).map(Item::Negative),
            0xcb => self.float(),
            0x80..=0x8f | 0xde | 0xdf => self.map(tag, depth),
            0x90..=0x9f | 0xdc | 0xdd => self.list(tag, depth),
            0xc1 | 0xc7..=0xca | 0xd4..=0xd8 => Err(bad(format!("MessagePack tag {tag:02x} is never used"))),
        }
    }

    fn map(&mut self, tag: u8, depth: usize) -> Result<Item, BadGrain> {
        let length = self.container(tag, (FIX_MAP, 0xde), 2, depth)?;
        let mut entries: Vec<(String, Item)> = Vec::with_capacity(length);
        for _ in 0..length {
            let [key_tag] = self.array()?;
            if !matches!(key_tag, 0xa0..=0xbf | 0xd9..=0xdb) {
                return Err(bad("a key is no text"));
            }
            let key = self.text(key_tag)?;
            if entries.last().is_some_and(|(last, _)| *last >= key) {
                return Err(BadGrain::new(key, "keys must ascend by their bytes and be unique"));
            }
            entries.push((key, self.item(depth + 1)?));
        }
        Ok(Item::Map(entries))
    }

    fn list(&mut self, tag: u8, depth: usize) -> Result<Item, BadGrain> {
        let length = self.container(tag, (0x90, 0xdc), 1, depth)?;
        let mut items = Vec::with_capacity(length);
        for _ in 0..length {
            items.push(self.item(depth + 1)?);
        }
        Ok(Item::List(items))
    }

    /// A container's length: in its tag, or in two or four bytes. Each entry takes `bytes_each` at least.
    fn container(&mut self, tag: u8, (fix, two): (u8, u8), bytes_each: usize, depth: usize) -> Result<usize, BadGrain> {
        if depth >= DEPTH_MAX {
            return Err(bad(format!("nested deeper than {DEPTH_MAX} containers")));
        }
        let length = if tag & 0xf0 == fix {
            usize::from(tag & 0x0f)
        } else if tag == two {
            at_least(self.number(2)?, 16)?
        } else {
            at_least(self.number(4)?, 0x1_0000)?
        };
        if length.saturating_mul(bytes_each) > self.rest.len() {
            return Err(truncated());
        }
        // Taken at once, so that all allocations together are bounded by it, however containers nest.
        let values = if fix == FIX_MAP { length + MAP_VALUES } else { length };
        let left = self.values_left.checked_sub(values);
        self.values_left = left.ok_or_else(|| bad(format!("more than {VALUES_MAX} values")))?;
        Ok(length)
    }

    fn text(&mut self, tag: u8) -> Result<String, BadGrain> {
        let length = match tag {
            0xd9 => at_least(self.number(1)?, 32)?,
            0xda => at_least(self.number(2)?, 0x100)?,
            0xdb => at_least(self.number(4)?, 0x1_0000)?,
            _ => usize::from(tag & 0x1f),
        };
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| bad("a text is no UTF-8"))?;
        Ok(text.to_owned())
    }

    fn binary(&mut self, tag: u8) -> Result<Item, BadGrain> {
        let length = match tag {
            0xc4 => at_least(self.number(1)?, 0)?,
            0xc5 => at_least(self.number(2)?, 0x100)?,
            _ => at_least(self.number(4)?, 0x1_0000)?,
        };
        Ok(Item::Binary(self.take(length)?.to_vec()))
    }

    fn unsigned(&mut self, tag: u8) -> Result<u64, BadGrain> {
        let (width, least) = match tag {
            0xcc => (1, 0x80),
            0xcd => (2, 0x100),
            0xce => (4, 0x1_0000),
            _ => (8, 0x1_0000_0000),
        };
        let value = self.number(width)?;
        if value < least { Err(longer()) } else { Ok(value) }
    }

    fn negative(&mut self, tag: u8) -> Result<i64, BadGrain> {
        let (value, most) = match tag {
            0xd0 => (i64::from(i8::from_be_bytes(self.array()?)), -33),
            0xd1 => (i64::from(i16::from_be_bytes(self.array()?)), -0x81),
            0xd2 => (i64::from(i32::from_be_bytes(self.array()?)), -0x8001),
            _ => (i64::from_be_bytes(self.array()?), -0x8000_0001),
        };
        if value > most { Err(longer()) } else { Ok(value) }
    }

    fn float(&mut self) -> Result<Item, BadGrain> {
        let value = f64::from_be_bytes(self.array()?);
        if value.is_finite() { Ok(Item::Float(value)) } else { Err(bad("a number is not finite")) }
    }

    /// A big-endian number of `width` bytes, at most 8.
    fn number(&mut self, width: usize) -> Result<u64, BadGrain> {
        Ok(self.take(width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadGrain> {
        let (first, rest) = self.rest.split_first_chunk().ok_or_else(truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], BadGrain> {
        let (first, rest) = self.rest.split_at_checked(length).ok_or_else(truncated)?;
        self.rest = rest;
        Ok(first)
    }
}

fn at_least(length: u64, least: u64) -> Result<usize, BadGrain> {
    if length < least { Err(longer()) } else { usize::try_from(length).map_err(|_| truncated()) }
}

fn longer() -> BadGrain {
    bad("a number or length is written longer than needed")
}

fn truncated() -> BadGrain {
    bad("the bytes end too early")
}

fn bad(rule: impl Into<String>) -> BadGrain {
    BadGrain::whole(rule)
}
