//! Blobs for guests that declare to read them: from the runner's catalogue, or (one-shot form) from a directory.

use std::{
    io::{ErrorKind, Read as _},
    path::PathBuf,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use content_digest::Digest;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{fetch, outcome::Failure};

/// Reads of blobs of one effect.
pub const READS_MAX: u32 = 64;

/// Who has the blobs.
pub enum Blobs {
    /// Nobody; the text says why.
    Nobody(&'static str),
    /// The runner, over the stream of the effect.
    Runner(Runner),
    /// A directory of files, each named by its 64 hex digits, or by the last 62 in a folder of the first two.
    Directory(PathBuf),
}

/// The way to the runner's catalogue.
pub struct Runner {
    /// Takes reads.
    pub reads: mpsc::Sender<BlobRead>,
    /// Gives the parts of the blob that was asked for last.
    pub parts: mpsc::Receiver<BlobPart>,
}

/// One read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRead {
    /// Number of the call within the effect.
    pub ordinal: u32,
    /// The blob.
    pub digest: Digest,
    /// Most bytes that it may have.
    pub bytes_max: u64,
}

/// What the runner answers to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobPart {
    /// Some bytes; the flag says whether they are the last.
    Bytes(Vec<u8>, bool),
    /// None, and what the guest is told instead.
    Refused(Vec<u8>),
}

/// How a read ended.
#[derive(Debug, PartialEq, Eq)]
pub enum BlobAnswer {
    /// With the blob, hashed.
    Bytes(Vec<u8>),
    /// With a reply that says why not.
    Refused(Vec<u8>),
}

impl Blobs {
    /// Reads one blob of at most so many bytes.
    ///
    /// # Errors
    /// The runner went away, or sent what was not asked for.
    pub async fn get(&mut self, ordinal: u32, digest: Digest, bytes_max: u64) -> Result<BlobAnswer, Failure> {
        match self {
            Self::Nobody(why) => Ok(refused(why)),
            Self::Runner(runner) => runner.get(BlobRead { ordinal, digest, bytes_max }).await,
            Self::Directory(directory) => Ok(from_directory(directory, digest, bytes_max)),
        }
    }
}

impl Runner {
    async fn get(&mut self, read: BlobRead) -> Result<BlobAnswer, Failure> {
        let gone = || Failure::canceled("the caller went away before it gave a blob");
        self.reads.send(read).await.map_err(|_| gone())?;
        let mut bytes = Vec::new();
        loop {
            match self.parts.recv().await.ok_or_else(gone)? {
                BlobPart::Refused(reply) => return Ok(BlobAnswer::Refused(reply)),
                BlobPart::Bytes(chunk, last) => {
                    if (bytes.len() + chunk.len()) as u64 > read.bytes_max {
                        return Err(Failure::canceled("the caller gave a longer blob than was asked for"));
                    }
                    bytes.extend_from_slice(&chunk);
                    if last {
                        break;
                    }
                }
            }
        }
        if Digest::of(&bytes) == read.digest {
            Ok(BlobAnswer::Bytes(bytes))
        } else {
            Err(Failure::canceled(&format!("the caller gave other bytes than those of {}", read.digest.to_uri())))
        }
    }
}

/// Reads a guest's request: the digest, and nothing else.
pub fn parse(request: &[u8]) -> Result<Digest, String> {
    let text = std::str::from_utf8(request).ok();
    text.and_then(|text| Digest::from_uri(text).ok())
        .ok_or_else(|| "the blob_get request is no digest: write cas://sha256:<64 lower-case hex digits>".to_owned())
}

/// What a guest is answered: text as `body`, anything else (and text that is longer when escaped) as `body_base64`.
pub fn reply(bytes: &[u8]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Reply<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        body: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        body_base64: Option<String>,
    }
    let written = |reply: &Reply<'_>| serde_json::to_vec(reply).expect("strings always serialise");
    let text = std::str::from_utf8(bytes).ok().map(|text| written(&Reply { body: Some(text), body_base64: None }));
    let encoded_bytes = bytes.len().div_ceil(3) * 4;
    match text {
        Some(text) if text.len() <= encoded_bytes.max(1024) => text,
        Some(_) | None => written(&Reply { body: None, body_base64: Some(STANDARD.encode(bytes)) }),
    }
}

/// Whether a recorded reply stands for the blob's bytes, which are not recorded themselves.
pub fn is_reference(reply: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Reference {
        #[serde(rename = "blob")]
        _blob: String,
    }
    serde_json::from_slice::<Reference>(reply).is_ok()
}

fn refused(why: &str) -> BlobAnswer {
    BlobAnswer::Refused(fetch::refused(why, Some(fetch::REFUSED)))
}

fn from_directory(directory: &std::path::Path, digest: Digest, bytes_max: u64) -> BlobAnswer {
    let (hex, uri) = (digest.to_hex(), digest.to_uri());
    let places = [directory.join(&hex), directory.join(&hex[..2]).join(&hex[2..])];
    let mut opened = places.iter().map(|place| proto::files::open(place));
    let Some(file) = opened.find(|file| !matches!(file, Err(cause) if cause.kind() == ErrorKind::NotFound)) else {
        return refused(&format!("there is no blob {uri}"));
    };
    let mut bytes = Vec::new();
    match file.and_then(|file| file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)) {
        Err(cause) => refused(&format!("the blob {uri} cannot be read: {cause}")),
        Ok(_) if bytes.len() as u64 > bytes_max => refused(&format!("the blob {uri} has more than {bytes_max} bytes")),
        Ok(_) if Digest::of(&bytes) != digest => refused(&format!("the bytes of the blob {uri} are damaged")),
        Ok(_) => BlobAnswer::Bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_and_text_that_grows_go_as_base64() {
        assert_eq!(reply(b"a\"b"), br#"{"body":"a\"b"}"#);
        assert_eq!(reply(b"\xff\x00"), br#"{"body_base64":"/wA="}"#);
        assert!(reply(&[1; 10_000]).starts_with(b"{\"body_base64\""), "each byte would have been six");
        assert!(is_reference(br#"{"blob":"cas://sha256:00","bytes":1}"#));
        assert!(!is_reference(&reply(b"{\"blob\":1}")) && !is_reference(&fetch::refused("no", None)));
    }

    #[test]
    fn only_a_digest_is_a_request() {
        let uri = Digest::of(b"").to_uri();
        assert_eq!(parse(uri.as_bytes()), Ok(Digest::of(b"")));
        for wrong in [&b""[..], b"\xff", &uri.as_bytes()[6..], uri.to_uppercase().as_bytes(), b"cas://sha256:00"] {
            assert!(parse(wrong).unwrap_err().contains("cas://sha256:"), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn files_of_a_directory_are_hashed_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (digest, other) = (Digest::of(b"bytes"), Digest::of(b"other"));
        std::fs::write(dir.path().join(digest.to_hex()), b"bytes").unwrap();
        std::fs::write(dir.path().join(other.to_hex()), b"damaged").unwrap();
        assert_eq!(from_directory(dir.path(), digest, 5), BlobAnswer::Bytes(b"bytes".to_vec()));
        for (digest, bytes_max, why) in
            [(digest, 4, "more than 4"), (other, 9, "damaged"), (Digest::of(b""), 9, "no blob")]
        {
            let BlobAnswer::Refused(reply) = from_directory(dir.path(), digest, bytes_max) else { panic!("{why}") };
            assert!(String::from_utf8(reply).unwrap().contains(why), "{why}");
        }
    }
}
