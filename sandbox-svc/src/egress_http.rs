//! The egress door over HTTP, as the one-shot form reaches it: `POST` with the effect's token in a header.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::header::HeaderValue;
use serde::Deserialize;

use crate::{
    fetch::FetchAsk,
    outbound::{Answer, Bounds, Token},
};

/// The header of the token.
const TOKEN_HEADER: &str = "x-areev-egress-token";
/// What a reply has beside an answer's body, and how much longer JSON can make one byte of it.
const ENVELOPE_BYTES: u64 = 16 * 1024;
const ESCAPE_FACTOR: u64 = 6;

/// The HTTP door.
pub struct EgressHttp {
    client: reqwest::Client,
    url: reqwest::Url,
    token: HeaderValue,
}

/// The door cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The URL does not parse. It is not told: it may have a secret in it.
    #[error("AREEV_EGRESS_URL is no http:// or https:// URL")]
    Url,
    /// The token is none that a header can carry.
    #[error("AREEV_EGRESS_TOKEN has characters that a header cannot carry")]
    Token,
    /// The client cannot be made.
    #[error("cannot make an HTTP client: {0}")]
    Client(reqwest::Error),
}

impl EgressHttp {
    /// Makes the client; connects with the first call.
    pub fn new(url: &str, token: &Token) -> Result<Self, EgressError> {
        let mut token = HeaderValue::from_str(token.reveal()).map_err(|_| EgressError::Token)?;
        token.set_sensitive(true);
        let parsed: reqwest::Url = url.parse().map_err(|_| EgressError::Url)?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(EgressError::Url);
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(EgressError::Client)?;
        Ok(Self { client, url: parsed, token })
    }

    /// Makes one call; every end of it is an answer.
    pub async fn fetch(&self, ask: FetchAsk, bounds: &Bounds) -> Answer {
        let timeout = bounds.ends_at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let sent = self
            .client
            .post(self.url.clone())
            .header(TOKEN_HEADER, self.token.clone())
            .header("content-type", "application/json")
            .timeout(timeout)
            .body(request(&ask))
            .send();
        let unreachable = |_| Answer::refused("the egress door cannot be reached or broke off its answer", None);
        let max = bounds.response_bytes * ESCAPE_FACTOR + ENVELOPE_BYTES;
        match sent.await {
            Ok(response) => match bounded(response, max).await {
                Ok(Some(body)) => hand_on(&body, bounds),
                Ok(None) => Answer::too_large(max, bounds.response_bytes),
                Err(cause) => unreachable(cause),
            },
            Err(cause) => unreachable(cause),
        }
    }
}

fn request(ask: &FetchAsk) -> Vec<u8> {
    let mut request = serde_json::Map::new();
    request.insert("url".to_owned(), ask.url.as_str().into());
    let optional = [("method", &ask.method), ("credential", &ask.credential), ("body", &ask.body)];
    for (name, value) in optional {
        if let Some(value) = value {
            request.insert(name.to_owned(), value.as_str().into());
        }
    }
    if !ask.headers.is_empty() {
        let headers = ask.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        request.insert("headers".to_owned(), serde_json::Value::Object(headers));
    }
    if !ask.response_headers.is_empty() {
        request.insert("response_headers".to_owned(), ask.response_headers.clone().into());
    }
    serde_json::to_vec(&request).expect("strings always serialise")
}

async fn bounded(mut response: reqwest::Response, max: u64) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if (body.len() + chunk.len()) as u64 > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// The door already speaks the guest's words; only what has their shape is handed on.
fn hand_on(body: &[u8], bounds: &Bounds) -> Answer {
    #[derive(Deserialize)]
    struct Reply {
        status: Option<u32>,
        body: Option<String>,
        body_base64: Option<String>,
        error: Option<String>,
    }
    let Ok(reply) = serde_json::from_slice::<Reply>(body) else {
        return Answer::refused("the egress door's answer is not JSON of the agreed shape", None);
    };
    let text = reply.body.as_ref().map_or(0, String::len);
    let decoded = match reply.body_base64.map(|text| STANDARD.decode(text)) {
        Some(Ok(decoded)) => decoded.len(),
        Some(Err(_)) => return Answer::refused("the egress door's answer is not JSON of the agreed shape", None),
        None => 0,
    };
    let bytes = (text + decoded) as u64;
    if bytes > bounds.response_bytes {
        return Answer::too_large(bytes, bounds.response_bytes);
    }
    if reply.status.is_none() && reply.error.is_none() {
        return Answer::refused("the egress door's answer has neither status nor error", None);
    }
    let text = String::from_utf8_lossy(body);
    Answer { reply: crate::json::compact(&text).into_bytes(), record: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(response_bytes: u64) -> Bounds {
        Bounds { ordinal: 0, response_bytes, ends_at: Instant::now() + Duration::from_secs(5) }
    }

    #[test]
    fn only_answers_of_the_agreed_shape_reach_the_guest() {
        assert_eq!(
            hand_on(b"{ \"status\": 200, \"body\": \"ab\" }", &bounds(2)).reply,
            br#"{"status":200,"body":"ab"}"#
        );
        let text = |body: &[u8], max| String::from_utf8(hand_on(body, &bounds(max)).reply).unwrap();
        assert!(text(br#"{"status":200,"body":"abc"}"#, 2).contains("over the 2"));
        // "YWJj" is "abc": the bytes count, not how they are written.
        let encoded = r#"{"status":200,"body_base64":"YWJj"}"#;
        assert_eq!(text(encoded.as_bytes(), 3), encoded);
        assert!(text(encoded.as_bytes(), 2).contains("over the 2"));
        assert!(text(br#"{"status":200,"body_base64":"!!"}"#, 9).contains("not JSON"));
        assert!(text(b"<html>", 9).contains("not JSON"));
        assert!(text(b"{}", 9).contains("neither"));
    }

    #[test]
    fn only_what_the_guest_said_is_sent() {
        let ask = FetchAsk::parse(br#"{"url":"https://x","headers":{"a":"b"}}"#).unwrap();
        assert_eq!(request(&ask), br#"{"headers":{"a":"b"},"url":"https://x"}"#);
        let ask = FetchAsk::parse(br#"{"url":"https://x","response_headers":["etag"]}"#).unwrap();
        assert_eq!(request(&ask), br#"{"response_headers":["etag"],"url":"https://x"}"#);
        let fault = crate::fetch::refused("x", None);
        assert!(hand_on(&fault, &bounds(1)).reply == fault);
    }
}
