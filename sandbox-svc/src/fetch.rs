//! The words of `areev::fetch`: what a guest may ask, read strictly, and what it is answered.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use content_digest::Digest;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, Visitor},
};

/// The stable code of a refused outbound call.
pub const REFUSED: &str = "RUN-E022";
/// Headers that one request may have; the broker has the same bound.
const HEADERS_MAX: usize = 32;
/// Longest error text for a guest, in bytes.
const ERROR_BYTES_MAX: usize = 1024;

/// One outbound call, in the guest's words: nothing of it is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchAsk {
    /// Absolute URL.
    pub url: String,
    /// Method; GET when absent.
    #[serde(default)]
    pub method: Option<String>,
    /// Name of the credential to attach.
    #[serde(default)]
    pub credential: Option<String>,
    /// Headers, in the guest's order.
    #[serde(default, deserialize_with = "headers")]
    pub headers: Vec<(String, String)>,
    /// Body.
    #[serde(default)]
    pub body: Option<String>,
    /// A blob that is the body, in its place.
    #[serde(default)]
    pub body_ref: Option<String>,
    /// How the answer's body comes.
    #[serde(default)]
    pub response_mode: ResponseMode,
    /// Names of the answer's headers that are to come back; the broker has a list of those that may.
    #[serde(default, deserialize_with = "names")]
    pub response_headers: Vec<String>,
}

/// How an answer's body comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseMode {
    /// With the answer.
    #[default]
    Inline,
    /// As a blob, by its digest.
    Artifact,
}

impl FetchAsk {
    /// Reads a guest's request.
    ///
    /// # Errors
    /// A text for the guest that says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let malformed = |cause: &dyn fmt::Display| {
            format!(
                "the fetch request is malformed: {cause}; write {{\"url\", \"method\"?, \"credential\"?, \"headers\"?, \
                 \"body\" or \"body_ref\"?, \"response_mode\"?, \"response_headers\"?}}"
            )
        };
        let ask: Self = serde_json::from_slice(bytes).map_err(|cause| malformed(&cause))?;
        match &ask.body_ref {
            Some(_) if ask.body.is_some() => Err(malformed(&"it has both body and body_ref")),
            Some(text) if Digest::from_uri(text).is_err() => {
                Err(malformed(&"its body_ref is no cas://sha256:<64 lower-case hex digits>"))
            }
            Some(_) | None => Ok(ask),
        }
    }

    /// Whether its body or its answer is a blob.
    pub fn has_artifacts(&self) -> bool {
        self.body_ref.is_some() || self.response_mode == ResponseMode::Artifact
    }
}

/// The upstream answered. A body that is not UTF-8 goes as base64: never lossy. Lines of one header are joined with commas.
pub fn answered(status: u32, body: &[u8], lines: Vec<(String, String)>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answered<'a> {
        status: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        body: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        body_base64: Option<String>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    }
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in lines {
        headers.entry(name).and_modify(|line| *line = format!("{line}, {value}")).or_insert(value);
    }
    let text = std::str::from_utf8(body).ok();
    let body_base64 = if text.is_none() { Some(STANDARD.encode(body)) } else { None };
    to_json(&Answered { status, body: text, body_base64, headers })
}

/// The call was refused or failed.
pub fn refused(error: &str, code: Option<&str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Refused<'a> {
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<&'a str>,
    }
    let mut error = error.to_owned();
    proto::fault::cut(&mut error, ERROR_BYTES_MAX);
    to_json(&Refused { error: &error, code })
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings and numbers always serialise")
}

/// Names; absent and null are none.
fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default();
    if names.len() > HEADERS_MAX {
        return Err(D::Error::custom(format_args!("over {HEADERS_MAX} response_headers")));
    }
    Ok(names)
}

/// A map that refuses a name given twice, where a plain map would silently keep the last.
fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Headers;

    impl<'de> Visitor<'de> for Headers {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of header names to values")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut headers: Vec<(String, String)> = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, String>()? {
                if headers.len() == HEADERS_MAX {
                    return Err(A::Error::custom(format_args!("over {HEADERS_MAX} headers")));
                }
                if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                    return Err(A::Error::custom(format_args!("a header is given twice")));
                }
                headers.push((name, value));
            }
            Ok(headers)
        }
    }

    deserializer.deserialize_any(Headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_strictly() {
        let ask = FetchAsk::parse(br#"{"url":"https://x","headers":{"a":"b"},"body":"{}","credential":null}"#).unwrap();
        assert_eq!(ask.headers, [("a".to_owned(), "b".to_owned())]);
        assert_eq!((ask.method, ask.credential, ask.body.as_deref()), (None, None, Some("{}")));
        let uri = Digest::of("").to_uri();
        let both = format!(r#"{{"url":"https://x","body_ref":"{uri}","body":""}}"#);
        let wrong: [&[u8]; 10] = [
            both.as_bytes(),
            br#"{"url":"https://x","body_ref":"00"}"#,
            br#"{"url":"https://x","response_mode":"stream"}"#,
            b"",
            b"{}",
            br#"{"url":"https://x","urll":1}"#,
            br#"{"url":"https://x","url":"https://y"}"#,
            br#"{"url":"https://x","headers":{"a":"1","A":"2"}}"#,
            br#"{"url":"https://x","body":{}}"#,
            b"{\"url\":\"\xff\"}",
        ];
        for request in wrong {
            assert!(FetchAsk::parse(request).unwrap_err().contains("malformed"), "{}", request.escape_ascii());
        }
    }

    #[test]
    fn headers_come_back_by_their_names_and_lines_of_one_are_joined() {
        let named = |request: &str| FetchAsk::parse(request.as_bytes()).map(|ask| ask.response_headers);
        assert_eq!(named(r#"{"url":"https://x","response_headers":["etag"]}"#).unwrap(), ["etag"]);
        assert!(named(r#"{"url":"https://x","response_headers":null}"#).unwrap().is_empty());
        for odd in [r#""etag""#, "[1]", &format!("[{}\"x\"]", "\"x\",".repeat(HEADERS_MAX))] {
            assert!(named(&format!(r#"{{"url":"https://x","response_headers":{odd}}}"#)).is_err(), "{odd}");
        }
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let answer = answered(200, b"", vec![line("link", "a"), line("etag", "7"), line("link", "b")]);
        assert_eq!(answer, br#"{"status":200,"body":"","headers":{"etag":"7","link":"a, b"}}"#);
    }

    #[test]
    fn a_request_says_whether_blobs_go_along() {
        let has = |request: &str| FetchAsk::parse(request.as_bytes()).unwrap().has_artifacts();
        let body = format!(r#"{{"url":"https://x","body_ref":"{}"}}"#, Digest::of("").to_uri());
        assert!(has(&body) && has(r#"{"url":"https://x","response_mode":"artifact"}"#));
        assert!(!has(r#"{"url":"https://x"}"#) && !has(r#"{"url":"https://x","response_mode":"inline"}"#));
    }

    #[test]
    fn bytes_that_are_not_text_go_as_base64() {
        assert_eq!(answered(200, b"a\"b", vec![]), br#"{"status":200,"body":"a\"b"}"#);
        assert_eq!(answered(500, b"\xff\x00", vec![]), br#"{"status":500,"body_base64":"/wA="}"#);
        assert_eq!(refused("no", Some(REFUSED)), br#"{"error":"no","code":"RUN-E022"}"#);
        assert_eq!(refused("down", None), br#"{"error":"down"}"#);
    }
}
