//! Why the service itself does not do what it is asked: a variant for each thing that a caller can do about it.

use std::time::Duration;

use content_digest::Digest;
use proto::fault::{Fault, Reason};

/// When trying again makes sense, should all slots be taken.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// A refusal or a fault, on its way to a status.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A request field is missing, malformed or over its bound.
    #[error("{field}: {text}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong and what to write.
        text: String,
    },
    /// The messages of a stream do not follow each other as they must.
    #[error("{0}")]
    Protocol(String),
    /// The code is not here.
    #[error("the sandbox does not hold {}: send it with PutModule and call again", .0.to_uri())]
    ModuleNotFound(Digest),
    /// The bytes are not what they were called.
    #[error("the bytes hash to {}, not to {}", found.to_uri(), named.to_uri())]
    DigestMismatch {
        /// What was named.
        named: Digest,
        /// What they hash to.
        found: Digest,
    },
    /// The upload is over the cap.
    #[error("the module has more than the {0} bytes that a module may have (--max-module-bytes)")]
    ModuleTooLarge(u64),
    /// Slots and queue are taken.
    #[error("{0}; try again later or on another replica")]
    Busy(String),
    /// Native execution is off.
    #[error("this sandbox executes no native blobs: start it with --allow-native to allow them")]
    NativeDisabled,
    /// A fault of the service.
    #[error("{0}")]
    Internal(String),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::Field { field, text: wrong } => Self::new(Reason::InvalidArgument, text).field(field, wrong),
            Refusal::Protocol(_) => Self::new(Reason::InvalidArgument, text),
            Refusal::ModuleNotFound(digest) => Self::new(Reason::ModuleNotFound, text).with("digest", digest.to_uri()),
            Refusal::DigestMismatch { named, found } => {
                Self::new(Reason::DigestMismatch, text).with("named", named.to_uri()).with("found", found.to_uri())
            }
            Refusal::ModuleTooLarge(_) => Self::new(Reason::ModuleRefused, text),
            Refusal::Busy(_) => Self::new(Reason::Busy, text).retry_after(RETRY_AFTER),
            Refusal::NativeDisabled => Self::new(Reason::NativeDisabled, text),
            Refusal::Internal(cause) => Self::internal(&cause),
        }
    }
}
