//! Calls to the outside, by way of the credential broker: it decides, attaches the secret, and hands back a bounded answer.

use alloc::{borrow::ToOwned as _, collections::BTreeMap, format, string::String, vec::Vec};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{CallError, abi, base64};

/// The code of a refusal; an error without it is a failure on the way.
const REFUSED: &str = "RUN-E022";

/// One call. The tool names a credential; it never sees the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response_mode: Option<ResponseMode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    response_headers: Vec<String>,
}

/// How an answer's body comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResponseMode {
    /// With the answer.
    Inline,
    /// As a blob of the runner's catalogue, by its digest.
    Artifact,
}

/// What an upstream answered, with its body as a blob: it is in the runner's catalogue, and never was in the tool's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The HTTP status.
    pub status: u16,
    /// The blob, `cas://sha256:<64 lower-case hex digits>`: for [`Request::body_ref`], for [`crate::blob_get`], or for the next node.
    pub body_ref: String,
    /// Its length in bytes; at most what the definition's `artifacts` and the grant allow.
    pub size_bytes: u64,
    /// The headers that were asked for and came, by their names in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What an upstream answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, at most as long as the definition's `max_response_bytes`.
    pub body: Vec<u8>,
    /// The headers that were asked for and came, by their names in lower case; several lines of one are joined with commas.
    pub headers: BTreeMap<String, String>,
}

/// A reply, in the host's words.
#[derive(Deserialize)]
pub(crate) struct Reply {
    #[serde(default)]
    status: u16,
    body: Option<String>,
    body_base64: Option<String>,
    body_ref: Option<String>,
    size_bytes: Option<u64>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    error: Option<String>,
    code: Option<String>,
}

impl Request {
    /// A call with the method GET.
    pub fn get(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            method: None,
            credential: None,
            headers: BTreeMap::new(),
            body: None,
            body_ref: None,
            response_mode: None,
            response_headers: Vec::new(),
        }
    }

    /// A call with the method POST.
    pub fn post(url: &str) -> Self {
        Self::get(url).method("POST")
    }

    /// With a method: GET, HEAD, POST, PUT, PATCH or DELETE.
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        Self { method: Some(method.to_owned()), ..self }
    }

    /// With a credential of the broker, by its name.
    #[must_use]
    pub fn credential(self, name: &str) -> Self {
        Self { credential: Some(name.to_owned()), ..self }
    }

    /// With a header; those that carry credentials or frame the message are the broker's alone.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Asks for a header of the answer: `content-language`, `content-range`, `content-type`, `etag`, `last-modified`, `link`,
    /// `location`, `retry-after` or `x-request-id`; a call that asks for another one is refused.
    #[must_use]
    pub fn response_header(mut self, name: &str) -> Self {
        self.response_headers.push(name.to_owned());
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(self, body: impl Into<String>) -> Self {
        Self { body: Some(body.into()), body_ref: None, ..self }
    }

    /// With a blob of the runner's catalogue as its body, by its digest: the bytes never are in the tool's memory. The definition
    /// has to declare that it reads blobs, and a ceiling for such bodies.
    #[must_use]
    pub fn body_ref(self, digest: &str) -> Self {
        Self { body_ref: Some(digest.to_owned()), body: None, ..self }
    }

    /// With a body of JSON, and the header that says so.
    ///
    /// # Errors
    /// The value is no JSON.
    pub fn json(self, body: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.header("content-type", "application/json").body(serde_json::to_string(body)?))
    }

    /// Makes the call and waits for its answer, whatever its status is.
    ///
    /// # Errors
    /// There is no answer: [`CallError`] says why.
    pub fn send(&self) -> Result<Answer, CallError> {
        let reply = self.reply()?;
        reply.answer()
    }

    /// Makes the call and has its answer's body stored, whatever its status is. The definition has to declare a ceiling for such
    /// answers.
    ///
    /// # Errors
    /// There is no answer, or it is over its ceiling: [`CallError`] says why.
    pub fn send_for_artifact(mut self) -> Result<Artifact, CallError> {
        self.response_mode = Some(ResponseMode::Artifact);
        self.reply()?.artifact()
    }

    fn reply(&self) -> Result<Reply, CallError> {
        let request = serde_json::to_vec(self).map_err(|cause| CallError::Malformed(format!("{cause}")))?;
        Reply::read(&abi::fetch(&request).ok_or(CallError::NoReply)?)
    }
}

impl Answer {
    /// Whether the status is from 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as text.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&self) -> Result<&str, core::str::Utf8Error> {
        core::str::from_utf8(&self.body)
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// It is none, or not of this type.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }
}

impl Reply {
    /// Reads a reply; one that tells of an error is an error.
    pub(crate) fn read(reply: &[u8]) -> Result<Self, CallError> {
        let reply: Self = serde_json::from_slice(reply).map_err(|cause| CallError::Malformed(format!("{cause}")))?;
        match reply.error {
            Some(text) if reply.code.as_deref() == Some(REFUSED) => Err(CallError::Refused(text)),
            Some(text) => Err(CallError::Failed(text)),
            None => Ok(reply),
        }
    }

    fn answer(mut self) -> Result<Answer, CallError> {
        let headers = core::mem::take(&mut self.headers);
        Ok(Answer { status: self.status, headers, body: self.bytes()? })
    }

    /// The blob that its body became.
    fn artifact(self) -> Result<Artifact, CallError> {
        match (self.body_ref, self.size_bytes) {
            (Some(body_ref), Some(size_bytes)) => {
                Ok(Artifact { status: self.status, body_ref, size_bytes, headers: self.headers })
            }
            _ => Err(CallError::Malformed("it names no blob".to_owned())),
        }
    }

    /// Its bytes, which go as text when they are text.
    pub(crate) fn bytes(self) -> Result<Vec<u8>, CallError> {
        match (self.body, self.body_base64) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(encoded)) => {
                base64::decode(&encoded).ok_or_else(|| CallError::Malformed("its base64 is none".to_owned()))
            }
            (None, None) | (Some(_), Some(_)) => Err(CallError::Malformed("it has no one body".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_in_the_hosts_words_and_nothing_is_written_that_was_not_said() {
        let written = |request: &Request| serde_json::to_string(request).unwrap();
        assert_eq!(written(&Request::get("https://x")), r#"{"url":"https://x"}"#);
        let full = Request::post("https://x").credential("bank").json(&["a"]).unwrap();
        let expected = r#"{"url":"https://x","method":"POST","credential":"bank","headers":{"content-type":"application/json"},"body":"[\"a\"]"}"#;
        assert_eq!(written(&full), expected);
        assert_eq!(serde_json::from_str::<Request>(expected).unwrap(), full);
    }

    #[test]
    fn a_reply_is_an_answer_a_refusal_or_a_failure() {
        let body = |text: &str| Reply::read(text.as_bytes()).and_then(Reply::bytes);
        assert_eq!(body(r#"{"status":200,"body":"a\"b"}"#).unwrap(), b"a\"b");
        assert_eq!(body(r#"{"status":200,"body_base64":"/wA="}"#).unwrap(), b"\xff\x00");
        let refused = body(r#"{"error":"host x is not allowed","code":"RUN-E022"}"#);
        assert_eq!(refused, Err(CallError::Refused("host x is not allowed".to_owned())));
        assert_eq!(body(r#"{"error":"down"}"#), Err(CallError::Failed("down".to_owned())));
        for odd in ["", "{}", r#"{"status":200}"#, r#"{"status":200,"body_base64":"?"}"#] {
            assert!(matches!(body(odd), Err(CallError::Malformed(_))), "{odd}");
        }
    }

    #[test]
    fn headers_that_were_asked_for_come_with_the_answer() {
        let asked = Request::get("https://x").response_header("etag");
        assert_eq!(serde_json::to_string(&asked).unwrap(), r#"{"url":"https://x","response_headers":["etag"]}"#);
        let answer = |text: &str| Reply::read(text.as_bytes()).and_then(Reply::answer).unwrap();
        let told = answer(r#"{"status":304,"body":"","headers":{"etag":"7"}}"#);
        assert_eq!((told.status, told.headers["etag"].as_str()), (304, "7"));
        assert!(answer(r#"{"status":200,"body":""}"#).headers.is_empty());
    }

    #[test]
    fn blobs_go_by_their_digests() {
        let full = Request::get("https://x").body("text").body_ref("cas://sha256:00");
        assert_eq!(serde_json::to_string(&full).unwrap(), r#"{"url":"https://x","body_ref":"cas://sha256:00"}"#);
        let asked = Request { response_mode: Some(ResponseMode::Artifact), ..Request::get("https://x") };
        assert_eq!(serde_json::to_string(&asked).unwrap(), r#"{"url":"https://x","response_mode":"artifact"}"#);
        let artifact = |text: &str| Reply::read(text.as_bytes()).and_then(Reply::artifact);
        let stored = artifact(r#"{"status":200,"body_ref":"cas://sha256:00","size_bytes":7}"#).unwrap();
        assert_eq!((stored.status, stored.body_ref.as_str(), stored.size_bytes), (200, "cas://sha256:00", 7));
        assert!(matches!(artifact(r#"{"status":200,"body":""}"#), Err(CallError::Malformed(_))));
        assert!(matches!(artifact(r#"{"error":"no","code":"RUN-E022"}"#), Err(CallError::Refused(_))));
    }

    #[test]
    fn off_wasm_there_is_no_reply() {
        assert_eq!(Request::get("https://x").send_for_artifact(), Err(CallError::NoReply));
        assert_eq!(Request::get("https://x").send(), Err(CallError::NoReply));
    }
}
