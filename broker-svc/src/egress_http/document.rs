//! The HTTP door's JSON documents.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};

use crate::{
    broker::{Done, Request},
    headers::HEADERS_MAX,
    refusal::{Refusal, Why, cut, quote},
};

/// The stable code of every refusal by the broker.
const CODE: &str = "RUN-E022";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    url: String,
    method: Option<String>,
    credential: Option<String>,
    headers: Option<Lines>,
    body: Option<String>,
    body_base64: Option<String>,
    content_type: Option<String>,
    response_headers: Option<Vec<String>>,
    response_mode: Option<String>,
    body_ref: Option<serde::de::IgnoredAny>,
}

/// A JSON object as a list, so that a name given twice is seen.
struct Lines(Vec<(String, String)>);

#[derive(Serialize)]
struct Answer<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<std::collections::BTreeMap<&'a str, String>>,
}

#[derive(Serialize)]
struct Error<'a> {
    error: &'a str,
    code: &'a str,
}

/// Reads a call.
pub fn read(bytes: &[u8]) -> Result<Request, Refusal> {
    let malformed = |text: String| Refusal::new(Why::MalformedRequest, text);
    let call: Call = serde_json::from_slice(bytes).map_err(|cause| {
        malformed(format!("the request is not the JSON of a call: {}", cut(&cause.to_string(), 256)))
    })?;
    let artifact = |what: &str| {
        let text = format!(
            "{what} is for modules of wasm32-areev-io: a call by the egress port has no way to the blobs of the catalogue"
        );
        Refusal::new(Why::ArtifactNotAllowed, text)
    };
    match call.response_mode.as_deref() {
        None | Some("inline") => {}
        Some("artifact") => return Err(artifact("response_mode \"artifact\"")),
        Some(other) => {
            return Err(malformed(format!("response_mode {}: write \"inline\" or leave it out", quote(other))));
        }
    }
    if call.body_ref.is_some() {
        return Err(artifact("body_ref"));
    }
    let body = match (call.body, call.body_base64) {
        (Some(_), Some(_)) => return Err(malformed("give body or body_base64, not both".to_owned())),
        (Some(text), None) => Bytes::from(text),
        (None, Some(text)) => {
            let decoded = STANDARD.decode(text.as_bytes());
            Bytes::from(decoded.map_err(|_| malformed("body_base64 is no base64 with padding".to_owned()))?)
        }
        (None, None) => Bytes::new(),
    };
    Ok(Request {
        url: call.url,
        method: call.method.unwrap_or_default(),
        credential: call.credential,
        headers: call.headers.map_or_else(Vec::new, |lines| lines.0),
        body,
        content_type: call.content_type.unwrap_or_default(),
        response_headers: call.response_headers.unwrap_or_default(),
        ordinal: None,
        ..Request::default()
    })
}

/// Writes an answer. Lines of one header are joined with commas.
pub fn answer(done: &Done) -> Vec<u8> {
    let text = std::str::from_utf8(&done.body).ok();
    let mut headers = std::collections::BTreeMap::<&str, String>::new();
    for (name, value) in &done.headers {
        let line = headers.entry(name).or_default();
        if !line.is_empty() {
            line.push_str(", ");
        }
        line.push_str(value);
    }
    let answer = Answer {
        status: done.status,
        body: text,
        body_base64: if text.is_none() { Some(STANDARD.encode(&done.body)) } else { None },
        headers: if headers.is_empty() { None } else { Some(headers) },
    };
    serde_json::to_vec(&answer).expect("texts and numbers serialise")
}

/// Writes a refusal.
pub fn error(text: &str) -> Vec<u8> {
    serde_json::to_vec(&Error { error: text, code: CODE }).expect("texts serialise")
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Lines;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lines, A::Error> {
                let mut lines = Vec::new();
                while let Some(line) = map.next_entry()? {
                    if lines.len() == HEADERS_MAX {
                        return Err(serde::de::Error::custom(format!("more than {HEADERS_MAX} headers")));
                    }
                    lines.push(line);
                }
                Ok(Lines(lines))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_calls_are_refused() {
        for text in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"url":7}"#,
            r#"{"url":"x","url":"y"}"#,
            r#"{"url":"x","crediential":"y"}"#,
            r#"{"url":"x","body":"a","body_base64":"YQ=="}"#,
            r#"{"url":"x","body_base64":"?"}"#,
            r#"{"url":"x","headers":[]}"#,
            r#"{"url":"x","headers":{"a":1}}"#,
            r#"{"url":"x"} {}"#,
        ] {
            assert_eq!(read(text.as_bytes()).err().map(|refusal| refusal.why), Some(Why::MalformedRequest), "{text}");
        }
        let deep = format!(r#"{{"url":{}"#, "[".repeat(100_000));
        assert!(read(deep.as_bytes()).is_err());
    }

    #[test]
    fn artifacts_are_refused_by_name_and_the_inline_mode_may_be_written_out() {
        for (text, why) in [
            (r#"{"url":"x","response_mode":"artifact"}"#, Some(Why::ArtifactNotAllowed)),
            (r#"{"url":"x","body_ref":"cas://sha256:00"}"#, Some(Why::ArtifactNotAllowed)),
            (r#"{"url":"x","response_mode":"stream"}"#, Some(Why::MalformedRequest)),
            (r#"{"url":"x","response_mode":"inline"}"#, None),
        ] {
            assert_eq!(read(text.as_bytes()).err().map(|refusal| refusal.why), why, "{text}");
        }
    }

    #[test]
    fn a_header_given_twice_stays_visible() {
        let call = read(br#"{"url":"x","headers":{"a":"1","a":"2"},"body_base64":"AP8="}"#).ok().unwrap();
        assert_eq!(call.headers.len(), 2);
        assert_eq!(&call.body[..], [0, 255]);
    }
}
