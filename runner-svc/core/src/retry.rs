//! Whether a failed effect is tried again.

use crate::{
    key::EffectKind,
    outcome::{Failure, FailureCause},
};

/// Whether to try again after the `failures`-th failure of a node in its generation (from 1), given its `retries`.
pub fn allows(failure: &Failure, kind: EffectKind, failures: u32, retries: u32) -> bool {
    !failure.permanent && is_retryable(failure.cause, kind) && failures <= retries
}

fn is_retryable(cause: FailureCause, kind: EffectKind) -> bool {
    match cause {
        FailureCause::Timeout | FailureCause::ExecutorError => true,
        FailureCause::SchemaValidationFailed => kind == EffectKind::Llm,
        FailureCause::UserAborted | FailureCause::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_and_executor_errors_are_retried_as_often_as_the_plan_says() {
        for cause in [FailureCause::Timeout, FailureCause::ExecutorError] {
            let failure = Failure::new(cause, "x");
            assert!(!allows(&failure, EffectKind::Tool, 1, 0));
            assert!(allows(&failure, EffectKind::Tool, 2, 2));
            assert!(!allows(&failure, EffectKind::Tool, 3, 2));
            assert!(!allows(&Failure::permanent(cause, "x"), EffectKind::Tool, 1, 2));
        }
    }

    #[test]
    fn a_wrong_schema_is_retried_for_models_only_and_people_and_unknowns_never() {
        let wrong = Failure::new(FailureCause::SchemaValidationFailed, "x");
        assert!(allows(&wrong, EffectKind::Llm, 1, 1));
        assert!(!allows(&wrong, EffectKind::Tool, 1, 1));
        for cause in [FailureCause::UserAborted, FailureCause::Unknown] {
            assert!(!allows(&Failure::new(cause, "x"), EffectKind::Llm, 1, 9));
        }
    }
}
