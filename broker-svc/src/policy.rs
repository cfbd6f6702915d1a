//! What the operator allows: egress policy, credentials (their rules, never their values) and grants. Already checked.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use content_digest::Digest;
use http::HeaderName;
use ipnet::IpNet;

use crate::{method::Method, origin::Pattern};

/// The whole of it. Ordered everywhere, so that the digest of equal policies is equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where anything may go at all.
    pub egress: Egress,
    /// Credentials by name.
    pub credentials: BTreeMap<String, Credential>,
    /// Grants by tool.
    pub grants: BTreeMap<String, Grant>,
}

/// The egress policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    /// Every host over https is allowed.
    pub unrestricted: bool,
    /// Allowed hosts; none unless unrestricted.
    pub allow_hosts: Vec<Pattern>,
    /// Inner networks that may be reached.
    pub allow_private: Vec<IpNet>,
}

/// The rules of one credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// How it is attached.
    pub kind: Kind,
    /// Where its value comes from.
    pub source: Source,
    /// Where it may go. Absent only for the command line's form: wherever grant and policy allow, over https.
    pub hosts: Option<Vec<Pattern>>,
    /// The only principal whose runs may spend it.
    pub owner: Option<String>,
}

/// How a credential is attached to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `Authorization: Bearer <value>`.
    Bearer,
    /// `<header>: <value>`.
    Header(HeaderName),
}

/// Where a credential's value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An environment variable, read at start.
    Env(String),
    /// A file, read again when it changes.
    File(PathBuf),
}

/// What one tool may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Hosts; absent: whatever the egress policy allows over https.
    pub hosts: Option<Vec<Pattern>>,
}

impl Policy {
    /// The request headers that credentials are attached as: nobody else may set them.
    pub fn owns_header(&self, name: &str) -> bool {
        self.credentials.values().any(|credential| credential.kind.slot().as_str() == name)
    }

    /// SHA-256 of the policy's canonical text, which names credentials and sources and holds no value.
    pub fn digest(&self) -> Digest {
        let credentials: BTreeMap<_, _> = self.credentials.iter().map(|(name, c)| (name, c.canonical())).collect();
        let grants: BTreeMap<_, _> = self.grants.iter().map(|(tool, grant)| (tool, grant.canonical())).collect();
        let canonical = serde_json::json!({
            "version": 1,
            "unrestricted": self.egress.unrestricted,
            "allow_hosts": sorted(&self.egress.allow_hosts),
            "allow_private": sorted(&self.egress.allow_private),
            "credentials": credentials,
            "grants": grants,
        });
        Digest::of(canonical.to_string())
    }
}

impl Credential {
    fn canonical(&self) -> serde_json::Value {
        serde_json::json!({
            "kind": self.kind.to_string(),
            "slot": self.kind.slot().as_str(),
            "source": self.source.to_string(),
            "hosts": self.hosts.as_deref().map(sorted),
            "owner": self.owner,
        })
    }
}

impl Kind {
    /// The header that carries it.
    pub fn slot(&self) -> HeaderName {
        match self {
            Self::Bearer => http::header::AUTHORIZATION,
            Self::Header(name) => name.clone(),
        }
    }
}

impl Grant {
    fn canonical(&self) -> serde_json::Value {
        serde_json::json!({
            "credentials": sorted(&self.credentials),
            "methods": sorted(&self.methods),
            "hosts": self.hosts.as_deref().map(sorted),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer => "bearer",
            Self::Header(_) => "header",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// The normal forms of a list, in order and each once.
pub fn sorted(items: &[impl ToString]) -> Vec<String> {
    let set: std::collections::BTreeSet<_> = items.iter().map(ToString::to_string).collect();
    set.into_iter().collect()
}
