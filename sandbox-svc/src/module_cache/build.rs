//! From bytes to code that is ready to be instantiated.

use wasmtime::Module;

use super::CodeFault;
use crate::{
    engine::Engine,
    guest::Linked,
    imports::{check_exports, check_imports},
    inspect::{Inspected, inspect},
    outcome::{Failure, FailureKind},
    runtime::Runtime,
};

/// One module, linked for each runtime that accepts it.
pub struct Code {
    pure: Result<Linked, Failure>,
    io: Result<Linked, Failure>,
    /// Bytes of its compiled image; 0 when nothing was compiled.
    pub image_bytes: u64,
}

impl Code {
    /// A module that no runtime accepts.
    pub fn refused(failure: Failure) -> Self {
        Self { pure: Err(failure.clone()), io: Err(failure), image_bytes: 0 }
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

/// Inspects, checks, compiles and links. What no runtime accepts is never compiled.
pub fn build(engine: &Engine, bytes: &[u8], pages_max: u64) -> Result<Code, CodeFault> {
    let seen = match inspect(bytes, pages_max).and_then(|seen| check_exports(&seen).map(|()| seen)) {
        Ok(seen) => seen,
        Err(failure) => return Ok(Code::refused(failure)),
    };
    let (pure, io) = (check_imports(&seen, Runtime::Pure), check_imports(&seen, Runtime::Io));
    if let (Err(pure), Err(io)) = (&pure, &io) {
        return Ok(Code { pure: Err(pure.clone()), io: Err(io.clone()), image_bytes: 0 });
    }
    let module = match engine.compile(bytes) {
        Ok(module) => module,
        Err(cause) => {
            let text = format!("the module is refused by the compiler: {cause:#}");
            return Ok(Code::refused(Failure::new(FailureKind::ModuleRefused, text)));
        }
    };
    let image = module.image_range();
    let image_bytes = (image.end as usize).saturating_sub(image.start as usize) as u64;
    Ok(Code {
        pure: link(engine, &module, &seen, pure, Runtime::Pure)?,
        io: link(engine, &module, &seen, io, Runtime::Io)?,
        image_bytes: image_bytes.max(1),
    })
}

fn link(
    engine: &Engine,
    module: &Module,
    seen: &Inspected,
    checked: Result<(), Failure>,
    runtime: Runtime,
) -> Result<Result<Linked, Failure>, CodeFault> {
    if let Err(failure) = checked {
        return Ok(Err(failure));
    }
    let instance = engine.link(module, runtime).map_err(|cause| CodeFault::Engine(format!("{cause:#}")))?;
    Ok(Ok(Linked { instance, memory_pages_min: seen.memory_pages_min }))
}
