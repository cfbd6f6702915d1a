//! A refusal as a caller sees it: the gRPC code, the stable code, the reason, the text.

use std::fmt::Debug;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// What a status says, taken apart.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The gRPC code.
    pub grpc: Code,
    /// The stable code that the text begins with; empty without one.
    pub code: String,
    /// The reason's name; empty without one.
    pub reason: String,
    /// The domain, such as `areev.runner`.
    pub domain: String,
    /// The whole message.
    pub text: String,
    /// Whether the status says when to try again.
    pub retry: bool,
    /// The fields that are at fault.
    pub fields: Vec<String>,
}

impl Refusal {
    /// Takes a status apart.
    pub fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let code = status.message().split_once(": ").map_or("", |(code, _)| code);
        let stable = info.and_then(|info| info.metadata.get("code")).map_or("", String::as_str);
        let violations = details.bad_request().map(|bad| bad.field_violations.clone()).unwrap_or_default();
        Self {
            grpc: status.code(),
            code: if code == stable { code.to_owned() } else { String::new() },
            reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
            domain: info.map(|info| info.domain.clone()).unwrap_or_default(),
            text: status.message().to_owned(),
            retry: details.retry_info().is_some(),
            fields: violations.into_iter().map(|violation| violation.field).collect(),
        }
    }

    /// The refusal that a call must have answered with.
    #[track_caller]
    pub fn expected<T: Debug>(answer: Result<T, Status>) -> Self {
        match answer {
            Ok(answer) => panic!("a refusal was expected, the answer is {answer:?}"),
            Err(status) => Self::of(&status),
        }
    }

    /// Asserts the stable code and every given part of the text.
    #[track_caller]
    pub fn says(&self, code: &str, parts: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.text.contains(part), "{part:?} is not in {:?}", self.text);
        }
        self
    }

    /// Asserts the gRPC code and the reason.
    #[track_caller]
    pub fn is(&self, grpc: Code, reason: &str) -> &Self {
        assert_eq!((self.grpc, self.reason.as_str()), (grpc, reason), "{self:?}");
        self
    }
}
