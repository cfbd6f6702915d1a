//! Code by its digest: the bytes as they were uploaded, and what was compiled of them. Both bounded, least recently used
//! goes first. However many callers ask for one module at once, it is compiled once.

mod build;
mod bytes;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ::bytes::Bytes;
use content_digest::Digest;
use futures::{FutureExt as _, future::BoxFuture, future::Shared};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use build::{Code, build};

use crate::{
    engine::Engine,
    outcome::{Failure, FailureKind},
};

/// Modules whose compiled code, or refusal, is remembered.
const CODES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not zero");
/// Compilations that may wait for their turn.
const COMPILATIONS_WAITING_MAX: usize = 64;

/// Bounds of the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheBounds {
    /// Bytes of uploaded code.
    pub uploaded_bytes: u64,
    /// Bytes of compiled code.
    pub compiled_bytes: u64,
    /// Pages that any call may have.
    pub pages_max: u64,
}

/// Code that cannot be had, for a reason of the service's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeFault {
    /// Too many compilations wait.
    #[error("{COMPILATIONS_WAITING_MAX} modules wait to be compiled")]
    Busy,
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
}

/// The cache.
pub struct ModuleCache {
    engine: Arc<Engine>,
    bounds: CacheBounds,
    uploaded: Mutex<bytes::ByteCache>,
    codes: Mutex<Codes>,
    waiting: Arc<Semaphore>,
    turn: Semaphore,
    compilations: AtomicU64,
}

/// What is known of one digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Size of its bytes, when they are here.
    pub size_bytes: Option<u64>,
    /// Whether compiled code is here.
    pub compiled: bool,
}

type Compiling = Shared<BoxFuture<'static, Result<Arc<Code>, CodeFault>>>;

struct Codes {
    by_digest: LruCache<Digest, Compiling>,
    bytes: u64,
}

impl ModuleCache {
    /// An empty cache.
    pub fn new(engine: Arc<Engine>, bounds: CacheBounds) -> Arc<Self> {
        Arc::new(Self {
            engine,
            bounds,
            uploaded: Mutex::new(bytes::ByteCache::new(bounds.uploaded_bytes)),
            codes: Mutex::new(Codes { by_digest: LruCache::new(CODES_MAX), bytes: 0 }),
            waiting: Arc::new(Semaphore::new(COMPILATIONS_WAITING_MAX)),
            turn: Semaphore::new(1),
            compilations: AtomicU64::new(0),
        })
    }

    /// Keeps bytes under their own digest.
    pub fn put(&self, bytes: Bytes) -> Digest {
        let digest = Digest::of(&bytes);
        self.uploaded.lock().put(digest, bytes);
        digest
    }

    /// The bytes of a digest.
    pub fn bytes(&self, digest: &Digest) -> Option<Bytes> {
        self.uploaded.lock().get(digest)
    }

    /// Compiled code of bytes that hash to `digest`, or the remembered refusal. Waits for the compilation that is under
    /// way, or begins it; one that began goes on when nobody waits any more.
    pub async fn code(self: &Arc<Self>, digest: Digest, bytes: Bytes) -> Result<Arc<Code>, CodeFault> {
        let compiling = {
            let mut codes = self.codes.lock();
            match codes.by_digest.get(&digest) {
                Some(known) => known.clone(),
                None => {
                    let place = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| CodeFault::Busy)?;
                    let compiling = self.begin(digest, bytes, place);
                    if let Some((_, pushed_out)) = codes.by_digest.push(digest, compiling.clone()) {
                        codes.bytes = codes.bytes.saturating_sub(size_of(&pushed_out));
                    }
                    compiling
                }
            }
        };
        compiling.await
    }

    /// What is known of a digest, without touching its age.
    pub fn stat(&self, digest: &Digest) -> Stat {
        let size_bytes = self.uploaded.lock().size(digest);
        let codes = self.codes.lock();
        let compiled = codes.by_digest.peek(digest).is_some_and(|compiling| size_of(compiling) > 0);
        Stat { size_bytes, compiled }
    }

    /// Uploaded modules and their bytes.
    pub fn held(&self) -> (usize, u64) {
        self.uploaded.lock().held()
    }

    /// Compilations since the start.
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    fn begin(self: &Arc<Self>, digest: Digest, bytes: Bytes, place: tokio::sync::OwnedSemaphorePermit) -> Compiling {
        let cache = Arc::clone(self);
        // A task of its own: a caller that goes away neither stops the compilation nor makes the next one start another.
        let task = tokio::spawn(async move {
            let built = cache.build(digest, bytes).await;
            drop(place);
            cache.settle(&digest, &built);
            built
        });
        let ended = async move {
            match task.await {
                Ok(built) => built,
                Err(cause) => Err(CodeFault::Engine(cause.to_string())),
            }
        };
        ended.boxed().shared()
    }

    async fn build(&self, digest: Digest, bytes: Bytes) -> Result<Arc<Code>, CodeFault> {
        let engine = Arc::clone(&self.engine);
        let pages_max = self.bounds.pages_max;
        let _turn = self.turn.acquire().await.map_err(|closed| CodeFault::Engine(closed.to_string()))?;
        let started = std::time::Instant::now();
        let building = tokio::task::spawn_blocking(move || build(&engine, &bytes, pages_max));
        let code = match building.await {
            Ok(built) => built?,
            Err(cause) => {
                tracing::error!(%digest, %cause, "the compiler failed on a module");
                let text = "the module is refused: the compiler failed on it";
                Code::refused(Failure::new(FailureKind::ModuleRefused, text))
            }
        };
        if code.image_bytes > 0 {
            self.compilations.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("areev_sandbox_compilations_total").increment(1);
            metrics::histogram!("areev_sandbox_compile_seconds").record(started.elapsed().as_secs_f64());
            let ms = started.elapsed().as_millis() as u64;
            tracing::info!(%digest, ms, image_bytes = code.image_bytes, "compiled a module");
        }
        Ok(Arc::new(code))
    }

    /// Counts what was built and makes room; a fault is not remembered.
    fn settle(&self, digest: &Digest, built: &Result<Arc<Code>, CodeFault>) {
        let mut codes = self.codes.lock();
        match built {
            Err(_) => {
                codes.by_digest.pop(digest);
            }
            // Pushed out while it was compiled: whoever waits has it, the cache does not.
            Ok(_) if !codes.by_digest.contains(digest) => {}
            Ok(code) => codes.bytes += code.image_bytes,
        }
        while codes.bytes > self.bounds.compiled_bytes && codes.by_digest.len() > 1 {
            let Some((_, oldest)) = codes.by_digest.pop_lru() else { break };
            codes.bytes = codes.bytes.saturating_sub(size_of(&oldest));
        }
    }
}

fn size_of(compiling: &Compiling) -> u64 {
    match compiling.peek() {
        Some(Ok(code)) => code.image_bytes,
        Some(Err(_)) | None => 0,
    }
}
