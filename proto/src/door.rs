//! A listener that takes no more connections at once than it has places for, and that a system out of means does not wear out.

use std::{future::Future, io, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Pause after the system could not take a connection, such as for want of file descriptors: the connection goes on waiting.
const PAUSE: Duration = Duration::from_millis(100);
/// What goes on is logged no more often than this.
const LOGGED_EVERY: Duration = Duration::from_secs(5);

/// What connections come from.
pub(crate) trait Listen: Send + Sync {
    /// A connection.
    type Io: Send;

    /// Waits for one.
    fn take(&self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

/// A place of one connection: given back when it is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

/// The door of one listener.
pub(crate) struct Door<L> {
    name: &'static str,
    listener: L,
    places: Arc<Semaphore>,
    full: Seldom,
    failing: Seldom,
}

/// Says when something that goes on may be logged once more.
#[derive(Default)]
struct Seldom {
    last: Option<Instant>,
}

impl<L: Listen> Door<L> {
    /// Opens it. `name` is that of the listener in logs and metrics.
    pub(crate) fn new(name: &'static str, listener: L, places: usize) -> Self {
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { name, listener, places, full: Seldom::default(), failing: Seldom::default() }
    }

    /// The next connection, with its place. One that finds none is closed at once; what the system cannot take waits outside.
    pub(crate) async fn next(&mut self) -> (L::Io, Place) {
        loop {
            match self.listener.take().await {
                Ok(io) => match Arc::clone(&self.places).try_acquire_owned() {
                    Ok(place) => return (io, place),
                    Err(_none_is_free) => {
                        drop(io);
                        self.refused();
                    }
                },
                Err(cause) if is_of_one_connection(&cause) => {}
                Err(cause) => {
                    if self.failing.is_due() {
                        tracing::warn!(listener = self.name, %cause, "cannot take connections: they wait");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn refused(&mut self) {
        metrics::counter!("areev_connections_refused_total", "listener" => self.name).increment(1);
        if self.full.is_due() {
            tracing::warn!(listener = self.name, "too many connections at once: closed what came on top of them");
        }
    }
}

impl Listen for TcpListener {
    type Io = TcpStream;

    async fn take(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        let _best_effort = stream.set_nodelay(true);
        Ok(stream)
    }
}

impl Listen for UnixListener {
    type Io = UnixStream;

    async fn take(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Seldom {
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.last.is_none_or(|last| now.duration_since(last) >= LOGGED_EVERY);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// The other end went away before it was taken: the next one is not concerned.
fn is_of_one_connection(cause: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(cause.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Fails so many times, then has a connection.
    struct Failing {
        cause: Errno,
        left: AtomicU32,
    }

    impl Listen for Failing {
        type Io = ();

        async fn take(&self) -> io::Result<()> {
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 0 { Ok(()) } else { Err(self.cause.into()) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_system_without_means_is_asked_again_after_a_pause_and_said_seldom() {
        for cause in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            let began = Instant::now();
            let mut door = Door::new("test", Failing { cause, left: AtomicU32::new(20) }, 1);
            let _taken = door.next().await;
            assert!(began.elapsed() >= PAUSE * 20, "{cause}: asked again within {:?}", began.elapsed());
        }
        let mut seldom = Seldom::default();
        assert!(seldom.is_due() && !seldom.is_due());
        tokio::time::advance(LOGGED_EVERY).await;
        assert!(seldom.is_due() && !seldom.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_gone_already_delays_nobody() {
        let began = Instant::now();
        let gone = Failing { cause: Errno::CONNABORTED, left: AtomicU32::new(20) };
        let _taken = Door::new("test", gone, 1).next().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_connection_too_many_is_closed_at_once_and_a_place_given_back_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut door = Door::new("test", listener, 1);
        let _first = TcpStream::connect(address).await.unwrap();
        let (_served, place) = door.next().await;
        let mut second = TcpStream::connect(address).await.unwrap();
        let refused = async { second.read(&mut [0; 1]).await.unwrap_or(0) };
        tokio::select! {
            read = refused => assert_eq!(read, 0, "closed, with nothing said"),
            _ = door.next() => panic!("there is one place, and it is taken"),
        }
        drop(place);
        let _third = TcpStream::connect(address).await.unwrap();
        let _served = door.next().await;
    }
}
