//! A run's mutable bookkeeping: its head, its lease and its status document, one value in the store.

use std::sync::Arc;

use super::{
    frame::{SEAL_BYTES, VALUE_BYTES_MAX},
    record::{HOLDER_BYTES_MAX, SUMMARY_BYTES_MAX},
};

/// What the committer checks each append against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunState {
    /// Sequence number of the next record.
    pub next_sequence: u64,
    /// Whether the run has ended.
    pub finished: bool,
    /// The lease's fence; grows with each lease.
    pub fence: u64,
    /// When the lease ends, milliseconds since 1970.
    pub until_ms: u64,
    /// In which opening of the store the lease was taken: one of an earlier opening is a dead process's.
    pub epoch: u64,
    /// Who holds the lease.
    pub holder: Arc<str>,
    /// The status document.
    pub summary: Arc<[u8]>,
}

const FIXED_BYTES: usize = 8 + 1 + 8 + 8 + 8 + 2;
const _: () = assert!(SEAL_BYTES + FIXED_BYTES + HOLDER_BYTES_MAX + SUMMARY_BYTES_MAX <= VALUE_BYTES_MAX);

impl RunState {
    /// The value's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + self.holder.len() + self.summary.len());
        out.extend_from_slice(&self.next_sequence.to_be_bytes());
        out.push(u8::from(self.finished));
        out.extend_from_slice(&self.fence.to_be_bytes());
        out.extend_from_slice(&self.until_ms.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        let holder = u16::try_from(self.holder.len()).expect("a holder's name is limited before");
        out.extend_from_slice(&holder.to_be_bytes());
        out.extend_from_slice(self.holder.as_bytes());
        out.extend_from_slice(&self.summary);
        out
    }

    /// Reads the value's bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (next_sequence, rest) = take_u64(bytes)?;
        let (&finished, rest) = rest.split_first()?;
        let (fence, rest) = take_u64(rest)?;
        let (until_ms, rest) = take_u64(rest)?;
        let (epoch, rest) = take_u64(rest)?;
        let (holder_len, rest) = rest.split_first_chunk::<2>()?;
        let (holder, summary) = rest.split_at_checked(usize::from(u16::from_be_bytes(*holder_len)))?;
        Some(Self {
            next_sequence,
            finished: match finished {
                0 => false,
                1 => true,
                _ => return None,
            },
            fence,
            until_ms,
            epoch,
            holder: Arc::from(std::str::from_utf8(holder).ok()?),
            summary: Arc::from(summary),
        })
    }
}

fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (field, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*field), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_as_itself() {
        let state = RunState {
            next_sequence: 7,
            finished: true,
            fence: 3,
            until_ms: u64::MAX,
            epoch: 2,
            holder: "h".repeat(HOLDER_BYTES_MAX).into(),
            summary: vec![0xff; SUMMARY_BYTES_MAX].into(),
        };
        let bytes = state.encode();
        assert!(bytes.len() + SEAL_BYTES <= VALUE_BYTES_MAX);
        assert_eq!(RunState::decode(&bytes), Some(state));
        assert_eq!(RunState::decode(&bytes[..30]), None);
    }
}
