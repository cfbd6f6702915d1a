//! A connection whose other end has to speak: one that does not begin HTTP/2 in its time is closed.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tonic::transport::server::Connected;

use crate::door::Place;

/// Longest wait for what HTTP/2 begins with, in the clear or after the TLS handshake, which has a bound of its own.
pub(super) const SPEECH_TIMEOUT: Duration = Duration::from_secs(10);
/// What has to be read by then: HTTP/2's preface. Over TLS the preface may have come with the handshake's last bytes; the
/// acknowledgement of this end's settings, which follows, is longer than this as a TLS record.
const SPEECH_BYTES: usize = 24;

/// A connection that is given no more than [`SPEECH_TIMEOUT`] to begin. It holds its place until it is dropped.
pub(super) struct Patience<S> {
    stream: S,
    /// Whether its serving has begun: the transport asks who is at its other end then, after any TLS handshake.
    is_served: AtomicBool,
    speech: Speech,
    _place: Place,
}

enum Speech {
    /// Its serving has not begun.
    Unasked,
    /// So many bytes are to be read before the end of the wait.
    Awaited(usize, Pin<Box<Sleep>>),
    /// It spoke.
    Heard,
}

impl<S> Patience<S> {
    pub(super) fn new(stream: S, place: Place) -> Self {
        Self { stream, is_served: AtomicBool::new(false), speech: Speech::Unasked, _place: place }
    }
}

impl<S: Connected> Connected for Patience<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.is_served.store(true, Ordering::Relaxed);
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(this.speech, Speech::Unasked) && *this.is_served.get_mut() {
            this.speech = Speech::Awaited(SPEECH_BYTES, Box::pin(tokio::time::sleep(SPEECH_TIMEOUT)));
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, into);
        let Speech::Awaited(left, wait) = &mut this.speech else { return polled };
        *left = left.saturating_sub(into.filled().len() - before);
        if *left == 0 {
            this.speech = Speech::Heard;
        } else if wait.as_mut().poll(context).is_ready() {
            tracing::debug!("a connection did not begin HTTP/2 in its time: closed");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        sync::Semaphore,
        time::Instant,
    };

    use super::*;

    fn connection() -> (DuplexStream, Patience<DuplexStream>) {
        let (far, near) = duplex(1024);
        (far, Patience::new(near, Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_less_than_the_preface_is_closed_in_its_time() {
        for said in [0, 1, SPEECH_BYTES - 1] {
            let (mut far, mut near) = connection();
            near.connect_info();
            far.write_all(&vec![b'P'; said]).await.unwrap();
            let (began, mut read) = (Instant::now(), Vec::new());
            let ended = near.read_to_end(&mut read).await.unwrap_err();
            assert_eq!((ended.kind(), read.len()), (io::ErrorKind::TimedOut, said));
            let took = began.elapsed();
            assert!(took >= SPEECH_TIMEOUT && took < SPEECH_TIMEOUT * 2, "{said} bytes: {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_spoke_may_be_silent_for_long() {
        let (mut far, mut near) = connection();
        near.connect_info();
        far.write_all(&[b'P'; SPEECH_BYTES]).await.unwrap();
        near.read_exact(&mut [0; SPEECH_BYTES]).await.unwrap();
        let silent = tokio::time::timeout(SPEECH_TIMEOUT * 100, near.read_u8()).await;
        assert!(silent.is_err(), "{silent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_a_handshake_are_no_beginning() {
        let (mut far, mut near) = connection();
        far.write_all(&[0x16; 500]).await.unwrap();
        near.read_exact(&mut [0; 500]).await.unwrap();
        near.connect_info();
        let ended = tokio::time::timeout(SPEECH_TIMEOUT * 2, near.read_u8()).await.expect("it ends by itself");
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
