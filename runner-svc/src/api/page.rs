//! Pages of a list: their size, and the opaque place where the next begins, good for the same query alone.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use content_digest::Hasher;
use proto::fault::{Fault, Reason};

use super::catalog::failure::invalid;

/// Entries of a page when the request does not say.
const SIZE_DEFAULT: u32 = 100;
/// Most entries of a page.
const SIZE_MAX: u32 = 1000;
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 1024;
/// Bytes of a token that name its query.
const QUERY_BYTES: usize = 8;

/// What a list is asked for, without the page: a token of one query is none of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query([u8; QUERY_BYTES]);

impl Query {
    /// Names the query by its list and everything that the list is filtered by.
    pub fn of<T: AsRef<[u8]>>(list: &str, filters: impl IntoIterator<Item = T>) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(list);
        for filter in filters {
            // A length before each, so that no two lists of filters are one text.
            hasher.update((filter.as_ref().len() as u64).to_be_bytes());
            hasher.update(filter.as_ref());
        }
        let digest = hasher.finish();
        let name = digest.as_bytes().first_chunk::<QUERY_BYTES>().copied();
        Self(name.expect("a digest is longer than the name of a query"))
    }

    /// Where a page begins; `None` at the beginning.
    pub fn place(self, token: &str) -> Result<Option<Vec<u8>>, Fault> {
        if token.is_empty() {
            return Ok(None);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(bad_token());
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad_token())?;
        match bytes.split_first_chunk::<QUERY_BYTES>() {
            Some((query, place)) if *query == self.0 => Ok(Some(place.to_vec())),
            Some(_) | None => Err(bad_token()),
        }
    }

    /// The token of a place.
    pub fn token(self, place: Option<Vec<u8>>) -> String {
        place.map(|place| URL_SAFE_NO_PAD.encode([self.0.as_slice(), &place].concat())).unwrap_or_default()
    }

    /// A place that is a number, such as a sequence number.
    pub fn number(self, token: &str) -> Result<Option<u64>, Fault> {
        let Some(place) = self.place(token)? else { return Ok(None) };
        let bytes = <[u8; 8]>::try_from(place).map_err(|_| bad_token())?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    /// The token of a place that is a number.
    pub fn token_of(self, number: Option<u64>) -> String {
        self.token(number.map(|number| number.to_be_bytes().to_vec()))
    }
}

/// How many entries a page has.
pub fn size(asked: u32) -> Result<usize, Fault> {
    match asked {
        0 => Ok(SIZE_DEFAULT as usize),
        1..=SIZE_MAX => Ok(asked as usize),
        _ => Err(invalid("page_size", "must be 1 to 1000, or 0 for 100")),
    }
}

/// The token was not issued for this query.
pub fn bad_token() -> Fault {
    let text = "page_token is not one that was issued for this list and these filters: begin without one";
    Fault::new(Reason::BadPageToken, text).field("page_token", "was not issued for this list and these filters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_own_query_alone() {
        let query = Query::of("ListRuns", ["ops", "abc"]);
        let token = query.token_of(Some(42));
        assert_eq!(query.number(&token).unwrap(), Some(42));
        assert_eq!(query.number("").unwrap(), None);
        for other in [
            Query::of("ListRuns", ["ops", "abd"]),
            Query::of("ListRuns", ["opsabc"]),
            Query::of("ListRuns", ["ops"]),
            Query::of("ListAsks", ["ops", "abc"]),
        ] {
            assert_eq!(other.number(&token).unwrap_err().reason(), Reason::BadPageToken);
        }
        for token in ["x", "AAAA", "!", &"A".repeat(5000)] {
            assert_eq!(query.number(token).unwrap_err().reason(), Reason::BadPageToken);
        }
    }
}
