//! Grains that break the format in one way each, and what the strict reader makes of them.

use runner_svc::catalogue::grain::Grain;

use crate::vectors::{list, text};

/// Bytes of a bundle before its one grain: magic, then operation, clock, address and length of the record.
const BEFORE_THE_GRAIN: usize = 4 + 1 + 8 + 32 + 4;

#[test]
fn each_malformed_grain_is_refused_and_each_odd_one_accepted_as_marked() {
    let mut seen = [0, 0];
    for case in &list("bad/index.json", "cases") {
        let (name, verdict) = (text(case, "name"), text(case, "strict_reader"));
        let grain = match case["file"].as_str() {
            Some(file) => {
                let path = format!("{}/tests/vectors/bad/{file}", env!("CARGO_MANIFEST_DIR"));
                std::fs::read(path).unwrap()[BEFORE_THE_GRAIN..].to_vec()
            }
            None => over_size(),
        };
        let read = Grain::decode(grain);
        // Where either is right, this reader accepts what a typed writer can write and refuses what none does.
        let accepts = match verdict {
            "accept or refuse (typed API can write it)" | "refuse or quarantine" => true,
            "refuse or ignore" => false,
            _ => verdict.starts_with("accept") || verdict.starts_with("keep"),
        };
        assert_eq!(read.is_ok(), accepts, "{name} ({verdict}): {read:?}");
        seen[usize::from(accepts)] += 1;
    }
    assert!(seen[0] > 50 && seen[1] > 10, "{seen:?}");
}

/// The control, with a text that makes it larger than any grain.
fn over_size() -> Vec<u8> {
    let mut bytes = hex::decode("010005a92c6553f10086a163cb3ff0000000000000a26361cf0000018bcfe56800").unwrap();
    bytes.extend(hex::decode("a3636e74db01000000").unwrap());
    bytes.extend(std::iter::repeat_n(b'x', 1 << 24));
    bytes.extend(hex::decode("a26e73a36f7073a174a4746f6f6ca2746ea174").unwrap());
    bytes
}
