//! Base64 as the host writes bytes that are no text: the standard alphabet, padded.

use alloc::vec::Vec;

/// Reads base64; none when it is not that, to the last bit.
pub fn decode(encoded: &str) -> Option<Vec<u8>> {
    let encoded = encoded.as_bytes();
    if !encoded.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len() / 4 * 3);
    let groups = encoded.len() / 4;
    for (number, group) in encoded.chunks_exact(4).enumerate() {
        let padding =
            if number + 1 == groups { group.iter().rev().take_while(|byte| **byte == b'=').count() } else { 0 };
        if padding > 2 {
            return None;
        }
        let mut bits = 0_u32;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | u32::from(value(*byte)?);
        }
        bits <<= 6 * padding as u32;
        let [_, group @ ..] = bits.to_be_bytes();
        let (whole, rest) = group.split_at(3 - padding);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let cases: [(&str, &[u8]); 6] = [
            ("", b""),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYg==", b"foob"),
            ("/wA+", b"\xff\x00>"),
        ];
        for (encoded, bytes) in cases {
            assert_eq!(decode(encoded).as_deref(), Some(bytes), "{encoded}");
        }
    }

    #[test]
    fn what_is_not_base64_is_not_guessed_at() {
        for wrong in ["Z", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Zm9=", "Zm9v\n", "Z-8=", "Zm 9"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
