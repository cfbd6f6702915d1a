//! How far each run was acknowledged, noted beside the store: a run that lost its end in a damaged file is told from one that
//! never had it.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use content_digest::Digest;

/// Name of the file in the data directory.
pub(super) const NAME: &str = "heads";
/// Digest of the run's id and its sum, next sequence number and its sum.
const ENTRY_BYTES: u64 = 32 + 4 + 8 + 4;
const HEAD_AT: u64 = 32 + 4;
/// Entries that are read at once.
const PIECE_ENTRIES: usize = 4096;

/// The notes, one of fixed size for each run, by its number. They are written after each commit and never synced: they may
/// lag behind the store, and are never ahead of it.
pub(super) struct Heads(File);

/// One note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    /// Digest of the run's id.
    pub(super) name: Option<Digest>,
    /// Its next sequence number; 0 for none that is known.
    pub(super) next_sequence: u64,
}

/// What a commit leaves to be noted.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Next sequence numbers by runs' numbers.
    pub(super) heads: BTreeMap<u64, u64>,
    /// Digests of the ids of runs that were made.
    pub(super) names: BTreeMap<u64, Digest>,
}

impl Heads {
    /// Opens or makes the notes.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(dir.join(NAME))?;
        Ok(Self(file))
    }

    /// Notes what a commit made durable. A note that cannot be written is one that lags.
    pub(super) fn note(&self, noted: &Noted) {
        if let Err(error) = self.write(noted) {
            tracing::warn!(%error, "cannot note how far runs were acknowledged");
        }
    }

    /// Writes notes.
    pub(super) fn write(&self, noted: &Noted) -> io::Result<()> {
        for (run, name) in &noted.names {
            self.0.write_all_at(&summed(name.as_bytes()), run.saturating_mul(ENTRY_BYTES))?;
        }
        for (run, head) in &noted.heads {
            let at = run.saturating_mul(ENTRY_BYTES).saturating_add(HEAD_AT);
            self.0.write_all_at(&summed(&head.to_be_bytes()), at)?;
        }
        Ok(())
    }

    /// Reads all notes; the place of each is its run's number.
    pub(super) fn all(&self) -> io::Result<Vec<Head>> {
        let len = self.0.metadata()?.len();
        let mut heads = Vec::new();
        let mut piece = vec![0; PIECE_ENTRIES * ENTRY_BYTES as usize];
        let mut at = 0;
        while at < len {
            let size = usize::try_from(len - at).unwrap_or(usize::MAX).min(piece.len());
            self.0.read_exact_at(&mut piece[..size], at)?;
            heads.extend(piece[..size].chunks(ENTRY_BYTES as usize).map(Head::read));
            at += size as u64;
        }
        Ok(heads)
    }
}

impl Head {
    fn read(entry: &[u8]) -> Self {
        let name = checked::<32>(entry).map(Digest::from_bytes).filter(|name| *name != Digest::ZERO);
        let head = entry.get(HEAD_AT as usize..).and_then(checked::<8>);
        Self { name, next_sequence: head.map_or(0, u64::from_be_bytes) }
    }
}

fn summed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32fast::hash(bytes).to_be_bytes()].concat()
}

fn checked<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk::<N>()?;
    let (sum, _) = rest.split_first_chunk::<4>()?;
    (crc32fast::hash(field).to_be_bytes() == *sum).then_some(*field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_back_by_number_and_a_torn_one_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let heads = Heads::open(dir.path()).unwrap();
        let names = BTreeMap::from([(0, Digest::of("a")), (2, Digest::of("c"))]);
        heads.note(&Noted { names, heads: BTreeMap::from([(0, 7), (2, 9)]) });
        heads.note(&Noted { heads: BTreeMap::from([(0, 8)]), ..Noted::default() });
        let read = |dir: &Path| Heads::open(dir).unwrap().all().unwrap();
        let first = Head { name: Some(Digest::of("a")), next_sequence: 8 };
        let third = Head { name: Some(Digest::of("c")), next_sequence: 9 };
        assert_eq!(read(dir.path()), [first, Head::default(), third]);
        heads.0.write_all_at(b"torn", 0).unwrap();
        assert_eq!(read(dir.path())[0], Head { name: None, next_sequence: 8 });
    }
}
