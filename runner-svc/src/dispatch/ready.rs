//! Whether the services that effects need answer.

/// A service does not answer, or not as it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {service} at {url} does not answer: {cause}")]
pub struct Unready {
    /// What it is.
    pub service: &'static str,
    /// Where it should be.
    pub url: String,
    /// What happened instead.
    pub cause: String,
}
