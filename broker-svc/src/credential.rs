//! The values of credentials: read from their places or minted, handed out for one call at a time.

mod attached;
mod oauth;
mod secret;
mod sigv4;
mod slot;
mod source;

use std::{collections::BTreeMap, sync::Arc};

pub use attached::Attached;
pub use secret::{BadSecret, Secret, Shape};
use slot::Slot;
pub use source::Unreadable;

use crate::{
    in_force::InForce,
    origin::{Origin, Pattern, Reach, reach},
    policy::Policy,
    refusal::{Refusal, Why},
    send::Courier,
};

/// Every credential's value. No Debug: it holds secrets.
#[derive(Default)]
pub struct Keyring {
    slots: BTreeMap<String, Arc<Slot>>,
}

/// A credential's value cannot be used. Names the credential, its source and the fault, never the value.
#[derive(Debug, thiserror::Error)]
#[error("credential {name} ({from}): {cause}")]
pub struct KeyError {
    /// The credential.
    pub name: String,
    /// The place of its value.
    pub from: String,
    /// What is wrong.
    pub cause: Unreadable,
}

impl Keyring {
    /// Reads every credential whose value is at hand; one that cannot be read is a mistake. Others are asked for when they are
    /// needed. What `before` holds for a credential that did not change is kept: its token, and its rotated refresh token.
    pub fn open(policy: &Policy, before: Option<&Self>) -> Result<Self, KeyError> {
        let mut slots = BTreeMap::new();
        for (name, credential) in &policy.credentials {
            let kept = before.and_then(|before| before.slots.get(name)).filter(|slot| slot.is_of(credential));
            let slot = match kept {
                Some(slot) => Arc::clone(slot),
                None => Arc::new(Slot::open(credential.clone())?),
            };
            slots.insert(name.clone(), slot);
        }
        Ok(Self { slots })
    }

    /// The secrets that this upstream may have been shown, by this call or any other: it may echo each of them. Reads nothing.
    pub fn known_at(&self, policy: &Policy, origin: &Origin) -> Vec<Arc<Attached>> {
        let shown = |hosts: &Vec<Pattern>| reach(hosts, origin) == Reach::Here;
        let there = policy.credentials.values().filter(|credential| credential.hosts.as_ref().is_none_or(shown));
        there.filter_map(|credential| self.slots.get(&credential.name)).flat_map(|slot| slot.held()).collect()
    }

    /// An upstream refused the value: asks for another one the next time. Answers whether there may be one.
    pub fn reject(&self, name: &str, refused: &Arc<Attached>) -> bool {
        self.slots.get(name).is_some_and(|slot| slot.reject(refused))
    }
}

/// The value now. A file that changed is read again; one that went bad refuses the call rather than reviving the old value. What
/// has to be asked for is asked for once, however many calls wait for it.
pub async fn attached(in_force: &Arc<InForce>, courier: &Arc<Courier>, name: &str) -> Result<Arc<Attached>, Refusal> {
    let Some(slot) = in_force.keyring.slots.get(name) else { return Err(unavailable(name)) };
    slot.get(in_force, courier).await
}

/// One text for every way in which a value can be missing: the log says which.
fn unavailable(name: &str) -> Refusal {
    let text = format!("credential {name:?} has no usable value now: an operator can mend its source");
    Refusal::new(Why::CredentialUnavailable, text)
}
