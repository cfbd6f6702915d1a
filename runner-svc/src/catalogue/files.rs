//! Bytes as files under their address, `<2 hex>/<62 hex>`: durable before they are acknowledged, hashed whenever they are read.

mod upload;

use std::{
    fs,
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use content_digest::{Digest, Hasher};

use super::error::{CatalogueError, storage};

pub use upload::Upload;

/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Where files grow before they have an address. Emptied at every start.
const UNFINISHED: &str = "tmp";

/// A directory of files by address. One process writes to it at a time.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    bytes_max: u64,
    uploads: AtomicU64,
}

/// Verified bytes, to be read piece by piece.
#[derive(Debug)]
pub struct Content {
    file: fs::File,
    path: PathBuf,
    /// Their number.
    pub size: u64,
}

impl Files {
    /// Opens the directory, creates what is missing, and removes what an interrupted process left unfinished.
    pub fn open(root: &Path, bytes_max: u64) -> Result<Arc<Self>, CatalogueError> {
        let unfinished = root.join(UNFINISHED);
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(storage("sweep", &unfinished)(error)),
            _ => {}
        }
        fs::create_dir_all(&unfinished).map_err(storage("create", &unfinished))?;
        for shard in 0..=u8::MAX {
            let shard = root.join(hex::encode([shard]));
            match fs::create_dir(&shard) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(storage("create", &shard)(error));
                }
                _ => {}
            }
        }
        sync_directory(root)?;
        root.parent().map_or(Ok(()), sync_directory)?;
        Ok(Arc::new(Self { root: root.to_owned(), bytes_max, uploads: AtomicU64::new(0) }))
    }

    /// Begins to store bytes that arrive in pieces.
    pub fn begin(self: &Arc<Self>) -> Result<Upload, CatalogueError> {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        Upload::begin(Arc::clone(self), self.root.join(UNFINISHED).join(format!("{}-{number}", std::process::id())))
    }

    /// Stores bytes. They are on disk when this returns; what was damaged under the address is replaced.
    pub fn put(self: &Arc<Self>, bytes: &[u8]) -> Result<Digest, CatalogueError> {
        let mut upload = self.begin()?;
        upload.write(bytes)?;
        upload.finish(None)
    }

    /// The size of what is stored, without looking at it; `None` when it is not here.
    pub fn size(&self, digest: &Digest) -> Result<Option<u64>, CatalogueError> {
        let path = self.path(digest);
        match fs::metadata(&path) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage("look at", &path)(error)),
        }
    }

    /// All bytes, hashed; `None` when they are not here.
    pub fn read(&self, digest: &Digest) -> Result<Option<Vec<u8>>, CatalogueError> {
        let Some(file) = self.file(digest)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(self.bytes_max + 1).read_to_end(&mut bytes).map_err(storage("read", &self.path(digest)))?;
        if Digest::of(&bytes) == *digest { Ok(Some(bytes)) } else { Err(CatalogueError::Damaged { digest: *digest }) }
    }

    /// Hashes all bytes, then hands them out piece by piece; `None` when they are not here.
    pub fn content(&self, digest: &Digest) -> Result<Option<Content>, CatalogueError> {
        let Some(mut file) = self.file(digest)? else { return Ok(None) };
        let path = self.path(digest);
        let (mut hasher, mut size) = (Hasher::new(), 0_u64);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file.read(&mut piece).map_err(storage("read", &path))?;
            if read == 0 {
                break;
            }
            size += read as u64;
            hasher.update(&piece[..read]);
            if size > self.bytes_max {
                return Err(CatalogueError::Damaged { digest: *digest });
            }
        }
        if hasher.finish() != *digest {
            return Err(CatalogueError::Damaged { digest: *digest });
        }
        file.rewind().map_err(storage("read", &path))?;
        Ok(Some(Content { file, path, size }))
    }

    /// Every address that has a file, in order. The bytes are not looked at.
    pub fn addresses(&self) -> Result<Vec<Digest>, CatalogueError> {
        let mut found = Vec::new();
        for shard in 0..=u8::MAX {
            let shard = hex::encode([shard]);
            let directory = self.root.join(&shard);
            for entry in fs::read_dir(&directory).map_err(storage("list", &directory))? {
                let name = entry.map_err(storage("list", &directory))?.file_name();
                found.extend(name.to_str().and_then(|name| format!("{shard}{name}").parse::<Digest>().ok()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn file(&self, digest: &Digest) -> Result<Option<fs::File>, CatalogueError> {
        let path = self.path(digest);
        match fs::File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage("open", &path)(error)),
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        self.root.join(&hex[..2]).join(&hex[2..])
    }
}

impl Content {
    /// The next piece, at most 256 KiB; empty at the end.
    pub fn next_piece(&mut self) -> Result<Vec<u8>, CatalogueError> {
        let mut piece = Vec::new();
        let mut file = self.file.by_ref().take(PIECE_BYTES as u64);
        file.read_to_end(&mut piece).map_err(storage("read", &self.path))?;
        Ok(piece)
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), CatalogueError> {
    // The parent of a bare name is the working directory.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    fs::File::open(path).and_then(|directory| directory.sync_all()).map_err(storage("sync", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &tempfile::TempDir) -> Arc<Files> {
        Files::open(&directory.path().join("blobs"), 1 << 20).unwrap()
    }

    #[test]
    fn bytes_lie_under_their_address_and_nothing_is_left_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory);
        let digest = files.put(b"code").unwrap();
        assert_eq!(digest, Digest::of("code"));
        let hex = digest.to_hex();
        assert_eq!(fs::read(directory.path().join("blobs").join(&hex[..2]).join(&hex[2..])).unwrap(), b"code");
        assert_eq!(files.put(b"code").unwrap(), digest);
        assert_eq!(fs::read_dir(directory.path().join("blobs/tmp")).unwrap().count(), 0);
        assert_eq!((files.size(&digest).unwrap(), files.size(&Digest::ZERO).unwrap()), (Some(4), None));
        assert_eq!(files.read(&Digest::ZERO).unwrap(), None);
        assert_eq!(files.addresses().unwrap(), [digest]);
    }

    #[test]
    fn damaged_bytes_are_never_handed_out_and_a_put_mends_them() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory);
        let digest = files.put(b"code").unwrap();
        for damage in [&b"c0de"[..], b"", b"code and more"] {
            fs::write(files.path(&digest), damage).unwrap();
            for error in [files.read(&digest).unwrap_err(), files.content(&digest).unwrap_err()] {
                assert!(matches!(error, CatalogueError::Damaged { digest: named } if named == digest), "{error}");
            }
            files.put(b"code").unwrap();
            assert_eq!(files.read(&digest).unwrap().unwrap(), b"code");
        }
    }

    #[test]
    fn content_comes_in_bounded_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory);
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let digest = files.put(&bytes).unwrap();
        let mut content = files.content(&digest).unwrap().unwrap();
        assert_eq!(content.size, 600_000);
        let mut read = Vec::new();
        loop {
            let piece = content.next_piece().unwrap();
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() <= PIECE_BYTES);
            read.extend(piece);
        }
        assert!(read == bytes);
    }

    #[test]
    fn an_upload_that_is_given_up_wrong_or_too_large_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory);
        let mut upload = files.begin().unwrap();
        upload.write(b"half of it").unwrap();
        drop(upload);
        let mut upload = files.begin().unwrap();
        upload.write(b"other bytes").unwrap();
        let error = upload.finish(Some(Digest::ZERO)).unwrap_err();
        assert!(matches!(error, CatalogueError::Mismatch { expected: Digest::ZERO, .. }), "{error}");
        let mut upload = files.begin().unwrap();
        upload.write(&vec![0; 1 << 20]).unwrap();
        assert!(matches!(upload.write(&[0]).unwrap_err(), CatalogueError::TooLarge { bytes_max: 0x0010_0000 }));
        drop(upload);
        assert_eq!(fs::read_dir(directory.path().join("blobs/tmp")).unwrap().count(), 0);
        assert_eq!(files.addresses().unwrap(), []);
    }

    #[test]
    fn what_an_interrupted_process_left_is_swept_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let kept = files(&directory).put(b"kept").unwrap();
        fs::write(directory.path().join("blobs/tmp/1-2"), b"half").unwrap();
        let files = files(&directory);
        assert_eq!(fs::read_dir(directory.path().join("blobs/tmp")).unwrap().count(), 0);
        assert_eq!(files.read(&kept).unwrap().unwrap(), b"kept");
    }
}
