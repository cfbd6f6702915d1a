//! What the catalogue's errors are to a caller.

use std::time::Duration;

use proto::fault::{Fault, Reason};

use crate::catalogue::{CatalogueError, grain::BadGrain};

/// When to try again after the disk refused.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The disk's own words go to the log alone.
impl From<CatalogueError> for Fault {
    fn from(error: CatalogueError) -> Self {
        match error {
            CatalogueError::BadGrain(bad) => bad.into(),
            CatalogueError::Damaged { digest } => {
                Self::new(Reason::Damaged, error.to_string()).with("digest", digest.to_hex())
            }
            CatalogueError::Mismatch { expected, found } => Self::new(Reason::DigestMismatch, error.to_string())
                .field("expected_digest", format!("the bytes hash to {found}"))
                .with("expected", expected.to_hex())
                .with("found", found.to_hex()),
            CatalogueError::TooLarge { bytes_max } => {
                let text = format!("over the {bytes_max} bytes that the catalogue takes: send less");
                Self::new(Reason::InvalidArgument, text).field("chunk", format!("at most {bytes_max} bytes in all"))
            }
            CatalogueError::Storage { .. } | CatalogueError::Index(sled::Error::Io(_)) => {
                tracing::error!(cause = %error, "the catalogue's store refuses");
                let text = "the catalogue's store refuses (disk full, read-only or failing): nothing was stored; try \
                            again when it is mended";
                Self::new(Reason::StorageUnavailable, text).retry_after(RETRY_AFTER)
            }
            CatalogueError::Index(_) => Self::internal(&error),
        }
    }
}

impl From<BadGrain> for Fault {
    fn from(bad: BadGrain) -> Self {
        let field = if bad.field.is_empty() { "grain" } else { bad.field.as_str() };
        Self::new(Reason::BadGrain, bad.to_string()).field(field, bad.rule.clone()).with("rule", bad.rule.clone())
    }
}

/// The fault of a request's field.
pub fn invalid(field: &str, problem: &str) -> Fault {
    Fault::new(Reason::InvalidArgument, format!("{field} {problem}")).field(field, problem)
}
