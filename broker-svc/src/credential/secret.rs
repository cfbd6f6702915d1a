//! The one type that holds a secret, and the one file in which it is laid open. No Debug, Display or Clone.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use http::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use crate::{
    policy::Kind,
    scrub::{Needle, Spelling},
};

/// Shortest piece of base64 that is looked for; shorter ones are in every text.
const BASE64_PIECE_MIN: usize = 6;

/// A credential's value.
pub struct Secret {
    value: Zeroizing<Vec<u8>>,
    slot: HeaderName,
    prefix: &'static str,
}

/// The value is no credential. Never says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// Nothing is there.
    #[error("the value is empty")]
    Empty,
    /// Something inside that no header can carry.
    #[error("the value has control characters or blanks inside, or letters outside ASCII")]
    Unsendable,
}

impl Secret {
    /// Takes the bytes of a source: one trailing newline is dropped, anything that a header cannot carry is refused.
    pub fn take(mut value: Zeroizing<Vec<u8>>, kind: &Kind) -> Result<Self, BadSecret> {
        if value.last() == Some(&b'\n') {
            value.pop();
            if value.last() == Some(&b'\r') {
                value.pop();
            }
        }
        if value.is_empty() {
            return Err(BadSecret::Empty);
        }
        let (prefix, blank) = match kind {
            Kind::Bearer => ("Bearer ", false),
            Kind::Header(_) => ("", true),
        };
        let inner = |byte: &u8| (0x21..0x7f).contains(byte) || (blank && *byte == b' ');
        let edges = value.first() != Some(&b' ') && value.last() != Some(&b' ');
        if !edges || !value.iter().all(inner) {
            return Err(BadSecret::Unsendable);
        }
        Ok(Self { value, slot: kind.slot(), prefix })
    }

    /// The header line that carries it, marked sensitive.
    pub fn header(&self) -> (HeaderName, HeaderValue) {
        let rendered = Zeroizing::new([self.prefix.as_bytes(), &self.value].concat());
        let mut value = HeaderValue::from_bytes(&rendered).expect("take() let only visible ASCII through");
        value.set_sensitive(true);
        (self.slot.clone(), value)
    }

    /// Replaces every echo of the secret in an answer: as it is, percent-, JSON- and HTML-escaped, in hex, and in base64 of
    /// both alphabets at any offset (which covers its rendered form too).
    pub fn scrub(&self, body: Vec<u8>) -> Vec<u8> {
        let pieces = self.base64_pieces();
        let mut digits = Zeroizing::new(vec![0; self.value.len() * 2]);
        hex::encode_to_slice(&self.value[..], &mut digits).expect("the room is twice the value");
        let mut needles = vec![
            Needle { bytes: &self.value, spelling: Spelling::Exact },
            Needle { bytes: &digits, spelling: Spelling::AnyCase },
        ];
        needles.extend(pieces.iter().map(|piece| Needle { bytes: piece, spelling: Spelling::Exact }));
        crate::scrub::replace(body, &needles)
    }

    /// The letters of base64 that depend on the secret alone, for each of the three offsets that it can have.
    fn base64_pieces(&self) -> Vec<Zeroizing<Vec<u8>>> {
        let mut pieces: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        for offset in 0..3 {
            let padded = Zeroizing::new([&[0; 2][..offset], &self.value].concat());
            // Six bits a letter: the first whole letter after the offset, the last before what may follow.
            let (start, end) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let text = Zeroizing::new(engine.encode(&padded[..]));
                let piece = Zeroizing::new(text.as_bytes()[start..end].to_vec());
                if piece.len() >= BASE64_PIECE_MIN && !pieces.contains(&piece) {
                    pieces.push(piece);
                }
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8]) -> Result<Secret, BadSecret> {
        Secret::take(Zeroizing::new(bytes.to_vec()), &Kind::Bearer)
    }

    fn scrubbed(body: &str) -> String {
        String::from_utf8(take(b"canary/Se+cret?9").unwrap().scrub(body.into())).unwrap()
    }

    #[test]
    fn a_trailing_newline_is_not_part_of_a_token_and_inner_ones_are_refused() {
        for bytes in [&b"tok"[..], b"tok\n", b"tok\r\n"] {
            assert_eq!(take(bytes).ok().unwrap().header().1, "Bearer tok");
        }
        for (bytes, fault) in [
            (&b""[..], BadSecret::Empty),
            (b"\n", BadSecret::Empty),
            (b"\r\n", BadSecret::Empty),
            (b"to\nk", BadSecret::Unsendable),
            (b"tok\n\n", BadSecret::Unsendable),
            (b"tok\0", BadSecret::Unsendable),
            (b"t ok", BadSecret::Unsendable),
            (b" tok", BadSecret::Unsendable),
            ("tök".as_bytes(), BadSecret::Unsendable),
        ] {
            assert_eq!(take(bytes).err(), Some(fault), "{bytes:?}");
        }
    }

    #[test]
    fn a_rendered_value_is_sensitive() {
        assert!(format!("{:?}", take(b"hunter22").ok().unwrap().header().1).contains("Sensitive"));
    }

    #[test]
    fn echoes_are_replaced_in_every_common_spelling() {
        let secret = "canary/Se+cret?9";
        let mut spelled = vec![
            secret.to_owned(),
            format!("Bearer {secret}"),
            hex::encode(secret),
            hex::encode(secret).to_uppercase(),
            "canary%2FSe%2Bcret%3F9".to_owned(),
            "canary%2fSe%2bcret%3f9".to_owned(),
            secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
            secret.bytes().map(|byte| format!("\\u{byte:04x}")).collect(),
            secret.bytes().map(|byte| format!("&#{byte};")).collect(),
            secret.bytes().map(|byte| format!("&#x{byte:x};")).collect(),
            "canary\\/Se+cret?9".to_owned(),
        ];
        for before in ["", "u", "us", "use", "user:"] {
            spelled.push(STANDARD_NO_PAD.encode(format!("{before}{secret}")));
            spelled.push(URL_SAFE_NO_PAD.encode(format!("{before}{secret}xyz")));
        }
        spelled.push(STANDARD_NO_PAD.encode(format!("Bearer {secret}")));
        for text in spelled {
            let clean = scrubbed(&format!("{{\"echo\":\"{text}\"}}"));
            assert!(clean.contains(crate::scrub::REPLACEMENT), "{text} -> {clean}");
            assert!(clean.len() < text.len() + 24, "{text} -> {clean}");
            assert!(!clean.contains("cret"), "{clean}");
        }
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        let body = r#"{"ok":true,"items":["canary","Secret","%2F","\u0063","&#99;"]}"#;
        assert_eq!(scrubbed(body), body);
    }
}
