//! What comes in is counted before it is read: a message says its length first, and one for which there is no room is refused
//! before its bytes are taken. So a flood of large calls costs no memory before the queue refuses it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http_body::{Body as HttpBody, Frame};
use proto::serve::MESSAGE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use tonic::{
    Status,
    body::Body,
    codegen::{Service, http},
    server::NamedService,
};

use super::status;
use crate::error::Refusal;

/// Bytes of messages that all streams together are being sent or have not read yet.
pub const INTAKE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The unit in which they are counted.
const UNIT_BYTES: usize = 4096;
/// Smaller messages are not counted: streams are bounded by the connection.
const SMALL_BYTES: usize = 64 * 1024;
/// Before each message: whether it is compressed, in one byte, and its length, in four.
const HEAD_BYTES: usize = 5;

/// A service whose messages are counted as they come in.
#[derive(Clone)]
pub struct Intake<S> {
    service: S,
    room: Arc<Semaphore>,
}

impl<S> Intake<S> {
    /// Counts for a service.
    pub fn of(service: S) -> Self {
        Self { service, room: Arc::new(Semaphore::new(INTAKE_BYTES_MAX / UNIT_BYTES)) }
    }
}

impl<S: NamedService> NamedService for Intake<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for Intake<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let room = Arc::clone(&self.room);
        self.service.call(request.map(|body| Body::new(Counted::of(body, room))))
    }
}

/// The messages of one stream.
struct Counted<B> {
    body: B,
    room: Arc<Semaphore>,
    waiting: PollSemaphore,
    /// The head of a message that has not come whole.
    head: Vec<u8>,
    /// Bytes of the message under way that have not come, and units that it takes.
    left: usize,
    under_way: usize,
    /// What came and waits for room.
    kept: Option<Kept>,
    /// Room of the messages that are under way or were not read yet.
    held: Option<OwnedSemaphorePermit>,
    /// A message has begun.
    begun: bool,
}

/// Bytes that came, and how many units the messages take that begin among them.
struct Kept {
    frame: Frame<Bytes>,
    units: usize,
    /// The first of these messages begins a call.
    call: bool,
}

impl<B> Counted<B> {
    fn of(body: B, room: Arc<Semaphore>) -> Self {
        let waiting = PollSemaphore::new(Arc::clone(&room));
        let head = Vec::with_capacity(HEAD_BYTES);
        Self { body, room, waiting, head, left: 0, under_way: 0, kept: None, held: None, begun: false }
    }

    /// Goes through bytes that came, and says how many units the messages take that begin among them.
    fn count(&mut self, mut bytes: Bytes) -> usize {
        let mut units = 0;
        while bytes.has_remaining() {
            let part = self.left.min(bytes.remaining());
            bytes.advance(part);
            self.left -= part;
            if self.left > 0 {
                break;
            }
            self.under_way = 0;
            let part = (HEAD_BYTES - self.head.len()).min(bytes.remaining());
            self.head.extend_from_slice(&bytes.split_to(part));
            if let Ok([_, length @ ..]) = <[u8; HEAD_BYTES]>::try_from(&self.head[..]) {
                self.head.clear();
                self.begun = true;
                self.left = u32::from_be_bytes(length) as usize;
                // What is larger is refused by whoever reads it.
                let counted = Some(self.left.min(MESSAGE_BYTES_MAX)).filter(|bytes| *bytes > SMALL_BYTES);
                self.under_way = counted.map_or(0, |bytes| bytes.div_ceil(UNIT_BYTES));
                units += self.under_way;
            }
        }
        units
    }

    /// Takes room: at once for the message that begins a call, which can be sent again; what belongs to a call that runs waits.
    fn take(&mut self, units: usize, call: bool, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let permit = if call {
            Arc::clone(&self.room).try_acquire_many_owned(units).map_err(|_| {
                metrics::counter!("areev_sandbox_busy_total").increment(1);
                status(Refusal::Busy(format!("{INTAKE_BYTES_MAX} bytes of large messages are being received")))
            })
        } else {
            let permit = ready!(self.waiting.poll_acquire_many(context, units));
            permit.ok_or_else(|| status(Refusal::Internal("the room for messages is closed".to_owned())))
        };
        match &mut self.held {
            Some(held) => held.merge(permit?),
            None => self.held = Some(permit?),
        }
        Poll::Ready(Ok(()))
    }

    /// Gives back the room of all messages that have come whole: whoever comes for more has read them.
    fn give_back(&mut self) {
        let under_way = if self.left > 0 { self.under_way } else { 0 };
        if let Some(held) = &mut self.held {
            let read = held.num_permits().saturating_sub(under_way);
            drop(held.split(read));
        }
    }
}

impl<B: HttpBody<Data = Bytes, Error = Status> + Unpin> HttpBody for Counted<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        if this.kept.is_none() {
            this.give_back();
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(context)?) else {
                return Poll::Ready(None);
            };
            let call = !this.begun;
            let units = frame.data_ref().cloned().map_or(0, |bytes| this.count(bytes));
            this.kept = Some(Kept { frame, units, call });
        }
        if let Some(Kept { units: units @ 1.., call, .. }) = this.kept {
            ready!(this.take(units, call, context))?;
        }
        Poll::Ready(this.kept.take().map(|kept| Ok(kept.frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_none() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;

    use super::*;

    /// Frames, one after the other.
    struct Frames(VecDeque<Bytes>);

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    fn message(length: usize) -> Vec<u8> {
        let head = u32::try_from(length).unwrap().to_be_bytes();
        [&[0][..], &head, &vec![7; length]].concat()
    }

    fn counted(bytes: &[u8], frame_bytes: usize, room: &Arc<Semaphore>) -> Counted<Frames> {
        let frames = bytes.chunks(frame_bytes).map(Bytes::copy_from_slice);
        Counted::of(Frames(frames.collect()), Arc::clone(room))
    }

    #[tokio::test]
    async fn messages_are_counted_however_their_bytes_are_cut() {
        let large = 20 * UNIT_BYTES;
        let bytes = [message(1), message(large), message(0), message(SMALL_BYTES), message(large)].concat();
        for frame_bytes in [1, 4, 5, 4099, bytes.len()] {
            let room = Arc::new(Semaphore::new(64));
            let mut body = counted(&bytes, frame_bytes, &room);
            let (mut came, mut least) = (0, 64);
            while let Some(frame) = body.frame().await {
                came += frame.unwrap().into_data().unwrap().len();
                least = least.min(room.available_permits());
            }
            let most = if frame_bytes == bytes.len() { 40 } else { 20 };
            assert_eq!((came, 64 - least, room.available_permits()), (bytes.len(), most, 64), "{frame_bytes}");
        }
    }

    #[tokio::test]
    async fn a_first_message_without_room_is_refused_at_its_head_and_a_later_one_waits() {
        use proto::fault::{Reason, reason_of, retry_after_of};
        let room = Arc::new(Semaphore::new(30));
        let large = message(20 * UNIT_BYTES);
        let mut one = counted(&large, 4096, &room);
        one.frame().await.unwrap().unwrap();
        assert_eq!(room.available_permits(), 10);
        let refused = counted(&large, 5, &room).frame().await.unwrap().unwrap_err();
        assert_eq!((reason_of(&refused), retry_after_of(&refused).is_some()), (Some(Reason::Busy), true));
        let mut other = counted(&[message(1), large].concat(), 6, &room);
        other.frame().await.unwrap().unwrap();
        let mut waiting = Box::pin(other.frame());
        assert!(futures::FutureExt::now_or_never(&mut waiting).is_none());
        drop(one);
        waiting.await.unwrap().unwrap();
        assert_eq!(room.available_permits(), 10);
    }
}
