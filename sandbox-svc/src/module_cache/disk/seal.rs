//! The form of a cached file: a seal, what is known of the module, its machine code.
//!
//! The seal is an HMAC-SHA-256 over everything that the code depends on, the module's digest among it: a file under another
//! module's name is as wrong as one with a flipped bit.

use std::hash::{Hash as _, Hasher};

use aws_lc_rs::{constant_time, hmac};
use content_digest::Digest;
use sha2::{Digest as _, Sha256};

use super::{directory::Rejection, key::Key};
use crate::{
    artefact::Artefact,
    engine::{ENGINE, Engine},
    module_cache::Checked,
};

/// How a file begins; changes with its form.
const MAGIC: &[u8; 16] = b"areev code 1\n\0\0\0";
const SEAL_BYTES: usize = 32;
const LENGTH_BYTES: usize = 4;
/// Bytes of what is known of a module.
const CHECKED_BYTES_MAX: usize = 1024 * 1024;

/// Seals and opens.
pub struct Seal {
    key: hmac::Key,
    context: Context,
}

/// All that compiled code depends on beside its module: engine, its version and configuration, the processor's features, the
/// service's version (whose looks at modules come before compiling), and the memory that calls may have.
pub struct Context([u8; 32]);

impl Context {
    /// The context of an engine.
    pub fn of(engine: &Engine, pages_max: u64) -> Self {
        Self::compiled_by(engine.wasmtime(), pages_max)
    }

    fn compiled_by(engine: &wasmtime::Engine, pages_max: u64) -> Self {
        let mut hash = Hashing(Sha256::new());
        for text in [ENGINE, env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS] {
            text.hash(&mut hash);
        }
        pages_max.hash(&mut hash);
        engine.precompile_compatibility_hash().hash(&mut hash);
        Self(hash.0.finalize().into())
    }

    /// Its beginning, for names of files.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..8])
    }
}

impl Seal {
    /// A seal for files of one context.
    pub fn new(key: &Key, context: Context) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), context }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Makes a file.
    pub fn close(&self, digest: &Digest, checked: &Checked, artefact: &Artefact) -> Vec<u8> {
        let checked = serde_json::to_vec(checked).expect("numbers and texts are JSON");
        let length = u32::try_from(checked.len()).expect("a checked module has at most a thousand short imports");
        let mut content = Vec::with_capacity(LENGTH_BYTES + checked.len() + artefact.bytes().len());
        content.extend_from_slice(&length.to_le_bytes());
        content.extend_from_slice(&checked);
        content.extend_from_slice(artefact.bytes());
        let seal = self.over(digest, &content);
        [MAGIC.as_slice(), seal.as_ref(), &content].concat()
    }

    /// Reads a file. Nothing of it is believed, and nothing parsed, before its seal is found right.
    pub fn open(&self, digest: &Digest, mut file: Vec<u8>) -> Result<(Checked, Artefact), Rejection> {
        let content = file.get(MAGIC.len() + SEAL_BYTES..).ok_or(Rejection::Size)?;
        let seal = &file[MAGIC.len()..MAGIC.len() + SEAL_BYTES];
        if !file.starts_with(MAGIC) {
            return Err(Rejection::Seal);
        }
        constant_time::verify_slices_are_equal(self.over(digest, content).as_ref(), seal)
            .map_err(|_| Rejection::Seal)?;
        let (length, rest) = content.split_first_chunk::<LENGTH_BYTES>().ok_or(Rejection::Size)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > CHECKED_BYTES_MAX || length > rest.len() {
            return Err(Rejection::Size);
        }
        let checked = serde_json::from_slice(&rest[..length]).map_err(|_| Rejection::Seal)?;
        let code = file.split_off(MAGIC.len() + SEAL_BYTES + LENGTH_BYTES + length);
        Ok((checked, Artefact::unsealed(code)))
    }

    fn over(&self, digest: &Digest, content: &[u8]) -> hmac::Tag {
        let mut mac = hmac::Context::with_key(&self.key);
        // Each part but the last has a fixed length.
        mac.update(MAGIC);
        mac.update(&self.context.0);
        mac.update(digest.as_bytes());
        mac.update(content);
        mac.sign()
    }
}

/// The engine tells its configuration to a hasher only; this one does not lose any of it.
struct Hashing(Sha256);

impl Hasher for Hashing {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash: [u8; 32] = self.0.clone().finalize().into();
        u64::from_le_bytes(*hash.first_chunk().expect("a hash has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES_MAX: u64 = 16;

    fn compiled_by(change: impl FnOnce(&mut wasmtime::Config) -> &mut wasmtime::Config) -> Context {
        let mut config = wasmtime::Config::new();
        change(&mut config);
        Context::compiled_by(&wasmtime::Engine::new(&config).unwrap(), PAGES_MAX)
    }

    #[test]
    fn code_of_another_context_has_another_name_and_is_rejected_under_this_ones() {
        let key = Key::new(vec![1; 32]);
        let digest = Digest::of(b"module");
        let checked = Checked { imports: Vec::new(), memory_pages_min: 1, code_bytes: 2 };
        let own = || Seal::new(&key, compiled_by(|config| config));
        let others = [
            compiled_by(|config| config.consume_fuel(true)),
            compiled_by(|config| config.cranelift_nan_canonicalization(true)),
            Context::compiled_by(&wasmtime::Engine::default(), PAGES_MAX + 1),
        ];
        for (number, other) in others.into_iter().enumerate() {
            let other = Seal::new(&key, other);
            assert_ne!(other.context().short(), own().context().short(), "{number}");
            let file = other.close(&digest, &checked, &Artefact::unsealed(b"code".to_vec()));
            assert_eq!(other.open(&digest, file.clone()).unwrap().1.bytes(), b"code", "{number}");
            assert_eq!(own().open(&digest, file).err(), Some(Rejection::Seal), "{number}");
        }
    }
}
