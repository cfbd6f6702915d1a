//! Who calls, and what they may do: principals from a static token file, permissions by namespace.

mod file;

use proto::{
    fault::{Fault, Reason},
    identity::Peer,
};
use tonic::{Extensions, metadata::MetadataMap};

pub use file::{BadAccessFile, StaticAccess};

/// The principal of a caller on this host when no token file is configured.
pub const LOCAL_PRINCIPAL: &str = "user:local";

/// What a principal may do in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// `run.execute`: start, pause, resume and fork runs.
    RunExecute,
    /// `run.respond`: answer asks.
    RunRespond,
    /// `run.cancel`: cancel runs.
    RunCancel,
    /// `run.read`: read runs, their evidence, and the catalogue.
    RunRead,
    /// `catalog.write`: store blobs and grains.
    CatalogWrite,
}

/// Who a caller was found to be, such as `user:runner`. Never taken from a request's fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Principal(String);

/// Knows callers and their permissions.
pub trait Access: Send + Sync {
    /// Finds out who calls. UNAUTHENTICATED when the caller shows nothing, or nothing that is known.
    fn principal(&self, extensions: &Extensions, metadata: &MetadataMap) -> Result<Principal, Fault>;

    /// Refuses (`RUN-E012`) unless the principal holds the permission in the namespace.
    fn allow(&self, principal: &Principal, namespace: &str, permission: Permission) -> Result<(), Fault>;

    /// Everybody who is known to hold the permission in the namespace, by name, in order.
    fn holders(&self, namespace: &str, permission: Permission) -> Vec<String>;

    /// Refuses (`RUN-E012`) unless the principal holds the permission in some namespace: for what belongs to none, as blobs.
    fn allow_anywhere(&self, principal: &Principal, permission: Permission) -> Result<(), Fault>;
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::RunExecute, Self::RunRespond, Self::RunCancel, Self::RunRead, Self::CatalogWrite];

    /// The permission's name in configuration and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunExecute => "run.execute",
            Self::RunRespond => "run.respond",
            Self::RunCancel => "run.cancel",
            Self::RunRead => "run.read",
            Self::CatalogWrite => "catalog.write",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == name)
    }
}

impl Principal {
    /// Wraps a name that was established elsewhere, such as a journaled one.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Access without a token file: a caller on this host is `user:local` and may do everything, others nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct LocalAccess;

impl Access for LocalAccess {
    fn principal(&self, extensions: &Extensions, _metadata: &MetadataMap) -> Result<Principal, Fault> {
        if extensions.get::<Peer>() == Some(&Peer::Local) {
            return Ok(Principal::new(LOCAL_PRINCIPAL));
        }
        let text = "no tokens are configured, so only callers on this host are known: \
                    name a token file in the runner's configuration";
        Err(Fault::new(Reason::Unauthenticated, text))
    }

    fn allow(&self, principal: &Principal, namespace: &str, permission: Permission) -> Result<(), Fault> {
        if principal.as_str() == LOCAL_PRINCIPAL { Ok(()) } else { Err(refused(principal, namespace, permission)) }
    }

    fn holders(&self, _namespace: &str, _permission: Permission) -> Vec<String> {
        vec![LOCAL_PRINCIPAL.to_owned()]
    }

    fn allow_anywhere(&self, principal: &Principal, permission: Permission) -> Result<(), Fault> {
        self.allow(principal, "*", permission)
    }
}

fn refused(principal: &Principal, namespace: &str, permission: Permission) -> Fault {
    let shown: String = namespace.chars().take(128).collect();
    let permission = permission.as_str();
    let text = format!("{principal} lacks {permission} in namespace {shown:?}: ask the operator to grant it");
    Fault::new(Reason::NotPermitted, text).with("permission", permission).with("namespace", shown)
}
