//! Pages of a list: their size, and the opaque place where the next begins.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use proto::fault::{Fault, Reason};

use super::catalog::failure::invalid;

/// Entries of a page when the request does not say.
const SIZE_DEFAULT: u32 = 100;
/// Most entries of a page.
const SIZE_MAX: u32 = 1000;
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 1024;

/// How many entries a page has.
pub fn size(asked: u32) -> Result<usize, Fault> {
    match asked {
        0 => Ok(SIZE_DEFAULT as usize),
        1..=SIZE_MAX => Ok(asked as usize),
        _ => Err(invalid("page_size", "must be 1 to 1000, or 0 for 100")),
    }
}

/// Where a page begins; `None` at the beginning.
pub fn place(token: &str) -> Result<Option<Vec<u8>>, Fault> {
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(bad_token());
    }
    URL_SAFE_NO_PAD.decode(token).map(Some).map_err(|_| bad_token())
}

/// The token of a place.
pub fn token(place: Option<Vec<u8>>) -> String {
    place.map(|key| URL_SAFE_NO_PAD.encode(key)).unwrap_or_default()
}

/// A place that is a number, such as a sequence number.
pub fn number(token: &str) -> Result<Option<u64>, Fault> {
    let Some(place) = place(token)? else { return Ok(None) };
    let bytes = <[u8; 8]>::try_from(place).map_err(|_| bad_token())?;
    Ok(Some(u64::from_be_bytes(bytes)))
}

/// The token of a place that is a number.
pub fn token_of(number: Option<u64>) -> String {
    token(number.map(|number| number.to_be_bytes().to_vec()))
}

/// The token was not issued for this query.
pub fn bad_token() -> Fault {
    let text = "page_token is not one that was issued for this list: begin without one";
    Fault::new(Reason::BadPageToken, text).field("page_token", "was not issued for this list")
}
