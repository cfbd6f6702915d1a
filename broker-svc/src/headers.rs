//! Which headers may cross, in either direction.

use http::{HeaderName, HeaderValue};

use crate::refusal::{Refusal, Why, quote};

/// Most request headers of one call.
pub const HEADERS_MAX: usize = 32;
/// Most bytes of request headers, names and values.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Headers that the broker sets or that speak to what lies between: framing, routing, identity, cookies, method overrides.
const BROKERS: &[&str] = &[
    "accept-encoding",
    "alt-used",
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "set-cookie",
    "set-cookie2",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-method",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];
/// And every header that begins so.
const BROKERS_PREFIXES: &[&str] = &["proxy-", "x-forwarded-", "x-areev-", "x-amz-security-", "sec-"];

/// What code without a declaration may set.
const HARMLESS: &[&str] = &[
    "accept",
    "accept-language",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "prefer",
    "range",
    "user-agent",
];

/// Response headers that a caller may ask for.
pub const RETURNED: &[&str] = &[
    "content-language",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-request-id",
];

/// Whether the header belongs to the broker, whatever a declaration says. The name is in lower case.
pub fn is_brokers(name: &str) -> bool {
    BROKERS.contains(&name) || BROKERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether code without a declaration may set the header. The name is in lower case.
pub fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name)
}

/// Headers of a request in the shape in which they can be sent, each once, and the body's type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    /// Everything but the content type.
    pub lines: Vec<(HeaderName, HeaderValue)>,
    /// The type of the body.
    pub content_type: Option<HeaderValue>,
}

impl RequestHeaders {
    /// Checks what a caller gave. `content_type` is the request's own field; empty where the caller left it out.
    pub fn check(given: &[(String, String)], content_type: &str) -> Result<Self, Refusal> {
        let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
        if given.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            return Err(invalid(format!("more than {HEADERS_MAX} headers or {HEADER_BYTES_MAX} bytes of them")));
        }
        let mut checked = Self::default();
        if !content_type.is_empty() {
            checked.content_type = Some(sound_value("content-type", content_type)?);
        }
        for (name, text) in given {
            let parsed = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| invalid(format!("{} is no header name", quote(name))))?;
            let value = sound_value(parsed.as_str(), text)?;
            let twice = if parsed == http::header::CONTENT_TYPE {
                checked.content_type.replace(value).is_some()
            } else {
                let twice = checked.lines.iter().any(|(seen, _)| *seen == parsed);
                checked.lines.push((parsed, value));
                twice
            };
            if twice {
                return Err(invalid(format!("header {} is given twice", quote(name))));
            }
        }
        Ok(checked)
    }

    /// The names, for the decision.
    pub fn names(&self) -> Vec<&str> {
        self.lines.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Checks the names of response headers that a caller asks for.
pub fn check_returned(asked: &[String]) -> Result<Vec<HeaderName>, Refusal> {
    if asked.len() > HEADERS_MAX {
        return Err(invalid(format!("more than {HEADERS_MAX} response headers are asked for")));
    }
    let mut names = Vec::new();
    for name in asked {
        let lower = name.to_ascii_lowercase();
        let Some(known) = RETURNED.iter().find(|returned| **returned == lower) else {
            let text = format!("response header {} is never returned: ask for {}", quote(name), RETURNED.join(", "));
            return Err(Refusal::new(Why::ResponseHeaderNotAllowed, text));
        };
        let known = HeaderName::from_static(known);
        if !names.contains(&known) {
            names.push(known);
        }
    }
    Ok(names)
}

fn sound_value(name: &str, text: &str) -> Result<HeaderValue, Refusal> {
    let sound = text.bytes().all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte));
    HeaderValue::from_str(text)
        .ok()
        .filter(|_| sound)
        .ok_or_else(|| invalid(format!("header {} has a value with control or non-ASCII characters", quote(name))))
}

fn invalid(text: String) -> Refusal {
    Refusal::new(Why::InvalidHeader, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str, value: &str) -> Why {
        RequestHeaders::check(&[(name.to_owned(), value.to_owned())], "").unwrap_err().why
    }

    #[test]
    fn names_and_values_that_could_split_a_request_are_refused() {
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a: b", "x"),
            ("a\r\nb", "x"),
            (":authority", "x"),
            ("authorization ", "x"),
            ("é", "x"),
            ("a", "x\r\ny: z"),
            ("a", "x\ny"),
            ("a", "x\0"),
            ("a", "é"),
            ("a", "\u{7f}"),
        ] {
            assert_eq!(why(name, value), Why::InvalidHeader, "{name:?} {value:?}");
        }
    }

    #[test]
    fn a_header_is_given_once() {
        let twice = [("Accept".to_owned(), "a".to_owned()), ("accept".to_owned(), "b".to_owned())];
        assert!(RequestHeaders::check(&twice, "").is_err());
        let both = [("Content-Type".to_owned(), "text/plain".to_owned())];
        assert!(RequestHeaders::check(&both, "text/html").is_err());
        assert_eq!(RequestHeaders::check(&both, "").unwrap().content_type.unwrap(), "text/plain");
    }

    #[test]
    fn lists_are_in_lower_case_and_do_not_overlap() {
        for name in BROKERS.iter().chain(BROKERS_PREFIXES).chain(HARMLESS).chain(RETURNED) {
            assert_eq!(*name, name.to_ascii_lowercase());
        }
        assert!(HARMLESS.iter().all(|name| !is_brokers(name)));
        assert!(check_returned(&["ETag".into(), "set-cookie".into()]).is_err());
    }
}
