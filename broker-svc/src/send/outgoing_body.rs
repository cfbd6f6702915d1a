//! The body of a request: handed over piece by piece, and no further once its call is over. What a connection was handed it still
//! sends, whoever goes away meanwhile.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// Bytes of one piece; a connection takes a few of them at once.
const PIECE_BYTES: usize = 64 * 1024;

/// What is not handed over yet. The call holds it, and takes it back with its end.
pub struct Left(Arc<Mutex<Bytes>>);

impl Drop for Left {
    fn drop(&mut self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }
}

/// The body, and what keeps it coming: once that is dropped, there is no more of it.
pub fn outgoing(whole: Bytes) -> (reqwest::Body, Left) {
    let left = Arc::new(Mutex::new(Bytes::new()));
    if whole.len() <= PIECE_BYTES {
        return (whole.into(), Left(left));
    }
    let missing = whole.len();
    *left.lock() = whole;
    (reqwest::Body::wrap(Pieces { left: Arc::clone(&left), missing }), Left(left))
}

struct Pieces {
    left: Arc<Mutex<Bytes>>,
    /// Bytes that were announced and not handed over.
    missing: usize,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.missing == 0 {
            return Poll::Ready(None);
        }
        let piece = {
            let mut left = self.left.lock();
            let bytes = left.len().min(PIECE_BYTES);
            left.split_to(bytes)
        };
        if piece.is_empty() {
            return Poll::Ready(Some(Err(io::Error::other("the call is over"))));
        }
        self.missing -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.missing == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.missing as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_comes_whole_while_its_call_lasts_and_no_further_than_that() {
        let whole = Bytes::from(vec![7; 3 * PIECE_BYTES + 1]);
        for length in [0, PIECE_BYTES, PIECE_BYTES + 1, whole.len()] {
            let (body, _left) = outgoing(whole.slice(..length));
            assert_eq!(body.collect().await.unwrap().to_bytes(), whole.slice(..length));
        }
        let (mut body, left) = outgoing(whole.clone());
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), PIECE_BYTES);
        drop(left);
        assert!(body.frame().await.unwrap().is_err());
    }
}
