//! A request body that is still on its way: its length and digest are known before its bytes.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use content_digest::{Digest, Hasher};
use futures::{Stream, StreamExt as _};

use crate::refusal::{Refusal, Why};

/// The bytes in their order, or why there are no more.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Refusal>> + Send>>;

/// The body.
pub struct Coming {
    /// What it will hash to.
    pub digest: Digest,
    /// How many bytes it will have.
    pub bytes: u64,
    /// Those bytes.
    pub pieces: Pieces,
}

impl Coming {
    /// Takes all of it. The caller has made sure that there is room, and bounds the time.
    pub async fn whole(mut self) -> Result<Bytes, Refusal> {
        let length = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let (mut whole, mut hasher) = (BytesMut::with_capacity(length), Hasher::new());
        while let Some(piece) = self.pieces.next().await {
            let piece = piece?;
            if piece.len() > length - whole.len() {
                return Err(malformed(format!(
                    "the request body is longer than the {length} bytes that it was to have"
                )));
            }
            hasher.update(&piece);
            whole.extend_from_slice(&piece);
        }
        if whole.len() < length {
            let came = whole.len();
            return Err(malformed(format!("the request body broke off: {came} of {length} bytes came")));
        }
        if hasher.finish() != self.digest {
            return Err(malformed("the request body is not what its digest names".to_owned()));
        }
        Ok(whole.freeze())
    }
}

fn malformed(text: String) -> Refusal {
    Refusal::new(Why::MalformedRequest, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn whole(digest: Digest, bytes: u64, pieces: &[&'static [u8]]) -> Result<Bytes, Why> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        let coming = Coming { digest, bytes, pieces: Box::pin(futures::stream::iter(pieces)) };
        coming.whole().await.map_err(|refusal| refusal.why)
    }

    #[tokio::test]
    async fn only_the_whole_of_what_was_named_is_a_body() {
        let digest = Digest::of("abcdef");
        assert_eq!(whole(digest, 6, &[b"abc", b"", b"def"]).await.unwrap(), "abcdef");
        assert_eq!(whole(Digest::of(""), 0, &[]).await.unwrap(), "");
        for (bytes, pieces) in
            [(6, &[&b"abc"[..]][..]), (6, &[b"abcdeX"]), (6, &[b"abc", b"defg"]), (5, &[b"abcdef"]), (7, &[b"abcdef"])]
        {
            assert_eq!(whole(digest, bytes, pieces).await, Err(Why::MalformedRequest), "{bytes} {pieces:?}");
        }
    }
}
