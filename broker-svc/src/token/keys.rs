//! The keys that tokens are signed with: a random one of this process, or a folder of them that replicas share and operators rotate.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
};

use jsonwebtoken::{DecodingKey, EncodingKey};
use proto::files;
use uuid::Uuid;
use zeroize::Zeroizing;

/// Shortest and longest key, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=1024;
/// Most bytes that are read of a file: one more than a key and its line's end.
const KEY_FILE_BYTES_MAX: u64 = 1024 + 2;
/// Most keys at once: the one that signs, and former ones whose tokens still live.
const KEYS_MAX: usize = 16;

/// Keys by their ids; the last id in order signs, all verify. No Debug: it holds secrets.
pub struct Keys {
    by_id: BTreeMap<String, Key>,
    signs: String,
}

/// One key.
pub struct Key {
    /// For signing.
    pub encoding: EncodingKey,
    /// For verifying.
    pub decoding: DecodingKey,
}

/// A folder of keys cannot be used. Never says what a key is.
#[derive(Debug, thiserror::Error)]
#[error("--token-keys {}: {fault}", path.display())]
pub struct BadKeys {
    path: PathBuf,
    fault: String,
}

impl Keys {
    /// One random key: tokens of other processes, and of this one before a restart, are no tokens.
    pub fn random() -> Self {
        let mut key = Zeroizing::new([0_u8; 32]);
        rustls::crypto::aws_lc_rs::default_provider()
            .secure_random
            .fill(&mut key[..])
            .expect("the system's random generator answers");
        let signs = Uuid::new_v4().simple().to_string();
        Self { by_id: BTreeMap::from([(signs.clone(), Key::of(&key[..]))]), signs }
    }

    /// Every file of a folder, as a Kubernetes Secret is mounted: its name is the key's id. Hidden files are left out.
    pub fn read(folder: &Path) -> Result<Self, BadKeys> {
        let bad = |fault: String| BadKeys { path: folder.to_owned(), fault };
        let entries = std::fs::read_dir(folder).map_err(|cause| bad(cause.to_string()))?;
        let mut by_id = BTreeMap::new();
        for entry in entries {
            let entry = entry.map_err(|cause| bad(cause.to_string()))?;
            let Some(id) = entry.file_name().to_str().filter(|name| !name.starts_with('.')).map(str::to_owned) else {
                continue;
            };
            // The whole room at once: a growing vector would leave copies behind.
            let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX as usize));
            files::open(&entry.path())
                .and_then(|file| file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes))
                .map_err(|cause| bad(format!("{id}: {cause}")))?;
            let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            if !KEY_BYTES.contains(&bytes.len()) || !crate::capability::is_name(&id) {
                let rule = "a key has 32 to 1024 bytes, and a file's name of letters, digits, `_`, `-` and `.`";
                return Err(bad(format!("{}: {rule}", crate::refusal::quote(&id))));
            }
            by_id.insert(id, Key::of(bytes));
            if by_id.len() > KEYS_MAX {
                return Err(bad(format!(
                    "it has more than {KEYS_MAX} keys: take out those that no living token needs"
                )));
            }
        }
        match by_id.last_key_value().map(|(id, _)| id.clone()) {
            Some(signs) => Ok(Self { by_id, signs }),
            None => Err(bad("there is no key in it".to_owned())),
        }
    }

    /// The key that signs, with its id.
    pub fn signing(&self) -> (&str, &Key) {
        (&self.signs, &self.by_id[&self.signs])
    }

    /// The key of an id.
    pub fn get(&self, id: &str) -> Option<&Key> {
        self.by_id.get(id)
    }
}

impl Key {
    fn of(bytes: &[u8]) -> Self {
        Self {
            encoding: EncodingKey::from_secret(bytes).expect("32 bytes are a key"),
            decoding: DecodingKey::from_secret(bytes).expect("32 bytes are a key"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_signs_and_every_key_verifies() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["2026-01", "2026-02", "..data"] {
            std::fs::write(folder.path().join(name), [7; 32]).unwrap();
        }
        let keys = Keys::read(folder.path()).ok().unwrap();
        assert_eq!(keys.signing().0, "2026-02");
        assert!(keys.get("2026-01").is_some() && keys.get("..data").is_none());
    }

    #[test]
    fn a_folder_without_a_sound_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Keys::read(folder.path()).err().unwrap().to_string().contains("no key"));
        std::fs::write(folder.path().join("short"), "canary-short").unwrap();
        let text = Keys::read(folder.path()).err().unwrap().to_string();
        assert!(text.contains("short") && text.contains("32") && !text.contains("canary"), "{text}");
        assert!(Keys::read(Path::new("/no/such/folder")).is_err());
        // A pipe that nobody writes is not waited for.
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        std::fs::write(folder.path().join("short"), [7; 32]).unwrap();
        assert!(Keys::read(folder.path()).err().unwrap().to_string().contains("regular file"));
    }
}
