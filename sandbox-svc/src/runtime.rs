//! The ways in which code is executed.

use std::fmt;

/// How one digest is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// `wasm32-areev`: a module with nothing but its input.
    Pure,
    /// `wasm32-areev-io`: a module that may call `areev::fetch`.
    Io,
    /// `native`: an executable file.
    Native,
}

impl Runtime {
    /// The name that definitions use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "wasm32-areev",
            Self::Io => "wasm32-areev-io",
            Self::Native => "native",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
