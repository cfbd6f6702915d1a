//! The core's refusals, as a caller is told.

use proto::fault::{Fault, Reason};
use runner_core::refusal::{Refusal, RefusalCode};

/// The registry's entry of a refusal.
pub fn reason(code: RefusalCode) -> Reason {
    match code {
        RefusalCode::UnboundedCycle => Reason::UnboundedCycle,
        RefusalCode::UnreachableNodes => Reason::UnreachableNodes,
        RefusalCode::Unresolved => Reason::Unresolved,
        RefusalCode::BadCondition => Reason::BadCondition,
        RefusalCode::NoModel => Reason::NoModel,
        RefusalCode::TooLarge => Reason::TooLarge,
        RefusalCode::ExecutorRefused => Reason::ExecutorRefused,
        RefusalCode::BadPlan => Reason::BadPlan,
        RefusalCode::BadRunId => Reason::BadRunId,
        RefusalCode::InvalidArgument => Reason::InvalidArgument,
    }
}

/// A refusal as the answer to a call: its values become metadata.
pub fn fault(refusal: Refusal) -> Fault {
    let node = refusal.node.map(|node| ("node".to_owned(), node));
    let fault = Fault::new(reason(refusal.code), refusal.text);
    refusal.metadata.into_iter().chain(node).fold(fault, |fault, (key, value)| fault.with(&key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_stable_code() {
        for code in [
            RefusalCode::UnboundedCycle,
            RefusalCode::UnreachableNodes,
            RefusalCode::Unresolved,
            RefusalCode::BadCondition,
            RefusalCode::NoModel,
            RefusalCode::TooLarge,
            RefusalCode::ExecutorRefused,
            RefusalCode::BadPlan,
            RefusalCode::BadRunId,
        ] {
            assert_eq!(reason(code).code(), Some(code.code()));
        }
    }
}
