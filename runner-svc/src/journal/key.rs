//! Storage keys: a kind byte and big-endian fields of fixed size, so that byte order is the order of lists.

use content_digest::Digest;

/// A key of one kind; its bytes are what the store sees.
pub(super) trait Key: Sized {
    /// First byte of every key of this kind. Kinds are append-only.
    const KIND: u8;
    /// Length of every key of this kind.
    const LEN: usize;

    /// The key's bytes, [`Self::LEN`] of them.
    fn encode(&self) -> Vec<u8>;

    /// Reads a key of this kind.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// One value about the whole store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meta {
    /// Version of the layout, u32.
    Format,
    /// How often the store was opened, u64: tells leases of dead processes from living ones.
    Epoch,
    /// How many commits there were, u64.
    Commits,
}

/// A run's number by its id's digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunName(pub Digest);

/// What a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header(pub u64);

/// A run's head, lease and status document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub u64);

/// One part of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The run's number.
    pub run: u64,
    /// The record's place in the run.
    pub sequence: u64,
    /// The part's place in the record.
    pub part: u16,
}

/// Index of runs that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished(pub u64);

/// Index of a namespace's runs, by start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByNamespace {
    /// Digest of the namespace.
    pub namespace: Digest,
    /// The run's number.
    pub run: u64,
}

/// Index of a plan's runs in a namespace, by start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByPlan {
    /// Digest of the namespace.
    pub namespace: Digest,
    /// The plan.
    pub plan: Digest,
    /// The run's number.
    pub run: u64,
}

/// Index of a namespace's pending asks, by run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    /// Digest of the namespace.
    pub namespace: Digest,
    /// The run's number.
    pub run: u64,
    /// The ask's `tool_call_id`.
    pub ask: Digest,
}

const _: () = {
    assert!(Meta::LEN == 2);
    assert!(RunName::LEN == 33);
    assert!(Header::LEN == 9 && State::LEN == 9 && Unfinished::LEN == 9);
    assert!(Part::LEN == 19);
    assert!(ByNamespace::LEN == 41);
    assert!(ByPlan::LEN == 73);
    assert!(Ask::LEN == 73);
};

impl Key for Meta {
    const KIND: u8 = 0x01;
    const LEN: usize = 1 + 1;

    fn encode(&self) -> Vec<u8> {
        vec![
            Self::KIND,
            match self {
                Self::Format => 0,
                Self::Epoch => 1,
                Self::Commits => 2,
            },
        ]
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match Fields::of::<Self>(bytes)?.0 {
            [0] => Some(Self::Format),
            [1] => Some(Self::Epoch),
            [2] => Some(Self::Commits),
            _ => None,
        }
    }
}

impl Key for RunName {
    const KIND: u8 = 0x10;
    const LEN: usize = 1 + 32;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[self.0.as_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(Fields::of::<Self>(bytes)?.digest()?))
    }
}

impl Key for Header {
    const KIND: u8 = 0x11;
    const LEN: usize = 1 + 8;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[&self.0.to_be_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(Fields::of::<Self>(bytes)?.u64()?))
    }
}

impl Key for State {
    const KIND: u8 = 0x12;
    const LEN: usize = 1 + 8;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[&self.0.to_be_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(Fields::of::<Self>(bytes)?.u64()?))
    }
}

impl Key for Part {
    const KIND: u8 = 0x20;
    const LEN: usize = 1 + 8 + 8 + 2;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[&self.run.to_be_bytes(), &self.sequence.to_be_bytes(), &self.part.to_be_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of::<Self>(bytes)?;
        Some(Self { run: fields.u64()?, sequence: fields.u64()?, part: fields.u16()? })
    }
}

impl Key for Unfinished {
    const KIND: u8 = 0x30;
    const LEN: usize = 1 + 8;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[&self.0.to_be_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(Fields::of::<Self>(bytes)?.u64()?))
    }
}

impl Key for ByNamespace {
    const KIND: u8 = 0x31;
    const LEN: usize = 1 + 32 + 8;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[self.namespace.as_bytes(), &self.run.to_be_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of::<Self>(bytes)?;
        Some(Self { namespace: fields.digest()?, run: fields.u64()? })
    }
}

impl Key for ByPlan {
    const KIND: u8 = 0x32;
    const LEN: usize = 1 + 32 + 32 + 8;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[self.namespace.as_bytes(), self.plan.as_bytes(), &self.run.to_be_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of::<Self>(bytes)?;
        Some(Self { namespace: fields.digest()?, plan: fields.digest()?, run: fields.u64()? })
    }
}

impl Key for Ask {
    const KIND: u8 = 0x33;
    const LEN: usize = 1 + 32 + 8 + 32;

    fn encode(&self) -> Vec<u8> {
        concat::<Self>(&[self.namespace.as_bytes(), &self.run.to_be_bytes(), self.ask.as_bytes()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of::<Self>(bytes)?;
        Some(Self { namespace: fields.digest()?, run: fields.u64()?, ask: fields.digest()? })
    }
}

/// Puts the kind byte before the fields.
fn concat<K: Key>(fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(K::LEN);
    bytes.push(K::KIND);
    for field in fields {
        bytes.extend_from_slice(field);
    }
    debug_assert_eq!(bytes.len(), K::LEN, "a key of kind {:#04x} has one length", K::KIND);
    bytes
}

/// The fields of a key that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn of<K: Key>(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        (kind == K::KIND && bytes.len() == K::LEN).then_some(Self(rest))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn digest(&mut self) -> Option<Digest> {
        self.take().map(Digest::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn round<K: Key + Debug + PartialEq>(key: K) {
        let bytes = key.encode();
        assert_eq!(bytes.len(), K::LEN);
        assert_eq!(bytes[0], K::KIND);
        assert_eq!(K::decode(&bytes).as_ref(), Some(&key));
        assert_eq!(K::decode(&bytes[..bytes.len() - 1]), None, "a shorter key is refused");
        let mut other = bytes.clone();
        other[0] ^= 0x80;
        assert_eq!(K::decode(&other), None, "a key of another kind is refused");
        other = bytes;
        other.push(0);
        assert_eq!(K::decode(&other), None, "a longer key is refused");
    }

    #[test]
    fn every_key_reads_back_as_itself_and_as_no_other_kind() {
        let (a, b) = (Digest::of("a"), Digest::of("b"));
        round(Meta::Format);
        round(Meta::Epoch);
        round(Meta::Commits);
        round(RunName(a));
        for number in [0, 1, u64::from(u32::MAX), u64::MAX] {
            round(Header(number));
            round(State(number));
            round(Unfinished(number));
            round(Part { run: number, sequence: !number, part: 513 });
            round(ByNamespace { namespace: a, run: number });
            round(ByPlan { namespace: a, plan: b, run: number });
            round(Ask { namespace: a, run: number, ask: b });
        }
    }

    #[test]
    fn bytes_are_ordered_as_the_fields_are() {
        let part = |run, sequence, part| Part { run, sequence, part }.encode();
        let mut keys = vec![part(2, 0, 0), part(1, 256, 0), part(1, 255, 1), part(1, 255, 0), part(1, 0, 65535)];
        keys.sort();
        assert_eq!(keys, [part(1, 0, 65535), part(1, 255, 0), part(1, 255, 1), part(1, 256, 0), part(2, 0, 0)]);
    }
}
