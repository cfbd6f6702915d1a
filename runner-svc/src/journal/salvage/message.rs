//! One message of sled's log as it lies on the disk: its header, its checksum, and what it changes of a page.

/// Bytes of a segment; sled's own default, which the store uses.
pub(super) const SEGMENT_BYTES: usize = 512 * 1024;
/// Bytes of a segment's header.
pub(super) const SEGMENT_HEADER_BYTES: usize = 20;
/// A segment's last bytes hold no message's beginning.
const RED_ZONE_BYTES: usize = 32;
/// Messages of sled: how a page's update lies there.
const CAP: u8 = 2;
const NODE: u8 = 8;
const LINK: u8 = 10;
const KIND_LAST: u8 = 11;

/// A message whose checksum holds.
pub(super) struct Message<'a> {
    kind: u8,
    /// Number of the segment that it was written for; a segment that is used again may hold older ones.
    pub(super) segment: u64,
    /// The page.
    pub(super) page: u64,
    body: &'a [u8],
    /// Where the body begins in the segment.
    body_at: usize,
}

/// What a message says of keys. Keys lack their page's prefix.
pub(super) enum Change<'a> {
    /// One value.
    Set(Entry<'a>),
    /// A key is removed.
    Remove(&'a [u8]),
    /// The page anew: all of its keys.
    Leaf(Leaf<'a>),
    /// Nothing of keys.
    Other,
}

/// A key and where its value lies.
pub(super) struct Entry<'a> {
    /// The key without its page's prefix.
    pub(super) key: &'a [u8],
    /// The value.
    pub(super) value: &'a [u8],
    /// Where the value begins in the segment.
    pub(super) at: usize,
}

/// A page with all of its keys.
pub(super) struct Leaf<'a> {
    /// What all keys begin with.
    pub(super) prefix: &'a [u8],
    /// The smallest key that belongs to it.
    pub(super) lo: &'a [u8],
    /// The smallest key that does not any more; empty for the last page.
    pub(super) hi: &'a [u8],
    /// Its keys.
    pub(super) entries: Vec<Entry<'a>>,
}

/// The number in a segment's header, if its checksum holds.
pub(super) fn segment_number(segment: &[u8]) -> Option<u64> {
    let (sum, rest) = segment.get(..SEGMENT_HEADER_BYTES)?.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*sum) ^ u32::MAX != crc32fast::hash(rest) {
        return None;
    }
    let position = u64::from_le_bytes(*rest.first_chunk::<8>()?) ^ (u64::MAX >> 1);
    Some(position / SEGMENT_BYTES as u64)
}

/// The message at a place of a segment and where it ends, if there is one; `segment` is the number that it has to have.
pub(super) fn message_at(bytes: &[u8], at: usize, segment: Option<u64>) -> Option<(Message<'_>, usize)> {
    let (message, sum) = read(bytes, at, segment)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(message.body);
    hasher.update(&bytes[at + 4..message.body_at]);
    let end = message.body_at + message.body.len();
    (hasher.finalize() ^ u32::MAX == sum).then_some((message, end))
}

/// What is left of a message at a place where one begins and whose checksum does not hold: values in it have their own.
pub(super) fn damaged_at(bytes: &[u8], at: usize, segment: u64) -> Option<Message<'_>> {
    read(bytes, at, Some(segment)).map(|(message, _)| message)
}

/// A message and its checksum.
fn read(bytes: &[u8], at: usize, segment: Option<u64>) -> Option<(Message<'_>, u32)> {
    // The file may end behind a message that is shorter than that.
    let from = bytes.get(at..).filter(|_| at + RED_ZONE_BYTES <= SEGMENT_BYTES)?;
    let (sum, head) = from.split_first_chunk::<4>()?;
    let (&kind, rest) = head.split_first()?;
    if !(1..=KIND_LAST).contains(&kind) {
        return None;
    }
    let (len, rest) = varint(rest)?;
    let (number, rest) = varint(rest)?;
    let (page, rest) = varint(rest)?;
    if segment.is_some_and(|segment| segment != number) {
        return None;
    }
    let body = rest.get(..usize::try_from(len).ok()?)?;
    let body_at = at + 4 + head.len() - rest.len();
    Some((Message { kind, segment: number, page, body, body_at }, u32::from_le_bytes(*sum)))
}

impl<'a> Message<'a> {
    /// Whether nothing follows it in its segment.
    pub(super) fn is_cap(&self) -> bool {
        self.kind == CAP
    }

    /// What it says of keys; none where it does not read.
    pub(super) fn change(&self) -> Option<Change<'a>> {
        match self.kind {
            LINK => self.link(),
            NODE => self.node(),
            _ => Some(Change::Other),
        }
    }

    fn link(&self) -> Option<Change<'a>> {
        let (&tag, rest) = self.body.split_first()?;
        match tag {
            0 => {
                let (key, rest) = text(rest)?;
                let (value, _) = text(rest)?;
                Some(Change::Set(Entry { key, value, at: self.place_of(value) }))
            }
            1 => text(rest).map(|(key, _)| Change::Remove(key)),
            _ => Some(Change::Other),
        }
    }

    fn node(&self) -> Option<Change<'a>> {
        let (_next, rest) = varint(self.body)?;
        let (_merging_child, rest) = varint(rest)?;
        let (&[_merging, prefix_len], rest) = rest.split_first_chunk::<2>()?;
        let (lo, rest) = text(rest)?;
        let (hi, rest) = text(rest)?;
        let (&tag, rest) = rest.split_first()?;
        if tag != 0 {
            return Some(Change::Other);
        }
        let prefix = lo.get(..usize::from(prefix_len))?;
        let (count, mut rest) = varint(rest)?;
        // A key takes a byte at least: a count over what is left is none.
        let count = usize::try_from(count).ok().filter(|count| *count <= rest.len())?;
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let (key, after) = text(rest)?;
            keys.push(key);
            rest = after;
        }
        let mut entries = Vec::with_capacity(count);
        for key in keys {
            // In a damaged page as far as it reads.
            let Some((value, after)) = text(rest) else { break };
            entries.push(Entry { key, value, at: self.place_of(value) });
            rest = after;
        }
        Some(Change::Leaf(Leaf { prefix, lo, hi, entries }))
    }

    fn place_of(&self, value: &[u8]) -> usize {
        self.body_at + (value.as_ptr().addr() - self.body.as_ptr().addr())
    }
}

/// A text behind its length.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = varint(bytes)?;
    rest.split_at_checked(usize::try_from(len).ok()?)
}

/// A number in 1 to 9 bytes.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        0..=240 => Some((u64::from(first), rest)),
        241..=248 => {
            let (&second, rest) = rest.split_first()?;
            Some((240 + 256 * (u64::from(first) - 241) + u64::from(second), rest))
        }
        249 => {
            let (&[high, low], rest) = rest.split_first_chunk::<2>()?;
            Some((2288 + 256 * u64::from(high) + u64::from(low), rest))
        }
        _ => {
            let (number, rest) = rest.split_at_checked(usize::from(first) - 247)?;
            let mut whole = [0; 8];
            whole[..number.len()].copy_from_slice(number);
            Some((u64::from_le_bytes(whole), rest))
        }
    }
}
