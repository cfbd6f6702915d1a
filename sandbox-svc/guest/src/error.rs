//! Why a tool has no result, and why the host gave it nothing.

use alloc::{string::String, string::ToString as _};
use core::fmt;

/// Why a tool has no result. Every error converts into it, so `?` works on all of them.
///
/// The node fails, its retries apply, and the beginning of the text is in the failure's detail. What a plan should decide by
/// is a result, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// An error with a text for people.
    pub fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: core::error::Error> From<E> for Error {
    fn from(cause: E) -> Self {
        Self::new(cause)
    }
}

/// The host gave no answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// It is not allowed, or over a limit; asking again changes nothing. The text says why.
    Refused(String),
    /// It failed on its way. The text says how.
    Failed(String),
    /// The host could not hand anything over: there is no room for a reply, or (off wasm) no host.
    NoReply,
    /// The host's words are not understood.
    Malformed(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => write!(f, "refused: {text}"),
            Self::Failed(text) => write!(f, "failed: {text}"),
            Self::NoReply => f.write_str("the host gave no reply"),
            Self::Malformed(text) => write!(f, "the host's reply is not understood: {text}"),
        }
    }
}

impl core::error::Error for CallError {}
