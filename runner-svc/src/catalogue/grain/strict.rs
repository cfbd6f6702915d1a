//! The strict reader: the format's own rules, and that header and payload agree. Content (graphs, capabilities, limits) is
//! checked where it is used, because another implementation may have written it.

mod shape;

use super::{BadGrain, GRAIN_BYTES_MAX, GRAIN_BYTES_MIN, GrainType, Item, header, item::is_nfc, names, wire};

/// Maps whose keys are node ids or member names, kept as they were spelt.
const RAW_KEYED: [(GrainType, &str); 3] =
    [(GrainType::Workflow, "bind"), (GrainType::Workflow, "retries"), (GrainType::Trigger, "tmem")];

/// Reads a grain's bytes.
pub fn read(bytes: &[u8]) -> Result<(GrainType, Vec<(String, Item)>), BadGrain> {
    if !(GRAIN_BYTES_MIN..=GRAIN_BYTES_MAX).contains(&bytes.len()) {
        let rule = format!("a grain has {GRAIN_BYTES_MIN} to {GRAIN_BYTES_MAX} bytes; this has {}", bytes.len());
        return Err(BadGrain::whole(rule));
    }
    let (head, rest) = bytes.split_at(header::HEADER_BYTES);
    if head[0] != header::VERSION {
        return Err(BadGrain::whole(format!("version {} is not known", head[0])));
    }
    let kind = GrainType::of_byte(head[2])
        .ok_or_else(|| BadGrain::whole(format!("type byte {:02x} is not known", head[2])))?;
    let payload = wire::parse(rest)?;
    check_names(kind, &payload)?;
    let fields = shape::Fields(&payload);
    shape::check(kind, &fields)?;
    check_header(kind, head, &fields)?;
    Ok((kind, payload))
}

/// Names and texts in NFC, and each typed field under its one name.
fn check_names(kind: GrainType, payload: &[(String, Item)]) -> Result<(), BadGrain> {
    for (key, item) in payload {
        if !is_nfc(key) || !all_nfc(item, !RAW_KEYED.contains(&(kind, key.as_str()))) {
            return Err(BadGrain::new(key, "text is not in NFC"));
        }
        let short = names::compact(key);
        if short != key && payload.binary_search_by(|(name, _)| name.as_str().cmp(short)).is_ok() {
            return Err(BadGrain::new(key, format!("stands beside its short form {short:?}")));
        }
        if shape::is_reserved(kind, key) {
            return Err(BadGrain::new(key, format!("this field is written as {short:?}")));
        }
    }
    Ok(())
}

/// Whether all text is in NFC; of a map's own keys only where `keys` says so.
fn all_nfc(item: &Item, keys: bool) -> bool {
    match item {
        Item::Text(text) => is_nfc(text),
        Item::List(items) => items.iter().all(|item| all_nfc(item, true)),
        Item::Map(entries) => entries.iter().all(|(key, item)| (!keys || is_nfc(key)) && all_nfc(item, true)),
        Item::Nil | Item::Bool(_) | Item::Unsigned(_) | Item::Negative(_) | Item::Float(_) | Item::Binary(_) => true,
    }
}

fn check_header(kind: GrainType, head: &[u8], fields: &shape::Fields<'_>) -> Result<(), BadGrain> {
    let namespace = fields.text("ns");
    let want = header::build(kind, header::flags(|key| fields.get(key)), namespace, shape::created_at_ms(fields)?);
    // A namespace beyond ASCII may have been supplied, and hashed, in a spelling that its payload no longer has.
    let namespace_agrees = head[3..5] == want[3..5] || !namespace.unwrap_or("").is_ascii();
    if head[1] != want[1] {
        return Err(BadGrain::whole(format!("header flags are {:02x}, the fields imply {:02x}", head[1], want[1])));
    }
    if head[5..] != want[5..] {
        return Err(BadGrain::new("created_at", "the header's seconds disagree with it"));
    }
    if !namespace_agrees {
        return Err(BadGrain::new("namespace", "the header's hash disagrees with it"));
    }
    Ok(())
}
