//! Canonical MessagePack, both ways: one spelling for each value, and no other is read.

mod reader;

use super::{BadGrain, Item};

pub use reader::parse;

/// Most open containers, the payload's map being the first.
const DEPTH_MAX: usize = 255;
/// Most values in one grain that is read: bounds the memory that a small grain of tiny values can take.
const VALUES_MAX: usize = 1 << 21;
/// How many values a map counts for beside its entries: it takes about as much memory.
const MAP_VALUES: usize = 16;

/// Writes a map whose keys ascend. `depth` is the number of containers that are open around it.
pub fn encode_map(entries: &[(String, Item)], depth: usize, out: &mut Vec<u8>) -> Result<(), BadGrain> {
    let inside = enter(depth)?;
    head(entries.len(), 0x80, (0xde, 0xdf), out);
    for (key, item) in entries {
        text(key, out);
        encode(item, inside, out)?;
    }
    Ok(())
}

fn encode(item: &Item, depth: usize, out: &mut Vec<u8>) -> Result<(), BadGrain> {
    match item {
        Item::Nil => out.push(0xc0),
        Item::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Item::Unsigned(value) => unsigned(*value, out),
        Item::Negative(value) => negative(*value, out),
        Item::Float(value) => float(*value, out)?,
        Item::Text(value) => text(value, out),
        Item::Binary(bytes) => binary(bytes, out),
        Item::List(items) => {
            let inside = enter(depth)?;
            head(items.len(), 0x90, (0xdc, 0xdd), out);
            for item in items {
                encode(item, inside, out)?;
            }
        }
        Item::Map(entries) => encode_map(entries, depth, out)?,
    }
    Ok(())
}

fn enter(depth: usize) -> Result<usize, BadGrain> {
    if depth >= DEPTH_MAX {
        return Err(BadGrain::whole(format!("nested deeper than {DEPTH_MAX} containers")));
    }
    Ok(depth + 1)
}

#[expect(clippy::cast_possible_truncation, reason = "each cast is of a value that its arm bounds")]
fn unsigned(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => tagged(0xcd, &(value as u16).to_be_bytes(), out),
        0x1_0000..=0xffff_ffff => tagged(0xce, &(value as u32).to_be_bytes(), out),
        _ => tagged(0xcf, &value.to_be_bytes(), out),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "each cast is of a value that its arm bounds")]
fn negative(value: i64, out: &mut Vec<u8>) {
    match value {
        0.. => unsigned(value.unsigned_abs(), out),
        -32..0 => out.extend((value as i8).to_be_bytes()),
        -0x80..-32 => tagged(0xd0, &(value as i8).to_be_bytes(), out),
        -0x8000..-0x80 => tagged(0xd1, &(value as i16).to_be_bytes(), out),
        -0x8000_0000..-0x8000 => tagged(0xd2, &(value as i32).to_be_bytes(), out),
        _ => tagged(0xd3, &value.to_be_bytes(), out),
    }
}

fn float(value: f64, out: &mut Vec<u8>) -> Result<(), BadGrain> {
    if !value.is_finite() {
        return Err(BadGrain::whole("a number is not finite"));
    }
    tagged(0xcb, &value.to_be_bytes(), out);
    Ok(())
}

fn text(value: &str, out: &mut Vec<u8>) {
    match value.len() {
        short @ 0..=31 => out.push(0xa0 | u8_of(short)),
        byte @ 32..=0xff => out.extend([0xd9, u8_of(byte)]),
        length => long_head(length, (0xda, 0xdb), out),
    }
    out.extend_from_slice(value.as_bytes());
}

fn binary(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        byte @ 0..=0xff => out.extend([0xc4, u8_of(byte)]),
        length => long_head(length, (0xc5, 0xc6), out),
    }
    out.extend_from_slice(bytes);
}

/// The head of a container: `fix` with the length in its low bits, or one of the longer tags.
fn head(length: usize, fix: u8, tags: (u8, u8), out: &mut Vec<u8>) {
    if length <= 15 { out.push(fix | u8_of(length)) } else { long_head(length, tags, out) }
}

/// A length in 16 bits, or in 32. A longer one belongs to a grain that is far over its size, which is refused after.
fn long_head(length: usize, (two, four): (u8, u8), out: &mut Vec<u8>) {
    match u16::try_from(length) {
        Ok(length) => tagged(two, &length.to_be_bytes(), out),
        Err(_) => tagged(four, &u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes(), out),
    }
}

fn tagged(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn u8_of(length: usize) -> u8 {
    u8::try_from(length).expect("the caller's arm bounds the length to a byte")
}
