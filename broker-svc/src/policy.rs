//! What the operator allows: egress policy, credentials (their rules, never their values) and grants. Already checked.

mod credential;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroU32,
};

use content_digest::Digest;
use ipnet::IpNet;

pub use credential::{ClientAuth, Credential, Flow, Kind, OAuth, SigV4, Source};

use crate::{
    artifact::ArtifactCeilings,
    method::Method,
    origin::{Origin, Pattern, Reach, reach},
    target::Target,
};

/// The whole of it. Ordered everywhere, so that the digest of equal policies is equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where anything may go at all.
    pub egress: Egress,
    /// Where `vault:` values come from.
    pub vault: Option<VaultServer>,
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

/// The Vault server that `vault:` values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultServer {
    /// Its API's address; https, or http on this host.
    pub address: Target,
    /// Where the token to show it comes from: `env:` or `file:`.
    pub token: Source,
    /// The `X-Vault-Namespace`, for servers that have them.
    pub namespace: Option<String>,
}

/// What one tool may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Hosts; absent: whatever the egress policy allows over https.
    pub hosts: Option<Vec<Pattern>>,
    /// Addresses of the definitions that it is given to; empty: to whatever definition has the tool's name.
    pub definitions: Vec<String>,
    /// The upstream honours `Idempotency-Key`: writing calls carry one.
    pub idempotency_key: bool,
    /// Calls that all effects of the tool together may make.
    pub rate: Option<Rate>,
    /// How large artifacts may be; none may be where none is written.
    pub artifacts: ArtifactCeilings,
}

/// Calls in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many, and how many at once after a pause.
    pub calls: NonZeroU32,
    /// In what time.
    pub per: Per,
}

/// The time of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl Policy {
    /// Whether a credential is attached as this header: nobody else may set it.
    pub fn owns_header(&self, name: &str) -> bool {
        self.credentials.values().any(|credential| credential.kind.slots().iter().any(|slot| slot.as_str() == name))
    }

    /// Whether a credential that may go to this origin is attached as this query parameter: nobody else may set it there.
    pub fn owns_parameter(&self, origin: &Origin, name: &str) -> bool {
        let here = |hosts: &Vec<Pattern>| reach(hosts, origin) != Reach::Nowhere;
        self.credentials
            .values()
            .any(|credential| credential.kind.parameter() == Some(name) && credential.hosts.as_ref().is_none_or(here))
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
            "vault": self.vault.as_ref().map(VaultServer::canonical),
            "credentials": credentials,
            "grants": grants,
        });
        Digest::of(canonical.to_string())
    }
}

impl Grant {
    /// Whether it is given to this definition.
    pub fn is_for(&self, definition: &str) -> bool {
        self.definitions.is_empty() || self.definitions.iter().any(|given| given == definition)
    }

    /// The grant for a call that the configuration itself makes necessary: this one place and method, and no credential.
    pub fn for_itself(target: &Target, method: Method) -> Self {
        let hosts = Some(vec![Pattern::exactly(target.origin())]);
        Self { methods: vec![method], hosts, ..Self::default() }
    }

    fn canonical(&self) -> serde_json::Value {
        let mut canonical = serde_json::json!({
            "credentials": sorted(&self.credentials),
            "methods": sorted(&self.methods),
            "hosts": self.hosts.as_deref().map(sorted),
            "definitions": sorted(&self.definitions),
            "idempotency_key": self.idempotency_key,
            "rate": self.rate.map(|rate| rate.to_string()),
        });
        // Only where they are written: a policy without them keeps its digest.
        if !self.artifacts.are_zero() {
            canonical["artifacts"] =
                serde_json::json!([self.artifacts.max_request_bytes, self.artifacts.max_response_bytes]);
        }
        canonical
    }
}

impl VaultServer {
    fn canonical(&self) -> serde_json::Value {
        serde_json::json!({
            "address": self.address.url().as_str(),
            "token": self.token.to_string(),
            "namespace": self.namespace,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => "s",
            Per::Minute => "m",
            Per::Hour => "h",
        };
        write!(f, "{}/{per}", self.calls)
    }
}

/// The normal forms of a list, in order and each once.
pub fn sorted(items: &[impl ToString]) -> Vec<String> {
    let set: BTreeSet<_> = items.iter().map(ToString::to_string).collect();
    set.into_iter().collect()
}
