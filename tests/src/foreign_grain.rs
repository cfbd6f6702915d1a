//! A second writer of Tool grains: what another implementation would send, authoring rules or not.

use content_digest::Digest;
use serde_json::{Map, Value};

/// Version, flags, type: 1, none, tool.
const HEADER_START: [u8; 3] = [1, 0, 5];

/// Field names as documents have them, and as the bytes have them.
const FIELDS: [(&str, &str); 13] = [
    ("tool_name", "tn"),
    ("kind", "aknd"),
    ("tool_description", "tdesc"),
    ("executor_uri", "axu"),
    ("executor_kind", "exk"),
    ("runtime", "axr"),
    ("runtime_limits", "axl"),
    ("capabilities", "axcp"),
    ("input_schema", "ischema"),
    ("output_schema", "osch"),
    ("strict", "strict"),
    ("namespace", "ns"),
    ("created_at", "ca"),
];

/// Writes a Tool grain: the header, then one MessagePack map with sorted keys.
pub fn tool(document: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("t".to_owned(), "tool".into());
    for (name, value) in document {
        let known = FIELDS.iter().find(|(long, _)| long == name);
        let (_, short) = known.unwrap_or_else(|| panic!("the foreign writer does not know the field {name:?}"));
        fields.insert((*short).to_owned(), value.clone());
    }
    let namespace = document.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let created_at_s = document.get("created_at").and_then(Value::as_i64).unwrap_or_default() / 1000;
    let mut grain = HEADER_START.to_vec();
    grain.extend_from_slice(&Digest::of(namespace).as_bytes()[..2]);
    grain.extend_from_slice(&u32::try_from(created_at_s).unwrap_or(u32::MAX).to_be_bytes());
    // Confidence is a float on the wire even when it is whole, so it is no JSON value here.
    let mut entries: Vec<(String, Option<Value>)> =
        fields.into_iter().map(|(key, value)| (key, Some(value))).chain([("c".to_owned(), None)]).collect();
    entries.sort_by(|left, right| left.0.cmp(&right.0));
    head(&mut grain, 0x80, 0xde, entries.len());
    for (key, value) in entries {
        text(&mut grain, &key);
        match value {
            Some(value) => put(&mut grain, &value),
            None => float(&mut grain, 1.0),
        }
    }
    grain
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => unsigned(out, number),
            (None, Some(number)) => signed(out, number),
            (None, None) => float(out, number.as_f64().expect("a JSON number is an integer or a float")),
        },
        Value::String(value) => text(out, value),
        Value::Array(items) => {
            head(out, 0x90, 0xdc, items.len());
            items.iter().for_each(|item| put(out, item));
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|left, right| left.0.cmp(right.0));
            head(out, 0x80, 0xde, sorted.len());
            for (key, value) in sorted {
                text(out, key);
                put(out, value);
            }
        }
    }
}

fn unsigned(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    match number {
        0..=0x7f => out.push(bytes[7]),
        0x80..=0xff => out.extend_from_slice(&[0xcc, bytes[7]]),
        0x100..=0xffff => out.extend([0xcd].iter().chain(&bytes[6..])),
        0x1_0000..=0xffff_ffff => out.extend([0xce].iter().chain(&bytes[4..])),
        _ => out.extend([0xcf].iter().chain(&bytes)),
    }
}

fn signed(out: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    match number {
        -32..=-1 => out.push(bytes[7]),
        -0x80..=-33 => out.extend_from_slice(&[0xd0, bytes[7]]),
        -0x8000..=-0x81 => out.extend([0xd1].iter().chain(&bytes[6..])),
        -0x8000_0000..=-0x8001 => out.extend([0xd2].iter().chain(&bytes[4..])),
        _ => out.extend([0xd3].iter().chain(&bytes)),
    }
}

fn float(out: &mut Vec<u8>, number: f64) {
    out.push(0xcb);
    out.extend_from_slice(&number.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        length @ 0..=31 => out.push(0xa0 | u8::try_from(length).expect("at most 31")),
        length @ 32..=255 => out.extend_from_slice(&[0xd9, u8::try_from(length).expect("at most 255")]),
        length => {
            out.push(0xda);
            out.extend_from_slice(&u16::try_from(length).expect("a test's text is short").to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// Head of an array or a map: `short` with up to 15 members in its low bits, else `long` and two bytes.
fn head(out: &mut Vec<u8>, short: u8, long: u8, members: usize) {
    match members {
        0..=15 => out.push(short | u8::try_from(members).expect("at most 15")),
        _ => {
            out.push(long);
            out.extend_from_slice(&u16::try_from(members).expect("a test's document is small").to_be_bytes());
        }
    }
}
