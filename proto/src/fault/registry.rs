//! The one table from reason to stable code and gRPC code.

use tonic::Code;

use super::Reason;

impl Reason {
    /// The name in `ErrorInfo.reason`, such as `EXECUTOR_REFUSED`.
    pub fn name(self) -> &'static str {
        self.as_str_name().trim_start_matches("REASON_")
    }

    /// Every reason, in the registry's order.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::Internal as i32).filter_map(|number| Self::try_from(number).ok())
    }

    /// The stable code, such as `RUN-E018`, where the reason has one.
    pub fn code(self) -> Option<&'static str> {
        Some(match self {
            Self::Stalled => "RUN-E001",
            Self::UnboundedCycle => "RUN-E002",
            Self::UnreachableNodes => "RUN-E003",
            Self::Unresolved => "RUN-E004",
            Self::BadCondition => "RUN-E005",
            Self::NoModel => "RUN-E006",
            Self::BudgetExhausted => "RUN-E007",
            Self::DanglingIntent => "RUN-E008",
            Self::ReplayDivergence => "RUN-E009",
            Self::ManifestMismatch => "RUN-E010",
            Self::AskNotOpen => "RUN-E011",
            Self::NotPermitted | Self::SelfApproval => "RUN-E012",
            Self::Canceled => "RUN-E013",
            Self::TooLarge => "RUN-E015",
            Self::RunExists => "RUN-E016",
            Self::ExecutorRefused => "RUN-E018",
            Self::BadPlan => "RUN-E019",
            Self::BadRunId | Self::StorageUnavailable => "RUN-E020",
            Self::LeaseLost => "RUN-E021",
            Self::EgressRefused | Self::TokenRefused | Self::NoGrant | Self::UpstreamFailed => "RUN-E022",
            Self::ModelChanged => "RUN-E025",
            Self::EngineChanged => "RUN-E026",
            Self::TooManyRuns => "RUN-E027",
            Self::NotPausable => "RUN-E029",
            Self::ModuleNotFound => "MODULE_NOT_FOUND",
            Self::Unspecified
            | Self::InvalidArgument
            | Self::Unauthenticated
            | Self::RoleNotAllowed
            | Self::NotImplemented
            | Self::Draining
            | Self::DependencyUnavailable
            | Self::Damaged
            | Self::RunNotFound
            | Self::BlobNotFound
            | Self::GrainNotFound
            | Self::DigestMismatch
            | Self::BadGrain
            | Self::ModuleRefused
            | Self::Busy
            | Self::NativeDisabled
            | Self::DeadlineExceeded
            | Self::BadPageToken
            | Self::RecoveryFailed
            | Self::TooManyEvents
            | Self::Internal => return None,
        })
    }

    /// The gRPC code that a status of this reason has.
    pub fn grpc(self) -> Code {
        match self {
            Self::BadRunId
            | Self::UnboundedCycle
            | Self::UnreachableNodes
            | Self::BadCondition
            | Self::BadPlan
            | Self::InvalidArgument
            | Self::DigestMismatch
            | Self::BadGrain
            | Self::ModuleRefused
            | Self::BadPageToken => Code::InvalidArgument,
            Self::Unresolved | Self::AskNotOpen | Self::RunNotFound | Self::BlobNotFound | Self::GrainNotFound => {
                Code::NotFound
            }
            Self::RunExists => Code::AlreadyExists,
            Self::ExecutorRefused
            | Self::NoModel
            | Self::ManifestMismatch
            | Self::NotPausable
            | Self::Stalled
            | Self::BudgetExhausted
            | Self::DanglingIntent
            | Self::ModelChanged
            | Self::EngineChanged
            | Self::ModuleNotFound
            | Self::NativeDisabled => Code::FailedPrecondition,
            Self::NotPermitted | Self::SelfApproval | Self::EgressRefused | Self::NoGrant | Self::RoleNotAllowed => {
                Code::PermissionDenied
            }
            Self::Unauthenticated | Self::TokenRefused => Code::Unauthenticated,
            Self::LeaseLost => Code::Aborted,
            Self::Canceled => Code::Cancelled,
            Self::TooManyRuns | Self::Busy | Self::TooLarge | Self::TooManyEvents => Code::ResourceExhausted,
            Self::Draining | Self::DependencyUnavailable | Self::StorageUnavailable | Self::UpstreamFailed => {
                Code::Unavailable
            }
            Self::ReplayDivergence | Self::Damaged | Self::RecoveryFailed => Code::DataLoss,
            Self::NotImplemented => Code::Unimplemented,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Internal | Self::Unspecified => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_up_to_the_last_is_listed_and_named() {
        let names: Vec<_> = Reason::all().map(Reason::name).collect();
        assert!(names.contains(&"STALLED") && names.contains(&"INTERNAL") && names.contains(&"EXECUTOR_REFUSED"));
        assert!(names.iter().all(|name| !name.starts_with("REASON_")));
    }

    #[test]
    fn the_registry_numbers_a_stable_code_by_itself() {
        for reason in Reason::all().filter(|reason| (*reason as i32) < 100) {
            assert_eq!(reason.code(), Some(format!("RUN-E{:03}", reason as i32).as_str()), "{reason:?}");
        }
    }
}
