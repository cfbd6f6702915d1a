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

    /// The pair's base64, as `Basic` sends it: an upstream may echo it in further clothes.
    pub fn as_basic(&self) -> Self {
        Self { value: Zeroizing::new(STANDARD.encode(&self.value[..]).into_bytes()) }
    }

    /// The value as a parameter of a URL has it.
    pub fn as_parameter(&self) -> Self {
        let rendered: String = url::form_urlencoded::byte_serialize(&self.value).collect();
        Self { value: Zeroizing::new(rendered.into_bytes()) }
    }

    /// Whether a URL or a part of it holds an echo of the secret, in whatever case: hosts' names lose theirs.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.seek(Spelling::AnyCase, |needles| crate::scrub::holds(text, needles))
    }

    /// Replaces every echo of the secret in an answer: as it is, percent-, JSON- and HTML-escaped, in hex, and in base64 of
    /// both alphabets at any offset.
    pub fn scrub(&self, body: Vec<u8>) -> Vec<u8> {
        self.seek(Spelling::Exact, |needles| crate::scrub::replace(body, needles))
    }

    /// The same, in whatever case, in a text of the broker's own that is partly an upstream's words.
    pub fn scrub_text(&self, text: String) -> String {
        let clean = self.seek(Spelling::AnyCase, |needles| crate::scrub::replace(text.into_bytes(), needles));
        String::from_utf8_lossy(&clean).into_owned()
    }

    fn seek<T>(&self, spelling: Spelling, look: impl FnOnce(&[Needle<'_>]) -> T) -> T {
        let pieces = self.base64_pieces();
        let digits = Zeroizing::new(hex::encode(&self.value[..]));
        let mut needles =
            vec![Needle { text: self.text(), spelling }, Needle { text: &digits, spelling: Spelling::AnyCase }];
        needles.extend(pieces.iter().map(|piece| Needle { text: piece, spelling }));
        look(&needles)
    }

    /// The letters of base64 that depend on the secret alone, for each of the three offsets that it can have.
    fn base64_pieces(&self) -> Vec<Zeroizing<String>> {
        let mut pieces: Vec<Zeroizing<String>> = Vec::new();
        for offset in 0..3 {
            let padded = Zeroizing::new([&[0; 2][..offset], &self.value].concat());
            // Six bits a letter: the first whole letter after the offset, the last before what may follow.
            let (start, end) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let text = Zeroizing::new(engine.encode(&padded[..]));
                let piece = Zeroizing::new(text[start..end].to_owned());
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
    fn echoes_are_replaced_that_name_what_can_be_named_in_html() {
        let names = |letter: char| {
            let same = move |(_, letters): &&(&[u8], &str)| letters.chars().eq([letter]);
            let names = html_escape::NAMED_ENTITIES.iter().filter(same);
            names.map(|(name, _)| format!("&{};", String::from_utf8_lossy(name)))
        };
        // Punctuation that a token may have, and letters that a password may: each under every name that it has.
        let (token, password) = ("q!\"#$%&'()*+,./:;<=>?@[\\]^_`{|}~z", "pässwörd €ø×");
        for (secret, shape) in [(token, Shape::Token), (password, Shape::Text)] {
            let taken = Secret::take(Zeroizing::new(secret.into()), shape).ok().unwrap();
            for turn in 0..4 {
                let name = |letter| names(letter).cycle().nth(turn).unwrap_or_else(|| letter.to_string());
                let text: String = secret.chars().map(name).collect();
                let clean = taken.scrub(format!("<{text}>").into());
                assert_eq!(String::from_utf8(clean).unwrap(), "<[redacted]>", "{text}");
            }
            assert!(secret.chars().filter(|letter| names(*letter).next().is_some()).count() > 4);
        }
    }

    #[test]
    fn echoes_are_replaced_by_letters_and_not_by_bytes() {
        let secret = "pä€ss😀 w+ö\\r%t&x";
        let taken = Secret::take(Zeroizing::new(secret.into()), Shape::Text).ok().unwrap();
        let units = |text: &str| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        let outside_ascii = |spell: &dyn Fn(char) -> String| -> String {
            secret.chars().map(|c| if c.is_ascii() { c.to_string() } else { spell(c) }).collect()
        };
        let percent = |bytes: &[u8]| bytes.iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let form: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        let spelled = [
            secret.to_owned(),
            units(secret),
            units(secret).to_uppercase().replace("\\U", "\\u"),
            outside_ascii(&|c| units(&c.to_string())),
            serde_json::to_string(&secret).unwrap(),
            serde_json::to_string(&secret)
                .unwrap()
                .chars()
                .map(|c| if c.is_ascii() { c.into() } else { units(&c.to_string()) })
                .collect(),
            outside_ascii(&|c| format!("&#{};", u32::from(c))),
            secret.chars().map(|c| format!("&#{:07};", u32::from(c))).collect(),
            secret.chars().map(|c| format!("&#x{:X};", u32::from(c))).collect(),
            secret.replace('&', "&amp;"),
            outside_ascii(&|c| format!("\\u{{{:x}}}", u32::from(c))),
            outside_ascii(&|c| format!("\\U{:08x}", u32::from(c))),
            outside_ascii(&|c| c.to_string().bytes().map(|byte| format!("\\x{byte:02x}")).collect()),
            percent(secret.as_bytes()),
            percent(secret.as_bytes()).to_uppercase(),
            form.clone(),
            form.to_lowercase().replace("%f0%9f%98%80", "😀"),
            form.replace('+', "%20"),
            hex::encode(secret),
            STANDARD_NO_PAD.encode(secret),
            URL_SAFE_NO_PAD.encode(format!("u:{secret}x")),
        ];
        for text in spelled {
            let clean = String::from_utf8(taken.scrub(format!("<{text}>").into())).unwrap();
            assert!(clean.contains(crate::scrub::REPLACEMENT), "{text} -> {clean}");
            assert!(clean.len() < crate::scrub::REPLACEMENT.len() + 8, "{text} -> {clean}");
        }
        // In ISO 8859-1, percent-encoded and as it is.
        let taken = Secret::take(Zeroizing::new("pässwört".into()), Shape::Text).ok().unwrap();
        for text in [&b"p%E4ssw%F6rt"[..], b"p\xe4ssw\xf6rt", b"p\\xe4ssw\\xf6rt"] {
            assert_eq!(taken.scrub(text.to_vec()), crate::scrub::REPLACEMENT.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn a_secret_is_found_in_a_url_whatever_its_case() {
        let secret = take(b"Canary-Key9").ok().unwrap();
        for text in [
            "https://canary-key9.evil.com/",
            "https://CANARY%2Dkey9/",
            &STANDARD_NO_PAD.encode("Canary-Key9").to_lowercase(),
        ] {
            assert!(secret.is_in(text.as_bytes()), "{text}");
        }
        assert!(!secret.is_in(b"https://canary.evil.com/key9"));
        assert_eq!(secret.scrub_text("to https://canary-key9.com".to_owned()), "to https://[redacted].com");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        let body = r#"{"ok":true,"items":["canary","Secret","%2F","\u0063","&#99;"]}"#;
        assert_eq!(scrubbed(body), body);
    }
}
