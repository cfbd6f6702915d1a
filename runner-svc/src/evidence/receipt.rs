//! Receipts: an Ed25519 signature over what a run was and how far it went, so that a journal whose end was cut is noticed.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use content_digest::Digest;
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};

use crate::{journal::RunHeader, runs::Summary};

/// Name of the key's file in the data directory.
pub const KEY_FILE: &str = "receipt.key";
/// First line of what is signed.
const DOMAIN: &str = "areev-receipt:v1";
/// Bytes of a public key.
const PUBLIC_KEY_BYTES: usize = 32;
/// Characters of a line of base64 in a PEM file.
const PEM_LINE: usize = 64;

/// Signs receipts. It has no `Debug`: the key is a secret of the data directory.
pub struct ReceiptKey {
    pair: Ed25519KeyPair,
}

/// What a run was and how far it went, signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The run.
    pub run_id: String,
    /// Digest of its manifest.
    pub manifest_digest: Digest,
    /// SHA-256 of its last event.
    pub head_hash: Digest,
    /// Number of its events.
    pub events: u64,
    /// How it ended (`completed`, `failed`, `canceled`, `stalled`, `budget_exhausted`), or `unfinished`.
    pub outcome: String,
    /// The key that signed, 64 hex digits.
    pub public_key: String,
    /// The signature, 128 hex digits.
    pub signature: String,
}

/// The key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its file.
    #[error("--receipt-key {path}: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// What is in it.
    #[error("--receipt-key {path} holds no Ed25519 key as PKCS#8 PEM: make one with `openssl genpkey -algorithm ed25519`", path = path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The system's random numbers.
    #[error("no key could be made: {0}")]
    Random(&'static str),
}

/// A receipt does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReceipt {
    /// The signature is not over what the receipt says.
    #[error("the receipt's signature does not fit what it says")]
    Signature,
    /// Another key signed it.
    #[error("the receipt was signed by {found}, not by the key {expected}")]
    Key {
        /// The key that was named.
        expected: String,
        /// The key that signed.
        found: String,
    },
    /// Key or signature are no hex of their length.
    #[error("the receipt's {0} is malformed")]
    Malformed(&'static str),
}

impl ReceiptKey {
    /// Reads the key from a file, or from the data directory, where it is made (mode 0600) if it is not there.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds no such key.
    pub fn load(file: Option<&Path>, data_dir: &Path) -> Result<Self, KeyError> {
        let path = file.map_or_else(|| data_dir.join(KEY_FILE), Path::to_owned);
        let failed = |cause| KeyError::File { path: path.clone(), cause };
        match fs::read(&path) {
            Ok(pem) => Self::of_pem(&pem).ok_or(KeyError::NoKey { path }),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && file.is_none() => {
                let (key, pem) = Self::make()?;
                let mut out =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
                out.write_all(pem.as_bytes()).and_then(|()| out.sync_all()).map_err(failed)?;
                fs::File::open(data_dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
                Ok(key)
            }
            Err(cause) => Err(failed(cause)),
        }
    }

    /// A key that nobody keeps, and its file's text.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn make() -> Result<(Self, String), KeyError> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let pkcs8 = pkcs8.map_err(|_| KeyError::Random("the system gives no random numbers"))?;
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref());
        let pair = pair.map_err(|_| KeyError::Random("the key that was made cannot be read"))?;
        let base64 = STANDARD.encode(pkcs8.as_ref());
        let mut pem = "-----BEGIN PRIVATE KEY-----\n".to_owned();
        for line in base64.as_bytes().chunks(PEM_LINE) {
            pem.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
            pem.push('\n');
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        Ok((Self { pair }, pem))
    }

    fn of_pem(pem: &[u8]) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?;
        // openssl writes no public key beside the private one.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).ok()?;
        Some(Self { pair })
    }

    /// The public key, 64 hex digits.
    pub fn public_key(&self) -> String {
        hex::encode(self.pair.public_key().as_ref())
    }

    /// The receipt of a run as it durably stands.
    pub fn receipt(&self, header: &RunHeader, summary: &Summary) -> Receipt {
        let mut receipt = Receipt {
            run_id: header.run_id.clone(),
            manifest_digest: header.manifest_digest,
            head_hash: summary.head,
            events: summary.events,
            outcome: summary.status.outcome().unwrap_or("unfinished").to_owned(),
            public_key: self.public_key(),
            signature: String::new(),
        };
        receipt.signature = hex::encode(self.pair.sign(receipt.message().as_bytes()).as_ref());
        receipt
    }
}

impl Receipt {
    /// Checks the signature, and that the named key made it, if one is named (64 hex digits).
    ///
    /// # Errors
    /// It does not hold.
    pub fn check(&self, key: Option<&str>) -> Result<(), BadReceipt> {
        let public = hex::decode(&self.public_key).ok().filter(|key| key.len() == PUBLIC_KEY_BYTES);
        let public = public.ok_or(BadReceipt::Malformed("public key"))?;
        let signature = hex::decode(&self.signature).map_err(|_| BadReceipt::Malformed("signature"))?;
        if let Some(expected) = key.filter(|key| !key.eq_ignore_ascii_case(&self.public_key)) {
            return Err(BadReceipt::Key { expected: expected.to_owned(), found: self.public_key.clone() });
        }
        let key = UnparsedPublicKey::new(&ED25519, public);
        key.verify(self.message().as_bytes(), &signature).map_err(|_| BadReceipt::Signature)
    }

    /// What is signed: six lines. A run id has no line break.
    fn message(&self) -> String {
        let Self { run_id, manifest_digest, head_hash, events, outcome, .. } = self;
        format!("{DOMAIN}\n{run_id}\n{manifest_digest}\n{head_hash}\n{events}\n{outcome}\n")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::runs::RunStatus;

    fn receipt(key: &ReceiptKey) -> Receipt {
        let header = RunHeader {
            run_id: "r1".to_owned(),
            namespace: "ops".to_owned(),
            plan_hash: Digest::of("plan"),
            started_at_ms: 1,
            principal: "user:runner".to_owned(),
            manifest_digest: Digest::of("manifest"),
            input_digest: Digest::of("input"),
            parent: None,
        };
        let summary = Summary {
            status: RunStatus::Completed,
            reason: String::new(),
            failed_node: None,
            finished_at_ms: Some(2),
            spent: Default::default(),
            events: 7,
            head: Digest::of("head"),
        };
        key.receipt(&header, &summary)
    }

    #[test]
    fn a_receipt_holds_until_any_of_its_fields_is_changed() {
        let (key, _) = ReceiptKey::make().unwrap();
        let good = receipt(&key);
        assert_eq!(good.check(None), Ok(()));
        assert_eq!(good.check(Some(&key.public_key().to_uppercase())), Ok(()));
        let changes: [fn(&mut Receipt); 5] = [
            |receipt| receipt.run_id.push('x'),
            |receipt| receipt.manifest_digest = Digest::ZERO,
            |receipt| receipt.head_hash = Digest::ZERO,
            |receipt| receipt.events -= 1,
            |receipt| receipt.outcome = "failed".to_owned(),
        ];
        for change in changes {
            let mut changed = good.clone();
            change(&mut changed);
            assert_eq!(changed.check(None), Err(BadReceipt::Signature), "{changed:?}");
        }
        let (other, _) = ReceiptKey::make().unwrap();
        assert!(matches!(good.check(Some(&other.public_key())), Err(BadReceipt::Key { .. })));
        let short = Receipt { public_key: "00".to_owned(), ..good };
        assert_eq!(short.check(None), Err(BadReceipt::Malformed("public key")));
    }

    #[test]
    fn the_key_is_made_once_for_its_owner_alone_and_anything_else_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = ReceiptKey::load(None, dir.path()).unwrap().public_key();
        assert_eq!(ReceiptKey::load(None, dir.path()).unwrap().public_key(), made);
        let file = dir.path().join(KEY_FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ReceiptKey::load(Some(&file), Path::new("/nonexistent")).unwrap().public_key(), made);
        fs::write(&file, "no key").unwrap();
        assert!(matches!(ReceiptKey::load(None, dir.path()), Err(KeyError::NoKey { .. })));
        let missing = dir.path().join("missing");
        assert!(matches!(ReceiptKey::load(Some(&missing), dir.path()), Err(KeyError::File { .. })));
    }

    #[test]
    fn a_key_as_openssl_writes_it_is_read() {
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                   -----END PRIVATE KEY-----\n";
        let key = ReceiptKey::of_pem(pem.as_bytes()).unwrap();
        assert_eq!(key.public_key(), "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1");
        assert_eq!(receipt(&key).check(None), Ok(()));
    }
}
