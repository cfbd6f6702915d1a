//! The six methods that a call may have.

use std::fmt;

/// A method, written in exact upper case everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Read.
    Get,
    /// Read headers alone.
    Head,
    /// Create or act.
    Post,
    /// Replace.
    Put,
    /// Change.
    Patch,
    /// Remove.
    Delete,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 6] = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// What is allowed where methods are not written out.
    pub const READING: [Self; 2] = [Self::Get, Self::Head];

    /// The exact word, or nothing.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
