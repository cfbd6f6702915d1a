//! Values as they lie in the store: sealed with a checksum over key and value, and records cut into parts of at most 4 KiB.

use content_digest::Digest;
use runner_core::payload::Payload;

use super::{
    key::{Key, Part},
    record::{PAYLOAD_INLINE_BYTES_MAX, Record},
};

/// Largest value handed to the store, seal included: far below the size (about 16 KiB) from which it makes files of its own.
pub(super) const VALUE_BYTES_MAX: usize = 4096;
/// Version byte and checksum before each value.
pub(super) const SEAL_BYTES: usize = 1 + 4;
/// What one part carries of a record, beside the seal and the number of parts.
const FRAGMENT_BYTES: usize = VALUE_BYTES_MAX - SEAL_BYTES - 2;
const SEAL_VERSION: u8 = 1;

/// Puts version and checksum before a value. The checksum covers the key: a value at a wrong place does not pass.
pub(super) fn seal(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(SEAL_BYTES + value.len());
    sealed.push(SEAL_VERSION);
    sealed.extend_from_slice(&checksum(key, value).to_be_bytes());
    sealed.extend_from_slice(value);
    debug_assert!(sealed.len() <= VALUE_BYTES_MAX, "a value of {} bytes", sealed.len());
    sealed
}

/// Checks and strips what [`seal`] put there.
pub(super) fn unseal<'a>(key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], &'static str> {
    let (&version, rest) = sealed.split_first().ok_or("the value is empty")?;
    if version != SEAL_VERSION {
        return Err("the value's version is unknown");
    }
    let (sum, value) = rest.split_first_chunk::<4>().ok_or("the value is cut off")?;
    if u32::from_be_bytes(*sum) != checksum(key, value) {
        return Err("the checksum does not match");
    }
    Ok(value)
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

/// Cuts a record into sealed parts, keys and values.
pub(super) fn split(run: u64, sequence: u64, record: &Record) -> Vec<(Vec<u8>, Vec<u8>)> {
    let whole = encode(record);
    let parts = whole.len().div_ceil(FRAGMENT_BYTES);
    let total = u16::try_from(parts).expect("an append's size limit leaves fewer than 65536 parts");
    whole
        .chunks(FRAGMENT_BYTES)
        .zip(0_u16..)
        .map(|(fragment, part)| {
            let key = Part { run, sequence, part }.encode();
            let mut value = Vec::with_capacity(2 + fragment.len());
            value.extend_from_slice(&total.to_be_bytes());
            value.extend_from_slice(fragment);
            let sealed = seal(&key, &value);
            (key, sealed)
        })
        .collect()
}

/// Puts the parts of one record together again, in order, each checked.
#[derive(Default)]
pub(super) struct Joiner {
    bytes: Vec<u8>,
    seen: u16,
    total: u16,
}

impl Joiner {
    /// Takes the next part; true when it was the last.
    pub(super) fn push(&mut self, part: u16, key: &[u8], sealed: &[u8]) -> Result<bool, &'static str> {
        let value = unseal(key, sealed)?;
        let (total, fragment) = value.split_first_chunk::<2>().ok_or("a part is cut off")?;
        let total = u16::from_be_bytes(*total);
        if part != self.seen || total == 0 || (part > 0 && total != self.total) {
            return Err("a part is missing");
        }
        self.total = total;
        self.seen += 1;
        self.bytes.extend_from_slice(fragment);
        Ok(self.seen == self.total)
    }

    /// Whether a record has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.seen > 0
    }

    /// Reads the record.
    pub(super) fn finish(self) -> Result<Draft, &'static str> {
        decode(&self.bytes).ok_or("the record's lengths or digests do not add up")
    }
}

/// A record whose larger texts are still to be fetched from their files.
pub(super) struct Draft {
    pub(super) bytes: Vec<u8>,
    pub(super) payloads: Vec<DraftPayload>,
}

/// A text, or where to find it.
pub(super) enum DraftPayload {
    /// It lay beside the event.
    Here(Payload),
    /// It is a file.
    File {
        /// Its digest.
        digest: Digest,
        /// Its size.
        bytes: u32,
    },
}

const HERE: u8 = 0;
const FILE: u8 = 1;

/// Bytes that a record takes in the store, seals and keys left out.
pub(super) fn encoded_len(record: &Record) -> usize {
    let inline = |payload: &Payload| if is_file(payload) { 0 } else { payload.text().len() };
    6 + record.bytes.len() + record.payloads.iter().map(|payload| 37 + inline(payload)).sum::<usize>()
}

/// Whether a text is kept as a file.
pub(super) fn is_file(payload: &Payload) -> bool {
    payload.text().len() > PAYLOAD_INLINE_BYTES_MAX
}

fn encode(record: &Record) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded_len(record));
    out.extend_from_slice(&len_u32(record.bytes.len()));
    let count = u16::try_from(record.payloads.len()).expect("the number of texts is limited before");
    out.extend_from_slice(&count.to_be_bytes());
    for payload in &record.payloads {
        out.push(if is_file(payload) { FILE } else { HERE });
        out.extend_from_slice(payload.digest().as_bytes());
        out.extend_from_slice(&len_u32(payload.text().len()));
    }
    out.extend_from_slice(&record.bytes);
    for payload in record.payloads.iter().filter(|payload| !is_file(payload)) {
        out.extend_from_slice(payload.text().as_bytes());
    }
    out
}

fn len_u32(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("sizes are limited before").to_be_bytes()
}

fn decode(bytes: &[u8]) -> Option<Draft> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (count, mut rest) = rest.split_first_chunk::<2>()?;
    let mut places = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (place, after) = rest.split_first()?;
        let (digest, after) = after.split_first_chunk::<32>()?;
        let (size, after) = after.split_first_chunk::<4>()?;
        places.push((*place, Digest::from_bytes(*digest), u32::from_be_bytes(*size)));
        rest = after;
    }
    let (event, mut rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
    let mut payloads = Vec::with_capacity(places.len());
    for (place, digest, size) in places {
        payloads.push(match place {
            HERE => {
                let (text, after) = rest.split_at_checked(usize::try_from(size).ok()?)?;
                rest = after;
                let payload = Payload::new(std::str::from_utf8(text).ok()?);
                (payload.digest() == digest).then_some(DraftPayload::Here(payload))?
            }
            FILE => DraftPayload::File { digest, bytes: size },
            _ => return None,
        });
    }
    rest.is_empty().then(|| Draft { bytes: event.to_vec(), payloads })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Payload {
        Payload::new(text)
    }

    fn join(parts: &[(Vec<u8>, Vec<u8>)]) -> Result<Draft, &'static str> {
        let mut joiner = Joiner::default();
        for (index, (key, value)) in parts.iter().enumerate() {
            let part = Part::decode(key).unwrap();
            let last = joiner.push(part.part, key, value)?;
            assert_eq!(last, index + 1 == parts.len());
        }
        joiner.finish()
    }

    #[test]
    fn a_record_reads_back_whatever_its_size() {
        for size in [0, 1, FRAGMENT_BYTES - 6, FRAGMENT_BYTES - 5, 3 * FRAGMENT_BYTES, 200_000] {
            let record = Record { bytes: vec![7; size], payloads: vec![] };
            let parts = split(3, 9, &record);
            assert!(parts.iter().all(|(_, value)| value.len() <= VALUE_BYTES_MAX));
            assert_eq!(join(&parts).unwrap().bytes, record.bytes);
        }
    }

    #[test]
    fn small_texts_lie_beside_the_event_and_large_ones_are_named() {
        let small = payload(&"é".repeat(PAYLOAD_INLINE_BYTES_MAX / 2));
        let large = payload(&"x".repeat(PAYLOAD_INLINE_BYTES_MAX + 1));
        let record = Record { bytes: b"{}".to_vec(), payloads: vec![small.clone(), large.clone(), payload("")] };
        let parts = split(1, 1, &record);
        assert_eq!(parts.len(), encoded_len(&record).div_ceil(FRAGMENT_BYTES));
        let draft = join(&parts).unwrap();
        assert!(matches!(&draft.payloads[0], DraftPayload::Here(found) if *found == small));
        assert!(matches!(&draft.payloads[1], DraftPayload::File { digest, bytes: 65537 } if *digest == large.digest()));
        assert!(matches!(&draft.payloads[2], DraftPayload::Here(found) if found.text().is_empty()));
    }

    #[test]
    fn a_flipped_bit_a_wrong_place_and_a_missing_part_are_seen() {
        let parts = split(1, 1, &Record { bytes: vec![7; 9000], payloads: vec![] });
        for index in 0..parts[0].1.len() {
            let mut damaged = parts.clone();
            damaged[0].1[index] ^= 1;
            assert!(join(&damaged).is_err(), "byte {index}");
        }
        let mut moved = parts.clone();
        moved[0].0 = Part { run: 1, sequence: 2, part: 0 }.encode();
        assert!(join(&moved).is_err());
        let mut joiner = Joiner::default();
        assert_eq!(joiner.push(1, &parts[1].0, &parts[1].1), Err("a part is missing"));
    }
}
