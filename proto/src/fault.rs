//! What went wrong, as a caller is told: a reason from the registry, a text that says what to do, and typed details.

mod registry;

use std::{fmt, time::Duration};

use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _, pb};

pub use crate::error::v1::Reason;
use crate::serve::request_id;

/// Longest message that leaves a service, in bytes; a longer one is cut.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// The service that answers: `ErrorInfo.domain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// `areev.runner`
    Runner,
    /// `areev.sandbox`
    Sandbox,
    /// `areev.broker`
    Broker,
}

/// A refusal or failure on its way to the caller. Its text never holds a secret, a token or a resolved address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    reason: Reason,
    text: String,
    metadata: Vec<(String, String)>,
    violations: Vec<(String, String)>,
    retry_after: Option<Duration>,
}

impl Fault {
    /// Begins a fault. `text` names the offending value and what to do, without the stable code: that is put before it.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), metadata: Vec::new(), violations: Vec::new(), retry_after: None }
    }

    /// A fault of the service itself: the cause goes to the log, with the request id, and to nobody else.
    pub fn internal(cause: &dyn fmt::Display) -> Self {
        let id = request_id().unwrap_or_default();
        tracing::error!(request_id = id, %cause, "internal error");
        Self::new(Reason::Internal, "internal error").with("request_id", id)
    }

    /// Adds a fact for machines (`ErrorInfo.metadata`).
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// Names a request field and what is wrong with it (`BadRequest`).
    #[must_use]
    pub fn field(mut self, field: &str, description: impl Into<String>) -> Self {
        self.violations.push((field.to_owned(), description.into()));
        self
    }

    /// Says when trying again makes sense (`RetryInfo`).
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// The registry's entry.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The text without its code.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The whole message: `RUN-E018: …`, or the text alone where the reason has no stable code.
    pub fn message(&self) -> String {
        let mut message = match self.reason.code() {
            Some(code) => format!("{code}: {}", self.text),
            None if self.reason == Reason::Internal => {
                let id = self.metadata.iter().find(|(key, _)| key == "request_id").map_or("", |(_, id)| id);
                format!("internal error (request id {id})")
            }
            None => self.text.clone(),
        };
        cut(&mut message, MESSAGE_BYTES_MAX);
        message
    }

    /// The gRPC status, with its details.
    pub fn into_status(self, domain: Domain) -> Status {
        let code = self.reason.grpc();
        let message = self.message();
        let mut details = ErrorDetails::new();
        let mut metadata: std::collections::HashMap<String, String> = self.metadata.into_iter().collect();
        if let Some(stable) = self.reason.code() {
            metadata.insert("code".to_owned(), stable.to_owned());
        }
        details.set_error_info(self.reason.name(), domain.as_str(), metadata);
        for (field, description) in self.violations {
            details.add_bad_request_violation(field, description);
        }
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        Status::with_error_details(code, message, details)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Fault {}

impl Domain {
    /// The domain's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runner => "areev.runner",
            Self::Sandbox => "areev.sandbox",
            Self::Broker => "areev.broker",
        }
    }
}

/// The registry's entry that another service's status carries, if it carries one.
pub fn reason_of(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info()?;
    Reason::from_str_name(&format!("REASON_{}", info.reason))
}

/// When the other service says that trying again makes sense.
pub fn retry_after_of(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// Adds one more message to a status's details, such as an audit record.
pub fn attach(status: Status, type_name: &str, message: &impl prost::Message) -> Status {
    let mut inner = pb::Status::decode(status.details()).unwrap_or_default();
    inner.code = status.code() as i32;
    inner.message = status.message().to_owned();
    inner.details.push(prost_types::Any {
        type_url: format!("type.googleapis.com/{type_name}"),
        value: message.encode_to_vec(),
    });
    Status::with_details_and_metadata(
        status.code(),
        status.message(),
        inner.encode_to_vec().into(),
        status.metadata().clone(),
    )
}

/// Finds a message of this type in a status's details.
pub fn attached<M: prost::Message + Default>(status: &Status, type_name: &str) -> Option<M> {
    let inner = pb::Status::decode(status.details()).ok()?;
    let url = format!("type.googleapis.com/{type_name}");
    let any = inner.details.iter().find(|any| any.type_url == url)?;
    M::decode(any.value.as_slice()).ok()
}

/// How loud a gRPC code is in the log: `error` for the service's own faults, `warn` for its surroundings', else `info`.
pub fn level_of(code: Code) -> tracing::Level {
    match code {
        Code::Internal | Code::DataLoss | Code::Unknown => tracing::Level::ERROR,
        Code::Unavailable => tracing::Level::WARN,
        _ => tracing::Level::INFO,
    }
}

/// Cuts a text to at most `bytes`, at a character's border.
pub fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let mut end = bytes.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_code_reason_domain_field_and_delay() {
        let status = Fault::new(Reason::TooManyRuns, "100 runs are active, the cap")
            .with("cap", "100")
            .field("run_id", "try again")
            .retry_after(Duration::from_secs(2))
            .into_status(Domain::Runner);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "RUN-E027: 100 runs are active, the cap");
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("TOO_MANY_RUNS", "areev.runner"));
        assert_eq!((info.metadata["code"].as_str(), info.metadata["cap"].as_str()), ("RUN-E027", "100"));
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "run_id");
        assert_eq!(reason_of(&status), Some(Reason::TooManyRuns));
        assert_eq!(retry_after_of(&status), Some(Duration::from_secs(2)));
    }

    #[test]
    fn an_internal_fault_tells_the_caller_nothing_of_its_cause() {
        let status = Fault::internal(&"the secret is hunter2").into_status(Domain::Broker);
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().starts_with("internal error"), "{}", status.message());
        assert!(!format!("{status:?}").contains("hunter2"));
    }

    #[test]
    fn a_message_rides_along_in_the_details() {
        let record = crate::broker::v1::CallRecord { host: "api.example.com".into(), ..Default::default() };
        let status = Fault::new(Reason::EgressRefused, "no").into_status(Domain::Broker);
        let status = attach(status, "areev.broker.v1.CallRecord", &record);
        assert_eq!(attached::<crate::broker::v1::CallRecord>(&status, "areev.broker.v1.CallRecord"), Some(record));
        assert_eq!(reason_of(&status), Some(Reason::EgressRefused));
        assert_eq!(status.code(), Code::PermissionDenied);
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let status = Fault::new(Reason::BadPlan, "é".repeat(5000)).into_status(Domain::Runner);
        assert!(status.message().len() <= MESSAGE_BYTES_MAX);
        assert!(status.message().ends_with('…'));
    }
}
