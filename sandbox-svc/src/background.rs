//! Threads of the lowest priority, for work that lasts: guests that did not end within a moment, and looks at modules.
//!
//! A call begins where it came in, on a thread of ordinary priority: most end there within microseconds. Whatever takes longer
//! goes on here, where it has the processor only while nobody else wants it. So an endless guest delays nobody's short call.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinError,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{guest::Gauge, priority::lower_to_lowest};

/// Blocking jobs at once: looks at modules and loads of compiled code.
const BLOCKING_MAX: usize = 4;

/// The threads. Dropped, they end by themselves.
pub struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts a thread for each core.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let runtime = Builder::new_multi_thread()
            .thread_name("background")
            .max_blocking_threads(BLOCKING_MAX)
            .on_thread_start(lower_to_lowest)
            .enable_time()
            .build()?;
        Ok(Arc::new(Self { handle: runtime.handle().clone(), runtime: Some(runtime) }))
    }

    /// Runs a guest where it is called until it ends or its gauge says that it lasts; then here. One that is known to last
    /// begins here. Dropping the future stops it.
    pub async fn run<F>(&self, guest: F, gauge: &Gauge, lasts: bool) -> Result<F::Output, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let mut guest = Box::pin(guest);
        if lasts {
            return AbortOnDropHandle::new(self.handle.spawn(guest)).await;
        }
        let at_once = poll_fn(|context| match Pin::new(&mut guest).poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if gauge.lasts() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match at_once.await {
            Some(ended) => Ok(ended),
            None => AbortOnDropHandle::new(self.handle.spawn(guest)).await,
        }
    }

    /// Runs a job that blocks.
    pub async fn block<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        self.handle.spawn_blocking(job).await
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
