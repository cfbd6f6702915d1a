//! From bytes to code that is ready to be instantiated: looked at, compiled elsewhere, linked.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmtime::Module;

use super::CodeFault;
use crate::{
    compile::Compiler,
    engine::Engine,
    guest::Linked,
    imports::{BLOB_GET, FETCH, check_exports, check_imports, imports},
    inspect::{Import, inspect},
    outcome::{Failure, FailureKind},
    runtime::Runtime,
};

/// One module, linked for each runtime that accepts it.
pub struct Code {
    pure: Result<Linked, Failure>,
    io: Result<Linked, Failure>,
    /// Bytes of its compiled image; 0 when nothing was compiled.
    pub image_bytes: u64,
    lasts: AtomicBool,
}

/// What is known of a module that at least one runtime accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Its imports, in its order.
    pub imports: Vec<Import>,
    /// Pages that its memory has from the start.
    pub memory_pages_min: u64,
    /// Bytes of its functions.
    pub code_bytes: u64,
}

impl Code {
    /// A module that no runtime accepts.
    pub fn refused(failure: Failure) -> Self {
        Self { pure: Err(failure.clone()), io: Err(failure), image_bytes: 0, lasts: AtomicBool::new(false) }
    }

    /// Whether nothing was compiled.
    pub fn is_refused(&self) -> bool {
        self.image_bytes == 0
    }

    /// Whether its last call took more than a moment.
    pub fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    /// Remembers whether a call took more than a moment.
    pub fn set_lasts(&self, lasts: bool) {
        self.lasts.store(lasts, Ordering::Relaxed);
    }

    /// The module linked for a runtime, or why that runtime refuses it.
    pub fn linked(&self, runtime: Runtime) -> Result<&Linked, Failure> {
        let linked = match runtime {
            Runtime::Pure => &self.pure,
            Runtime::Io => &self.io,
            Runtime::Native => {
                return Err(Failure::new(FailureKind::ModuleRefused, "native code is not linked as a module"));
            }
        };
        linked.as_ref().map_err(Clone::clone)
    }
}

/// Looks at a module without compiling anything. The error is code that every runtime refuses.
pub fn check(bytes: &[u8], pages_max: u64) -> Result<Checked, Box<Code>> {
    let seen = inspect(bytes, pages_max).and_then(|seen| check_exports(&seen).map(|()| seen));
    let seen = seen.map_err(|failure| Box::new(Code::refused(failure)))?;
    let (pure, io) = (check_imports(&seen.imports, Runtime::Pure), check_imports(&seen.imports, Runtime::Io));
    if let (Err(pure), Err(io)) = (pure, io) {
        let refused = Code { pure: Err(pure), io: Err(io), image_bytes: 0, lasts: AtomicBool::new(false) };
        return Err(Box::new(refused));
    }
    Ok(Checked { imports: seen.imports, memory_pages_min: seen.memory_pages_min, code_bytes: seen.code_bytes })
}

/// Links a compiled module for each runtime that accepts it.
pub fn link(engine: &Engine, module: &Module, checked: &Checked) -> Result<Code, CodeFault> {
    let image = module.image_range();
    let image_bytes = (image.end as usize).saturating_sub(image.start as usize) as u64;
    Ok(Code {
        pure: link_for(engine, module, checked, Runtime::Pure)?,
        io: link_for(engine, module, checked, Runtime::Io)?,
        image_bytes: image_bytes.max(1),
        lasts: AtomicBool::new(false),
    })
}

/// Looks at a module, has it compiled in a child, and links it, for the one-shot form: once, and kept nowhere.
pub async fn build(engine: &Engine, compiler: &Compiler, bytes: Bytes, pages_max: u64) -> Result<Code, CodeFault> {
    let checked = match check(&bytes, pages_max) {
        Ok(checked) => checked,
        Err(refused) => return Ok(*refused),
    };
    match compiler.compile(&bytes, checked.code_bytes).await? {
        Ok(artefact) => {
            let module = artefact.load(engine.wasmtime()).map_err(|cause| CodeFault::Engine(format!("{cause:#}")))?;
            link(engine, &module, &checked)
        }
        Err(failure) => Ok(Code::refused(failure)),
    }
}

/// Looks at a module, compiles it in this process without a bound on what that takes, and links it: for measuring and for
/// fuzzing, whose modules are small and whose processes do nothing else.
pub fn build_in_process(engine: &Engine, bytes: &[u8], pages_max: u64) -> Result<Code, CodeFault> {
    let checked = match check(bytes, pages_max) {
        Ok(checked) => checked,
        Err(refused) => return Ok(*refused),
    };
    match engine.compile(bytes) {
        Ok(module) => link(engine, &module, &checked),
        Err(cause) => {
            let text = format!("the module is refused by the compiler: {cause:#}");
            Ok(Code::refused(Failure::new(FailureKind::ModuleRefused, text)))
        }
    }
}

fn link_for(
    engine: &Engine,
    module: &Module,
    checked: &Checked,
    runtime: Runtime,
) -> Result<Result<Linked, Failure>, CodeFault> {
    if let Err(failure) = check_imports(&checked.imports, runtime) {
        return Ok(Err(failure));
    }
    let instance = engine.link(module, runtime).map_err(|cause| CodeFault::Engine(format!("{cause:#}")))?;
    let (fetches, reads_blobs) = (imports(&checked.imports, FETCH), imports(&checked.imports, BLOB_GET));
    Ok(Ok(Linked { instance, memory_pages_min: checked.memory_pages_min, fetches, reads_blobs }))
}
