//! Compiled code that may be loaded, and the one place that loads it.

use wasmtime::{Engine, Module};

/// Machine code of a module, from a source that cannot be anybody else's.
///
/// There are two such sources, and no other way to make this value: the pipe of a compiling child, which is this program itself
/// and whose other end nobody else holds; and a cached file whose MAC, made with a key that only this service has, is right.
pub struct Artefact(Vec<u8>);

impl Artefact {
    /// What a compiling child of this process wrote to its pipe.
    pub(crate) fn of_own_child(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// What this service sealed before, and whose seal was just found to be right.
    pub(crate) fn unsealed(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Makes it executable.
    ///
    /// # Errors
    /// When it was made by another engine, or for another configuration or processor.
    #[expect(
        unsafe_code,
        reason = "the engine cannot tell whether machine code is what its compiler made; this type can"
    )]
    pub fn load(&self, engine: &Engine) -> wasmtime::Result<Module> {
        // SAFETY: the bytes are what this engine's own compiler wrote, unchanged: see the type. They are copied from memory of
        // this process, so no file or pipe can change them any more.
        unsafe { Module::deserialize(engine, &self.0) }
    }
}
