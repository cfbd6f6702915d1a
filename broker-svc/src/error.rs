//! From a refusal to what a gRPC caller is told.

use std::time::Duration;

use proto::fault::{Fault, Reason};

use crate::{
    refusal::{Class, Refusal},
    token::MintError,
};

/// When a busy broker is worth another try.
const BUSY_RETRY: Duration = Duration::from_millis(200);

impl From<&Refusal> for Fault {
    fn from(refusal: &Refusal) -> Self {
        let reason = match refusal.why.class() {
            Class::Malformed => Reason::InvalidArgument,
            Class::Token => Reason::TokenRefused,
            Class::Policy => Reason::EgressRefused,
            Class::Calls | Class::RequestSize | Class::AnswerSize => Reason::TooLarge,
            Class::Busy => Reason::Busy,
            Class::Upstream => Reason::UpstreamFailed,
            Class::Deadline => Reason::DeadlineExceeded,
        };
        let fault = Self::new(reason, refusal.text.clone()).with("reason", refusal.why.code());
        match refusal.why.class() {
            Class::Busy => fault.retry_after(BUSY_RETRY),
            _ => fault,
        }
    }
}

impl From<MintError> for Fault {
    fn from(error: MintError) -> Self {
        let text = error.to_string();
        match error {
            MintError::Late => Self::new(Reason::DeadlineExceeded, text),
            MintError::RunOver => Self::new(Reason::EgressRefused, text).with("reason", "run_over"),
            MintError::Full(_) => Self::new(Reason::Busy, text).retry_after(BUSY_RETRY),
        }
    }
}
