//! Code by its digest: bytes as they were uploaded, what was compiled of them in memory and on disk, and what was refused. All
//! bounded, least recently used goes first. However many callers ask for one module at once, it is made ready once.

mod build;
mod bytes;
mod codes;
pub mod disk;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ::bytes::Bytes;
use content_digest::Digest;
use futures::FutureExt as _;
use parking_lot::Mutex;

pub use build::{Checked, Code, build, build_in_process, check};

use crate::{
    admission::{Admission, Capacity, Full, Place},
    artefact::Artefact,
    background::Background,
    compile::{CompileFault, Compiler},
    engine::Engine,
};
use codes::{Codes, Making};
use disk::DiskCache;

/// Modules that may be made ready or wait for it.
const WAITING_MAX: usize = 64;
/// The part of them that one named tenant may have, in percent.
const TENANT_PERCENT: u8 = 75;
/// One is compiled at a time; those that wait take turns by tenant, as calls do for their slots.
const COMPILING: Capacity = Capacity { slots: 1, queue: WAITING_MAX - 1, tenant_percent: TENANT_PERCENT };

/// Bounds of the cache in memory.
#[derive(Debug, Clone, Copy)]
pub struct CacheBounds {
    /// Bytes of uploaded code.
    pub uploaded_bytes: u64,
    /// Bytes of compiled code.
    pub compiled_bytes: u64,
    /// Pages that any call may have.
    pub pages_max: u64,
}

/// Code that cannot be had, for a reason that is not the module's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeFault {
    /// Too many modules wait, or the machine had no time for this one.
    #[error("{0}")]
    Busy(String),
    /// Neither its bytes nor compiled code of it are here.
    #[error("the module is not here any more")]
    Gone,
    /// The engine or the compiling child failed.
    #[error("{0}")]
    Engine(String),
}

/// The cache.
pub struct ModuleCache {
    engine: Arc<Engine>,
    bounds: CacheBounds,
    compiler: Compiler,
    background: Arc<Background>,
    disk: Option<Arc<DiskCache>>,
    uploaded: Mutex<bytes::ByteCache>,
    codes: Mutex<Codes>,
    compiling: Admission,
    compilations: AtomicU64,
}

/// What is known of one digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Whether it can be executed without an upload.
    pub present: bool,
    /// Size of its bytes, when they are here.
    pub size_bytes: Option<u64>,
    /// Whether compiled code is in memory.
    pub compiled: bool,
}

impl ModuleCache {
    /// Nothing in memory; what is on disk is found when it is asked for.
    pub fn new(
        engine: Arc<Engine>,
        bounds: CacheBounds,
        compiler: Compiler,
        background: Arc<Background>,
        disk: Option<DiskCache>,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            bounds,
            compiler,
            background,
            disk: disk.map(Arc::new),
            uploaded: Mutex::new(bytes::ByteCache::new(bounds.uploaded_bytes, bytes::ENTRIES_MAX)),
            codes: Mutex::new(Codes::new(bounds.compiled_bytes)),
            compiling: Admission::new(COMPILING),
            compilations: AtomicU64::new(0),
        })
    }

    /// What bytes hash to. That takes a while, and is done in nobody's way.
    pub async fn hash(&self, bytes: Bytes) -> Result<Digest, CodeFault> {
        self.background.look(move || Digest::of(&bytes)).await.map_err(panicked)
    }

    /// Keeps bytes under their digest: what [`Self::hash`] says.
    pub fn put(&self, digest: Digest, bytes: Bytes) {
        self.uploaded.lock().put(digest, bytes);
    }

    /// The bytes of a digest.
    pub fn bytes(&self, digest: &Digest) -> Option<Bytes> {
        self.uploaded.lock().get(digest)
    }

    /// Code of a digest, or the remembered refusal: from memory, else from disk, else compiled from `bytes`. Waits for what is
    /// under way, or begins it in the tenant's turn; what began goes on when nobody waits any more.
    ///
    /// # Errors
    /// See [`CodeFault`]; a module that is refused is no error.
    pub async fn code(
        self: &Arc<Self>,
        digest: Digest,
        bytes: Option<Bytes>,
        tenant: &str,
    ) -> Result<Arc<Code>, CodeFault> {
        let making = {
            let mut codes = self.codes.lock();
            if let Some(refused) = codes.refused(&digest) {
                return Ok(refused);
            }
            match codes.get(&digest) {
                Some(known) => known,
                None => {
                    let place = self.compiling.enter(tenant, 0).map_err(full)?;
                    let making = self.begin(digest, bytes, place);
                    codes.begin(digest, making.clone());
                    making
                }
            }
        };
        making.await
    }

    /// What is known of a digest, without touching its age.
    pub fn stat(&self, digest: &Digest) -> Stat {
        let size_bytes = self.uploaded.lock().size(digest);
        let (compiled, refused) = {
            let codes = self.codes.lock();
            (codes.is_compiled(digest), codes.is_refused(digest))
        };
        let on_disk = || self.disk.as_ref().is_some_and(|disk| disk.contains(digest));
        Stat { present: size_bytes.is_some() || compiled || refused || on_disk(), size_bytes, compiled }
    }

    /// Uploaded modules and their bytes.
    pub fn held(&self) -> (usize, u64) {
        self.uploaded.lock().held()
    }

    /// Compilations since the start.
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    /// The cache on disk, if there is one.
    pub fn disk(&self) -> Option<&DiskCache> {
        self.disk.as_deref()
    }

    fn begin(self: &Arc<Self>, digest: Digest, bytes: Option<Bytes>, place: Place) -> Making {
        let cache = Arc::clone(self);
        // A task of its own: a caller that goes away neither stops the work nor makes the next one start it again.
        let task = tokio::spawn(async move {
            let made = cache.make(digest, bytes, place).await.map(Arc::new);
            cache.codes.lock().settle(&digest, &made);
            if made.as_ref().is_ok_and(|code| code.is_refused()) {
                // What is refused is refused by its digest: its bytes would only push out those of modules that run.
                cache.uploaded.lock().remove_if(&digest, is_module);
            }
            made
        });
        let ended = async move {
            match task.await {
                Ok(made) => made,
                Err(cause) => Err(CodeFault::Engine(cause.to_string())),
            }
        };
        ended.boxed().shared()
    }

    async fn make(&self, digest: Digest, bytes: Option<Bytes>, place: Place) -> Result<Code, CodeFault> {
        if let Some(code) = self.load(digest).await? {
            return Ok(code);
        }
        let bytes = bytes.ok_or(CodeFault::Gone)?;
        let (looked_at, pages_max) = (bytes.clone(), self.bounds.pages_max);
        let checked = match self.background.look(move || check(&looked_at, pages_max)).await.map_err(panicked)? {
            Ok(checked) => checked,
            Err(refused) => return Ok(*refused),
        };
        let _turn = place.slot().await;
        self.compile(digest, bytes, checked).await
    }

    /// Code from disk, where it costs a read and a check of its seal: milliseconds that a caller waits for, so not in the
    /// background.
    async fn load(&self, digest: Digest) -> Result<Option<Code>, CodeFault> {
        let Some(disk) = self.disk.clone().filter(|disk| disk.contains(&digest)) else { return Ok(None) };
        let engine = Arc::clone(&self.engine);
        let loading = move || {
            let (checked, artefact) = disk.load(&digest)?;
            let loaded = artefact.load(engine.wasmtime()).map_err(|cause| CodeFault::Engine(format!("{cause:#}")));
            Some(loaded.and_then(|module| build::link(&engine, &module, &checked)))
        };
        match tokio::task::spawn_blocking(loading).await.map_err(panicked)? {
            Some(Ok(code)) => Ok(Some(code)),
            Some(Err(cause)) => {
                tracing::error!(%digest, %cause, "cached code does not load; compiling again");
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn compile(&self, digest: Digest, bytes: Bytes, checked: Checked) -> Result<Code, CodeFault> {
        let started = std::time::Instant::now();
        metrics::counter!("areev_sandbox_compilations_total").increment(1);
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let compiled = self.compiler.compile(&bytes, checked.code_bytes).await?;
        metrics::histogram!("areev_sandbox_compile_seconds").record(started.elapsed().as_secs_f64());
        let ms = started.elapsed().as_millis() as u64;
        let artefact = match compiled {
            Ok(artefact) => artefact,
            Err(failure) => {
                tracing::warn!(%digest, ms, why = failure.text, "a module was refused by the compiler");
                return Ok(Code::refused(failure));
            }
        };
        let code = self.take(digest, artefact, checked).await?;
        tracing::info!(%digest, ms, image_bytes = code.image_bytes, "compiled a module");
        Ok(code)
    }

    /// Loads fresh code and keeps it on disk.
    async fn take(&self, digest: Digest, artefact: Artefact, checked: Checked) -> Result<Code, CodeFault> {
        let (engine, disk) = (Arc::clone(&self.engine), self.disk.clone());
        let taking = move || {
            let module = artefact.load(engine.wasmtime()).map_err(|cause| CodeFault::Engine(format!("{cause:#}")))?;
            let code = build::link(&engine, &module, &checked)?;
            if let Some(disk) = disk {
                disk.store(&digest, &checked, &artefact);
            }
            Ok(code)
        };
        self.background.block(taking).await.map_err(panicked)?
    }
}

impl From<CompileFault> for CodeFault {
    fn from(fault: CompileFault) -> Self {
        match fault {
            CompileFault::NoMeans(_) => {
                tracing::warn!(cause = %fault, "no compiling child could be started");
                Self::Busy(fault.to_string())
            }
            CompileFault::Starved(_) => Self::Busy(fault.to_string()),
            CompileFault::Child { .. } => Self::Engine(fault.to_string()),
        }
    }
}

/// Whether bytes are wasm by their beginning: others may be native code, which is refused as a module and runs as what it is.
fn is_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm")
}

fn full(full: Full) -> CodeFault {
    CodeFault::Busy(match full {
        Full::Tenant => {
            format!("{TENANT_PERCENT} % of the {WAITING_MAX} modules that may wait to be compiled are the tenant's")
        }
        Full::All | Full::Bytes => format!("{WAITING_MAX} modules wait to be compiled"),
    })
}

fn panicked(cause: tokio::task::JoinError) -> CodeFault {
    CodeFault::Engine(cause.to_string())
}
