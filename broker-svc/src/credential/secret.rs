//! The one type that holds a secret, and the one file in which it is laid open. No Debug, Display or Clone.

use aws_credential_types::Credentials;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use http::HeaderValue;
use url::Url;
use zeroize::Zeroizing;

use crate::scrub::{Needle, Spelling};

/// Shortest piece of base64 that is looked for; shorter ones are in every text.
const BASE64_PIECE_MIN: usize = 6;

/// A secret value. Its bytes leave this file rendered for their purpose alone.
pub struct Secret {
    value: Zeroizing<Vec<u8>>,
}

/// Which bytes a value may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Visible ASCII without blanks: tokens and keys.
    Token,
    /// Visible ASCII with blanks inside: a header's value, a client's secret.
    Line,
    /// UTF-8 without control characters: a password.
    Text,
    /// The same with a user's name and a colon before it.
    Pair,
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
    /// Something inside that is no text.
    #[error("the value has control characters or is not UTF-8")]
    NoText,
    /// No user before the password.
    #[error(
        "the value has no user and colon before its password: write `user:password`, or give `user` in the configuration"
    )]
    NoUser,
}

impl Secret {
    /// Takes the bytes of a source: one trailing newline is dropped, anything that the shape does not have is refused.
    pub fn take(mut value: Zeroizing<Vec<u8>>, shape: Shape) -> Result<Self, BadSecret> {
        if value.last() == Some(&b'\n') {
            value.pop();
            if value.last() == Some(&b'\r') {
                value.pop();
            }
        }
        if value.is_empty() {
            return Err(BadSecret::Empty);
        }
        match shape {
            Shape::Token | Shape::Line => {
                let inner = |byte: &u8| (0x21..0x7f).contains(byte) || (shape == Shape::Line && *byte == b' ');
                let edges = value.first() != Some(&b' ') && value.last() != Some(&b' ');
                if !edges || !value.iter().all(inner) {
                    return Err(BadSecret::Unsendable);
                }
            }
            Shape::Text | Shape::Pair => {
                let text = std::str::from_utf8(&value).map_err(|_| BadSecret::NoText)?;
                if text.chars().any(char::is_control) {
                    return Err(BadSecret::NoText);
                }
                if shape == Shape::Pair && text.find(':').is_none_or(|at| at == 0) {
                    return Err(BadSecret::NoUser);
                }
            }
        }
        Ok(Self { value })
    }

    /// The same value once more, for who keeps it and who uses it.
    pub fn again(&self) -> Self {
        Self { value: self.value.clone() }
    }

    /// `user:` before a password.
    pub fn behind_user(&self, user: &str) -> Self {
        Self { value: Zeroizing::new([user.as_bytes(), b":", &self.value].concat()) }
    }

    /// What of a pair is the secret: the password, or the user's name where the password is empty.
    pub fn part_of_pair(&self) -> Self {
        let at = self.value.iter().position(|byte| *byte == b':').unwrap_or(0);
        let (user, password) = (&self.value[..at], &self.value[(at + 1).min(self.value.len())..]);
        Self { value: Zeroizing::new(if password.is_empty() { user } else { password }.to_vec()) }
    }

    /// A header's value with a word before the secret, marked sensitive.
    pub fn line(&self, prefix: &str) -> HeaderValue {
        sensitive(&Zeroizing::new([prefix.as_bytes(), &self.value].concat()))
    }

    /// `Basic` and the pair's base64.
    pub fn basic(&self) -> HeaderValue {
        let text = Zeroizing::new(STANDARD.encode(&self.value[..]));
        sensitive(&Zeroizing::new(["Basic ".as_bytes(), text.as_bytes()].concat()))
    }

    /// Puts the secret behind a URL as a parameter.
    pub fn into_query(&self, url: &mut Url, name: &str) {
        url.query_pairs_mut().append_pair(name, self.text());
    }

    /// The secret as a form's field.
    pub fn client_secret(&self) -> oauth2::ClientSecret {
        oauth2::ClientSecret::new(self.text().to_owned())
    }

    /// The secret as a form's field.
    pub fn refresh_token(&self) -> oauth2::RefreshToken {
        oauth2::RefreshToken::new(self.text().to_owned())
    }

    /// The secret as what requests are signed with.
    pub fn signing_key(&self, access_key_id: &str, session: Option<&Self>) -> Credentials {
        let session = session.map(|session| session.text().to_owned());
        Credentials::new(access_key_id, self.text(), session, None, "broker-svc")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.value).expect("take() let only text through")
    }

    /// Whether an answer holds an echo of the secret.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.scrub(text.to_vec()) != text
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

fn sensitive(rendered: &[u8]) -> HeaderValue {
    let mut value = HeaderValue::from_bytes(rendered).expect("take() let only what a header can carry through");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8]) -> Result<Secret, BadSecret> {
        Secret::take(Zeroizing::new(bytes.to_vec()), Shape::Token)
    }

    fn scrubbed(body: &str) -> String {
        String::from_utf8(take(b"canary/Se+cret?9").unwrap().scrub(body.into())).unwrap()
    }

    #[test]
    fn a_trailing_newline_is_not_part_of_a_token_and_inner_ones_are_refused() {
        for bytes in [&b"tok"[..], b"tok\n", b"tok\r\n"] {
            assert_eq!(take(bytes).ok().unwrap().line("Bearer "), "Bearer tok");
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
    fn c3_a_basic_pair_is_utf8_in_base64_and_has_a_user() {
        let take = |text: &str| Secret::take(Zeroizing::new(text.into()), Shape::Pair);
        for (text, rendered) in
            [("u:p", "Basic dTpw"), ("u:pässword", "Basic dTpww6Rzc3dvcmQ="), ("key:", "Basic a2V5Og==")]
        {
            assert_eq!(take(text).ok().unwrap().basic(), rendered);
        }
        for text in ["password", ":p"] {
            assert_eq!(take(text).err(), Some(BadSecret::NoUser), "{text}");
        }
        assert_eq!(take("u:p\nq").err(), Some(BadSecret::NoText));
    }

    #[test]
    fn a_rendered_value_is_sensitive() {
        assert!(format!("{:?}", take(b"hunter22").ok().unwrap().line("Bearer ")).contains("Sensitive"));
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
