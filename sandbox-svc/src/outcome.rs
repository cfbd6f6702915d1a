//! How an effect ended: the guest's doing, never the service's.

use std::{fmt, time::Duration};

/// Longest text of a failure, in bytes; a longer one is cut.
pub const TEXT_BYTES_MAX: usize = 4096;

/// The end of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The JSON that the guest wrote, or what went wrong.
    pub result: Result<String, Failure>,
    /// Fuel used; 0 for native code.
    pub fuel_used: u64,
    /// Highest linear memory, in bytes; 0 for native code.
    pub peak_memory_bytes: u64,
    /// Time from dispatch to end.
    pub duration: Duration,
    /// Brokered calls made.
    pub calls: u32,
}

/// What kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The guest trapped.
    Trap,
    /// The guest spent its fuel.
    OutOfFuel,
    /// The guest needs more memory or tables than allowed.
    OutOfMemory,
    /// The wall clock ran out.
    Timeout,
    /// The module breaks the guest ABI.
    Abi,
    /// Nothing was emitted, or something that is not JSON.
    BadOutput,
    /// The output is over its cap.
    OutputTooLarge,
    /// A native blob ended with a status other than 0.
    Exit,
    /// The bytes are no module that is accepted.
    ModuleRefused,
    /// The caller stopped it.
    Canceled,
}

/// A failure, with its text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// What went wrong, at most [`TEXT_BYTES_MAX`] bytes; no host address, no secret.
    pub text: String,
}

impl Failure {
    /// Makes a failure; a long text is cut.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        let mut text = text.into();
        proto::fault::cut(&mut text, TEXT_BYTES_MAX);
        Self { kind, text }
    }

    /// The guest's fuel is spent.
    pub fn out_of_fuel(limit: u64) -> Self {
        Self::new(FailureKind::OutOfFuel, format!("guest exhausted its fuel (limit {limit})"))
    }

    /// The wall clock ran out.
    pub fn timeout(who: &str, after: Duration) -> Self {
        let after = humantime::format_duration(Duration::from_millis(after.as_millis() as u64));
        Self::new(FailureKind::Timeout, format!("{who} ran into its deadline after {after}"))
    }

    /// The caller stopped it.
    pub fn canceled(why: &str) -> Self {
        Self::new(FailureKind::Canceled, format!("stopped: {why}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl Outcome {
    /// An end before anything ran.
    pub fn refused(failure: Failure) -> Self {
        Self { result: Err(failure), fuel_used: 0, peak_memory_bytes: 0, duration: Duration::ZERO, calls: 0 }
    }
}
