//! Bytes and documents that nobody sane would send: refused or read, never a panic.

use proptest::prelude::*;
use runner_svc::catalogue::grain::{Grain, GrainType, author};

use crate::vectors::{bytes, list};

fn samples() -> Vec<Vec<u8>> {
    list("grains.json", "vectors").iter().step_by(5).map(bytes).filter(|bytes| bytes.len() < 1000).collect()
}

#[test]
fn a_grain_cut_anywhere_is_refused() {
    for sample in samples() {
        for end in 0..sample.len() {
            assert!(Grain::decode(sample[..end].to_vec()).is_err(), "{} bytes of {}", end, hex::encode(&sample));
        }
    }
}

#[test]
fn whatever_is_read_encodes_to_the_same_bytes_with_any_one_byte_changed() {
    let mut accepted = 0;
    for sample in samples().into_iter().take(12) {
        for at in 0..sample.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = sample.clone();
                changed[at] ^= flip;
                if let Ok(grain) = Grain::decode(changed.clone()) {
                    assert_eq!(grain.encode_again().unwrap(), changed);
                    assert!(grain.fields_json(1 << 20).is_some());
                    accepted += 1;
                }
            }
        }
    }
    assert!(accepted > 0, "no change was harmless, so nothing was checked");
}

#[test]
fn tiny_bytes_cannot_claim_much_memory() {
    let head = hex::decode("010005a92c6553f100").unwrap();
    // Containers that each claim as many entries as bytes are left, one inside the other.
    let mut nested = head.clone();
    for _ in 0..255 {
        nested.extend([0xdd, 0x00, 0x0f, 0x42, 0x40]);
    }
    nested.resize(2 << 20, 0xc0);
    assert!(Grain::decode(nested).is_err());
    // Sixteen mebibytes of empty lists.
    let mut wide = head;
    wide.extend([0x81, 0xa1, b'x', 0xdd, 0x00, 0xff, 0xff, 0x00]);
    wide.resize(16 << 20, 0x90);
    assert!(Grain::decode(wide).is_err());
    // Two megabytes of tiny maps, each of which takes a hundred times its bytes in memory.
    let mut maps = hex::decode("010005a92c6553f10086a163cb3ff0000000000000a26361cf0000018bcfe56800a3657874").unwrap();
    maps.extend([0xdd, 0x00, 0x07, 0xa1, 0x20]);
    maps.extend([0x81, 0xa1, b'k', 0x00].repeat(500_000));
    maps.extend(hex::decode("a26e73a36f7073a174a4746f6f6ca2746ea174").unwrap());
    let error = Grain::decode(maps).unwrap_err();
    assert!(error.to_string().contains("values"), "{error}");
}

#[test]
fn a_deep_document_is_refused_in_text_and_as_members() {
    let text = format!("{{\"tool_name\":\"t\",\"input\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(author::from_json(GrainType::Tool, &text, "ops", 0).is_err());
    let mut deep = serde_json::Value::Null;
    for _ in 0..127 {
        deep = serde_json::Value::Array(vec![deep]);
    }
    let mut members = serde_json::Map::new();
    members.insert("tool_name".to_owned(), "t".into());
    members.insert("input".to_owned(), deep);
    let error = author::from_members(GrainType::Tool, &members, "ops", 0).unwrap_err();
    assert!(error.to_string().contains("127"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..200), kind in 1_u8..14) {
        let mut bytes = vec![1, 0, kind, 0, 0, 0, 0, 0, 0];
        bytes.extend(&payload);
        if let Ok(grain) = Grain::decode(bytes.clone()) {
            prop_assert_eq!(grain.encode_again().unwrap(), bytes);
        }
        let _ = Grain::decode(payload);
    }

    #[test]
    fn random_text_never_panics(text in "\\PC{0,200}", name in "\\PC{0,20}") {
        let _ = author::from_json(GrainType::Tool, &text, &name, 0);
        let mut members = serde_json::Map::new();
        members.insert("tool_name".to_owned(), text.clone().into());
        members.insert(name.clone(), serde_json::json!({ text.as_str(): [name.as_str(), 1.5, -3] }));
        if let Ok(grain) = author::from_members(GrainType::Tool, &members, &name, 1)
            && let Ok(read) = Grain::decode(grain.bytes().to_vec())
        {
            prop_assert_eq!(read.encode_again().unwrap(), grain.bytes());
        }
    }
}
