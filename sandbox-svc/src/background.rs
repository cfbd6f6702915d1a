//! Threads of low priority, for work that lasts: guests that did not end within a moment, and looks at modules.
//!
//! A call begins where it came in, on a thread of ordinary priority: most end there within microseconds. Whatever takes longer
//! goes on here, where it has the processor only while nobody else wants it. So an endless guest delays nobody's short call.
//! On a machine that is never idle, guests and looks are given a small share after a moment: somebody waits for them.

mod starving;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinError,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{guest::Gauge, priority::Priority};
use starving::unless_it_starves;

/// Blocking jobs at once on threads of one priority: looks at modules, loads of compiled code, large inputs.
const BLOCKING_MAX: usize = 4;
/// How long a look may take on an idle thread before one that has a share begins it too.
const MOMENT: Duration = Duration::from_millis(100);

/// The threads. Dropped, they end by themselves.
pub struct Background {
    idle: Handle,
    low: Handle,
    runtimes: Vec<Runtime>,
}

impl Background {
    /// Starts two threads for each core, an idle one and one with a small share; those for jobs that block start when there is
    /// one.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let idle = Builder::new_multi_thread()
            .thread_name("background")
            .max_blocking_threads(BLOCKING_MAX)
            .on_thread_start(|| Priority::Idle.take())
            .enable_time()
            .build()?;
        let low = Builder::new_multi_thread()
            .thread_name("low")
            .max_blocking_threads(BLOCKING_MAX)
            .on_thread_start(|| Priority::Low.take())
            .enable_time()
            .build()?;
        let handles = (idle.handle().clone(), low.handle().clone());
        Ok(Arc::new(Self { idle: handles.0, low: handles.1, runtimes: vec![idle, low] }))
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
            return self.last(guest).await;
        }
        let at_once = poll_fn(|context| match Pin::new(&mut guest).poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if gauge.lasts() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match at_once.await {
            Some(ended) => Ok(ended),
            None => self.last(guest).await,
        }
    }

    async fn last<F>(&self, guest: Pin<Box<F>>) -> Result<F::Output, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        match AbortOnDropHandle::new(self.idle.spawn(unless_it_starves(guest))).await? {
            Ok(ended) => Ok(ended),
            Err(guest) => AbortOnDropHandle::new(self.low.spawn(guest)).await,
        }
    }

    /// Runs a job that blocks, with a share of the processor.
    pub async fn block<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        self.low.spawn_blocking(job).await
    }

    /// Runs a job that blocks and only looks: while nobody else wants the processor, and where that takes longer than a moment
    /// once more with a share of it. What ends first is the answer.
    pub async fn look<T: Send + 'static>(&self, job: impl Fn() -> T + Send + Sync + 'static) -> Result<T, JoinError> {
        let job = Arc::new(job);
        let again = Arc::clone(&job);
        let mut idle = self.idle.spawn_blocking(move || job());
        if let Ok(ended) = tokio::time::timeout(MOMENT, &mut idle).await {
            return ended;
        }
        let low = self.low.spawn_blocking(move || again());
        tokio::select! {
            ended = idle => ended,
            ended = low => ended,
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}
