//! The values of credentials: read from their sources, handed out for one call at a time.

mod secret;
mod source;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

pub use secret::{BadSecret, Secret};
use source::Stamp;
pub use source::Unreadable;

use crate::{
    policy::{Credential, Policy, Source},
    refusal::{Refusal, Why},
};

/// Every credential's value. No Debug: it holds secrets.
pub struct Vault {
    slots: BTreeMap<String, Slot>,
}

/// One credential's value as it was last read.
struct Slot {
    source: Source,
    held: Mutex<Held>,
}

struct Held {
    stamp: Option<Stamp>,
    secret: Option<Arc<Secret>>,
}

/// A credential's value cannot be used. Names the credential, its source and the fault, never the value.
#[derive(Debug, thiserror::Error)]
#[error("credential {name} ({from}): {cause}")]
pub struct VaultError {
    /// The credential.
    pub name: String,
    /// The place of its value.
    pub from: String,
    /// What is wrong.
    pub cause: Unreadable,
}

impl Vault {
    /// Reads every credential of the policy; one that cannot be read stops the start.
    pub fn open(policy: &Policy) -> Result<Self, VaultError> {
        let mut slots = BTreeMap::new();
        for (name, credential) in &policy.credentials {
            let failed = |cause| VaultError { name: name.clone(), from: credential.source.to_string(), cause };
            let stamp = source::stamp(&credential.source);
            let secret = source::read(&credential.source, &credential.kind).map_err(failed)?;
            let held = Mutex::new(Held { stamp, secret: Some(Arc::new(secret)) });
            slots.insert(name.clone(), Slot { source: credential.source.clone(), held });
        }
        Ok(Self { slots })
    }

    /// The value now. A file that changed is read again; one that went bad refuses the call rather than reviving the old value.
    pub fn get(&self, credential: &Credential) -> Result<Arc<Secret>, Refusal> {
        let gone = || {
            let text =
                format!("credential {:?} has no usable value now: an operator can mend its source", credential.name);
            Refusal::new(Why::CredentialUnavailable, text)
        };
        let slot = self.slots.get(&credential.name).ok_or_else(gone)?;
        let stamp = source::stamp(&slot.source);
        let mut held = slot.held.lock();
        if stamp != held.stamp {
            held.stamp = stamp;
            held.secret = match source::read(&slot.source, &credential.kind) {
                Ok(secret) => {
                    tracing::info!(credential = credential.name, source = %slot.source, "credential read again");
                    Some(Arc::new(secret))
                }
                Err(cause) => {
                    tracing::warn!(credential = credential.name, source = %slot.source, %cause, "credential lost");
                    None
                }
            };
        }
        held.secret.clone().ok_or_else(gone)
    }
}
